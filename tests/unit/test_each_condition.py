"""Each of several conditions, folders and values counts: of images, engines, workers, feedstocks, environments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import git_world
import psutil
import pytest
from rattler import MatchSpec
from small_files import write

from command_line import build, running
from command_line import root as command_root
from conda_wheels import nvidia, wheel_tree
from gpu_tools import contents
from gpu_tools.sizes import uninstalled
from gpu_tools.slim import backup, features, users
from gpu_tools.verify import gpu_probe, inspected_environment, judge_fit
from gpu_tools.verify.installed_torch import InstalledTorch
from groundwork import machine
from groundwork.errors import (
    AuditError,
    ConfigError,
    IsolationError,
    PreflightError,
    ProviderError,
    UsageError,
)
from groundwork.jobs import bytes_per_compile
from groundwork.network import certificates, channel_logins
from groundwork.network.channel_logins import Channels
from groundwork.network.client import NO_PARTS, NetworkError
from groundwork.network.index import linked
from groundwork.network.wheel_contents import BROKEN
from megabuild.configs import config_file, matrix, render
from megabuild.configs.config import MATRIX_FILE
from megabuild.configs.provider_name import ProviderName
from megabuild.engine import supervisor
from megabuild.engine.job import Job, OutcomeKind
from megabuild.engine.supervisor import Place
from megabuild.engine.worker import LOGINS
from megabuild.isolation.base import Host
from megabuild.isolation.container import Container
from megabuild.isolation.engine import Engine
from megabuild.plan import solving, tree_reuse
from megabuild.plan.plan import Method
from megabuild.providers import local_channel, specs
from megabuild.providers.debian import libraries
from megabuild.providers.debian.root import DebianRoot
from megabuild.providers.local import placeholder_packages
from megabuild.providers.select import PROVIDERS
from megabuild.providers.wheel import torch_wheels
from megabuild.run import attempt, estimate, graph, pytorch, summary
from megabuild.run.failure import Failure
from megabuild.run.shelf import Shelf
from megabuild.status import record
from pin_audit import repositories
from pin_audit.request import AuditRequest
from pin_audit.services import Services
from pin_audit.sources import recipe_pins, wheel_metadata
from pyg_extensions import fetch_sources
from pyg_extensions.install import user_environment


@pytest.mark.parametrize("made_here", ["", "run make-image.sh"])
@pytest.mark.parametrize("is_there", [True, False])
def test_an_image_of_this_machine_must_exist_and_others_are_pulled(made_here: str, is_there: bool) -> None:
    container = Container(engine=Engine.DOCKER, image="i", made_here=made_here)
    answer = SimpleNamespace(returncode=0 if is_there else 1)
    vars(container).update(_rootless=False, _ask=lambda *_: answer)
    is_missing = bool(made_here) and not is_there
    with pytest.raises(IsolationError, match="image i not found") if is_missing else nullcontext():
        container.check()


def test_each_provider_has_its_engines() -> None:
    assert {name: set(provider.engines) for name, provider in PROVIDERS.items()} == {
        ProviderName.CONDA_FORGE: {Engine.DOCKER, Engine.PODMAN},
        ProviderName.DEBIAN: {Engine.BUBBLEWRAP},
        ProviderName.LOCAL: {Engine.BUBBLEWRAP},
        ProviderName.WHEEL: {Engine.HOST},
    }


class Started(Exception):
    """Raised in place of the start of a worker."""


class NotStarting(Host):
    """Notes the variables of a worker."""

    def command(self, *_: object, env: Mapping[str, str], **__: object) -> list[str]:
        raise Started(dict(env))


@pytest.mark.parametrize("logins", ["", "channel"])
def test_a_worker_has_its_packages_its_folder_and_a_marker(logins: str, tmp_path: Path) -> None:
    """Without byte code, which a build may not write; the next run ends processes with the marker."""
    place = Place(
        isolation=NotStarting(), state=tmp_path, state_inside="/state", packages_inside="/packages", python="python",
        site_inside="/site", mounts=(), logins=logins,
    )  # fmt: skip
    job = Job(recipe="a", output_dir="", platform="linux-64", build_platform="linux-64")
    with pytest.raises(Started) as started:
        supervisor.run_worker(place, job, on_line=print, on_tick=lambda: None)
    wanted = {
        "PYTHONPATH": "/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": "/state/tmp",
        supervisor._MARKER: str(tmp_path),
    }
    if logins:
        wanted[LOGINS] = logins
    assert started.value.args == (wanted,)


def test_a_folder_without_a_recipe_is_no_feedstock(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        command_root.feedstock(tmp_path)
    write(tmp_path / "recipe" / "recipe.yaml", "")
    assert command_root.feedstock(tmp_path) == tmp_path


@pytest.mark.parametrize("beside", ["", *config_file.BESIDE_RECIPE])
@pytest.mark.parametrize("is_generated", [True, False])
def test_a_config_of_conda_smithy_has_the_keys_next_to_the_recipe(
    beside: str, is_generated: bool, tmp_path: Path
) -> None:
    text = "a:\n- '1'\n"
    path = write(tmp_path / "linux_64_.yaml", config_file.stamped(text) if is_generated else text)
    if beside:
        write(tmp_path / "recipe" / beside, "a:\n- '2'\nb:\n- '3'\n")
    found = config_file.read(path, tmp_path / "recipe")
    wanted = {"a": ("1",)}
    if beside and not is_generated:
        wanted["b"] = ("3",)
    assert {key: found.variant[key] for key in found.variant.keys() & {"a", "b"}} == wanted


@pytest.mark.parametrize("is_base", [True, False])
def test_only_a_base_environment_leaves_out_other_environments_and_the_cache(
    is_base: bool, tmp_path: Path
) -> None:
    for name in ("pkgs/a", "envs/b", "lib/pkgs/c"):
        write(tmp_path / name, "x")
    if is_base:
        write(tmp_path / "conda-meta/d", "x")
    files = {path for path in contents._walk(tmp_path, print) if (tmp_path / path).is_file()}
    names = {Path(path).relative_to(tmp_path).as_posix() for path in files}
    assert names == ({"lib/pkgs/c", "conda-meta/d"} if is_base else {"pkgs/a", "envs/b", "lib/pkgs/c"})


@pytest.mark.parametrize("folder", ["torch/include", "torch/include/torch/csrc/api/include", "include"])
def test_headers_of_torch_are_found_in_each_of_its_folders(folder: str, tmp_path: Path) -> None:
    write(tmp_path / folder / "c10/x.h", "\nTORCH_INTERNAL_ASSERT(a);\n")
    torch = InstalledTorch(package=tmp_path / "torch", prefix=tmp_path, version="2.1.2", cuda=None)
    assert torch.denies(frozenset({("c10/x.h", 2), ("c10/x.h", 1), ("c10/y.h", 1)})) == ["c10/x.h:1"]


@pytest.mark.parametrize(("release", "version"), [("13.1", "13.1"), ("13", "13"), ("trixie/sid", "0")])
def test_libraries_of_debian_have_its_release_as_their_version(
    release: str, version: str, tmp_path: Path
) -> None:
    made = libraries.package(DebianRoot(path=tmp_path, fingerprint="x", release=release), "2.41", "linux-64")
    assert made.version == version


@pytest.mark.parametrize("clause", [">>1", "", "1=2"])
def test_a_clause_that_pip_does_not_know_is_refused(clause: str) -> None:
    with pytest.raises(ProviderError, match="no equivalent for pip"):
        specs._pip_clause(clause)


@pytest.mark.parametrize("known", [("", "v1"), ("https://a/b", ""), ("", ""), ("https://a/b", "v1")])
def test_an_audit_needs_upstream_s_repository_and_tag(known: Sequence[str]) -> None:
    repository, tag = known
    request = SimpleNamespace(
        target=SimpleNamespace(package="x", repository=repository, tag=tag),
        repositories=SimpleNamespace(open=lambda *asked: asked),
    )
    if all(known):
        assert AuditRequest.repository(cast(Any, request)) == cast(Any, known)
        return
    with pytest.raises(AuditError, match="names no upstream repository and tag"):
        AuditRequest.repository(cast(Any, request))


def test_all_files_of_a_read_only_checkout_are_copied_and_can_be_written(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("setup.py", "csrc/a.cpp"):
        write(checkout / name, name).chmod(0o444)
    (checkout / "link").symlink_to("setup.py")
    for folder in (checkout / "csrc", checkout):
        folder.chmod(0o555)
    copy = fetch_sources._copy_checkout(checkout, tmp_path / "copy")
    assert {path.relative_to(copy).as_posix() for path in copy.rglob("*")} == {
        "setup.py", "csrc", "csrc/a.cpp", "link",
    }  # fmt: skip
    assert all(path.stat().st_mode & 0o200 for path in (copy, *copy.rglob("*")))
    assert (checkout / "setup.py").stat().st_mode & 0o777 == 0o444
    for folder in (checkout, checkout / "csrc"):
        folder.chmod(0o755)


def test_each_gpu_that_torch_uses_is_listed() -> None:
    gpus = ["a", "b", "c"]
    cuda = SimpleNamespace(
        device_count=lambda: len(gpus),
        get_device_capability=lambda index: (8 + index, index),
        get_device_name=gpus.__getitem__,
    )
    assert gpu_probe.devices(SimpleNamespace(cuda=cuda)) == [
        {"name": "a", "arch": "sm_80"},
        {"name": "b", "arch": "sm_91"},
        {"name": "c", "arch": "sm_102"},
    ]


@pytest.mark.parametrize("wanted", [None, True, False])
@pytest.mark.parametrize("found", [None, "cpu", "13.0"])
def test_torch_is_wrong_only_if_its_cuda_is_known_and_another_is_asked_for(
    wanted: bool | None, found: str | None
) -> None:
    module = SimpleNamespace(
        names=(),
        target=SimpleNamespace(cuda=found),
        wants_cuda=wanted,
        asked=SimpleNamespace(cuda_version=""),
    )
    judged = judge_fit._judge_torch_part(
        cast(Any, module), cast(Any, SimpleNamespace(path="libtorch_cpu.so"))
    )
    is_wrong = None not in (wanted, found) and wanted != (found != "cpu")
    assert (judged is not None) == is_wrong


@pytest.mark.parametrize("error", [error("x") for error in BROKEN] + [OSError("x")], ids=repr)
def test_a_broken_wheel_is_named_whatever_breaks_in_it(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise error

    monkeypatch.setattr(uninstalled, "_read_content", read)
    file = cast(Any, SimpleNamespace(name="a.whl"))
    with pytest.raises(ProviderError, match=r"a\.whl: broken wheel: x"):
        uninstalled._read(file, client=cast(Any, None), folder=tmp_path, remarks=[])


@pytest.mark.parametrize("status", [*NO_PARTS, 404, 500, 0])
@pytest.mark.parametrize("has_metadata", [True, False])
def test_only_a_server_without_parts_leaves_a_wheel_unmeasured(
    status: int, has_metadata: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise NetworkError("x", status=status)

    monkeypatch.setattr(uninstalled, "_read_content", read)
    monkeypatch.setattr(uninstalled, "metadata_beside", lambda *_: b"Name: a\nDescription: \xff")
    file = cast(Any, SimpleNamespace(name="a.whl", metadata=has_metadata))
    remarks: list[str] = []
    if status not in NO_PARTS:
        with pytest.raises(NetworkError):
            uninstalled._read(file, client=cast(Any, None), folder=tmp_path, remarks=remarks)
        return
    found = uninstalled._read(file, client=cast(Any, None), folder=tmp_path, remarks=remarks)
    assert (found.download, found.metadata.startswith("Name: a")) == (None, has_metadata)
    assert remarks == ["a.whl: not measured: its server sends whole files only"]


@pytest.mark.parametrize("asked", [("numpy",), ("ninja",), ("numpy-base",), ("numpy", "ninja"), ("x",), ()])
def test_wheels_are_resolved_for_packages_tools_and_companions(
    asked: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[list[str]] = []

    def resolve(projects: list[str], *_: object, **__: object) -> None:
        resolved.append(projects)

    monkeypatch.setattr(local_channel.lock, "resolve", resolve)  # type: ignore[attr-defined]
    monkeypatch.setattr(local_channel.lock, "wheels_of", lambda _: [])  # type: ignore[attr-defined]
    monkeypatch.setattr(local_channel.download, "download", lambda *_, **__: None)  # type: ignore[attr-defined]
    for name in ("packages", "other_names"):
        monkeypatch.setattr(local_channel.wheel_to_conda, name, lambda *_: [])  # type: ignore[attr-defined]
    catalogue = SimpleNamespace(
        wheels={"numpy"}, tools={"ninja"}, companions={"numpy-base": "numpy"}, pypi_name=lambda name: name
    )
    local_channel._describe_wheels(
        cast(Any, SimpleNamespace(cache=tmp_path, report=print)),
        cast(Any, SimpleNamespace(interpreters={"3.12": None, "3.13": None}, platform="linux-64")),
        dict.fromkeys(asked, ()), cast(Any, catalogue), (),
    )  # fmt: skip
    projects = sorted({"numpy-base": "numpy"}.get(name, name) for name in asked if name != "x")
    assert [sorted(one) for one in resolved] == ([projects] * 2 if projects else [])


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("has_dates", [True, False])
def test_no_program_of_another_feedstock_runs_outside_its_isolation(
    own: bool, has_dates: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytorch, "staging_sentence", lambda _: "")
    monkeypatch.setattr(tree_reuse, "prepare_tree", lambda *_: None)
    ran = tmp_path / "ran"
    if has_dates:
        lines = ["import pathlib, types", "def mend(_):", f"    pathlib.Path({str(ran)!r}).touch()"]
        text = "\n".join([*lines, "    return types.SimpleNamespace(seconds=0)"])
        write(tmp_path / "recipe/tree_dates.py", text)
    options = SimpleNamespace(state=tmp_path, recipes=tmp_path / "recipe", own=own)
    progress = SimpleNamespace(plan=SimpleNamespace(options=options, staging=None), tree=None)
    pytorch._prepare_tree(cast(Any, progress))
    assert ran.exists() == (own and has_dates)


def test_an_environment_s_channels_are_asked_with_their_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def solved(*words: object, **more: object) -> list[object]:
        asked.append((words, more))
        return []

    monkeypatch.setattr(solving, "solved", solved)
    given = cast(Any, SimpleNamespace(channels=(), logins={"a": "b"}, virtual_packages={"__cuda": "13"}))
    assert solving.environment(["x"], given, "linux-64", "y") == {}
    (((specs, channels, platform), more),) = cast(Any, asked)
    assert (specs, channels.by_priority, channels.logins, platform) == (["x"], (), {"a": "b"}, "linux-64")
    assert (more["virtual"], more["what"]) == ({"__cuda": "13"}, "y")


def test_a_requirement_that_cannot_be_parsed_is_a_wrong_use() -> None:
    channels = Channels(by_priority=())
    with pytest.raises(UsageError, match=r"^y: .*") as raised:
        solving.solved(["x >>3"], channels, "linux-64", virtual={}, what="y", remedy="")
    assert raised.value.remedy == "correct the requirements: x >>3"


@pytest.mark.parametrize("error", [error("x") for error in BROKEN] + [OSError("x")], ids=repr)
def test_a_broken_wheel_of_this_machine_fails_its_source_of_the_audit(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise error

    monkeypatch.setattr(wheel_metadata, "read_local", read)
    file = linked((tmp_path / "a-1-py3-none-any.whl").as_uri(), {})
    with pytest.raises(AuditError, match="not a readable wheel: x"):
        wheel_metadata._metadata(cast(Any, file), cast(Any, None), cast(Any, None))


def test_all_libraries_of_editable_installations_are_read(tmp_path: Path) -> None:
    folders = [tmp_path / "b", tmp_path / "a"]
    wanted = {write(folder / "torch_scatter" / f"_{name}_cpu.so", "x") for folder in folders for name in "cd"}
    found = object.__new__(inspected_environment._Environment)
    vars(found).update(_prefix=tmp_path, _site=tmp_path / "site", _elsewhere=folders, _user_libraries=[])
    assert {*found.find_libraries()["torch_scatter"].values()} == wanted


@pytest.mark.parametrize("failing", [(), (0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_a_config_whose_recipe_cannot_be_rendered_is_told_and_the_others_are_read(
    failing: Sequence[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [SimpleNamespace(name=name, build_platform="", platform="linux-64") for name in "abc"]
    broken = [configs[number].name for number in failing]

    def render_recipe(config: Any, *_: object, **__: object) -> Any:
        if config.name in broken:
            raise ConfigError(f"{config.name} is wrong")
        sides = ("staging_build", "build", "staging_host", "host", "run", "constraints")
        return [SimpleNamespace(name="own", skipped=False, **dict.fromkeys(sides, ("own", "x >=1")))]

    monkeypatch.setattr(recipe_pins, "render", render_recipe)
    monkeypatch.setattr(recipe_pins, "requirement_lines", lambda *_: [])
    monkeypatch.setattr(recipe_pins, "place", lambda *_: None)
    services = SimpleNamespace(report=print)
    request = SimpleNamespace(
        configs=configs, root=tmp_path, services=services, target=SimpleNamespace(package="own")
    )
    troubles: list[str] = []
    needs = list(recipe_pins._of_recipe(tmp_path, cast(Any, request), troubles))
    assert troubles == [f"{name} is wrong" for name in broken]
    assert {(need.config.name, need.name) for need in needs} == {
        (name, "x") for name in "abc" if name not in broken
    }


@pytest.mark.parametrize(
    ("soname", "wheel"),
    [("libcuda.so.1", False), ("libnvidia-ml.so.1", False), ("libcudart.so.13", True), ("libm.so.6", False)],
)
def test_libraries_of_the_driver_are_in_no_wheel(soname: str, wheel: bool) -> None:
    assert nvidia._is_in_a_wheel(soname) is wheel


def test_a_folder_of_packages_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, _: str) -> None:
        raise PreflightError(str(folder))

    monkeypatch.setattr(user_environment, "writable", refuse)
    settings = SimpleNamespace(is_on=lambda _: False)
    environment = SimpleNamespace(
        pip_settings=lambda: settings,
        managed=False,
        prefix=tmp_path,
        base_prefix=Path("/"),
        site=tmp_path / "site",
    )
    with pytest.raises(PreflightError, match=r"/site$"):
        user_environment.UserEnvironment.check_writable(cast(Any, environment))


def test_a_task_that_is_to_end_ends_at_its_next_step() -> None:
    stop = threading.Event()
    task = cast(Any, SimpleNamespace(_stop=stop, name="a"))
    attempt.Attempt.halt(task)
    stop.set()
    with pytest.raises(graph.Stopped):
        attempt.Attempt.halt(task)


@pytest.mark.parametrize("texts", [("x >2,<1",), ("x", "x >2,<1"), ("x >2,<1", "x")])
def test_a_requirement_that_no_version_satisfies_is_refused(texts: Sequence[str]) -> None:
    with pytest.raises(ProviderError, match="no version satisfies"):
        placeholder_packages.examples([MatchSpec(text) for text in texts], "x", "0")


@pytest.mark.parametrize("end", ["?a=b", "#a", "?a=b#c"])
def test_a_channel_s_address_has_neither_query_nor_fragment(end: str) -> None:
    with pytest.raises(UsageError, match=r"no \? and no #"):
        channel_logins._login_of(f"https://host/channel{end}")
    assert channel_logins._login_of("https://host/channel").address == "https://host/channel"


@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize("bundle", [None, Path("/bundle")])
@pytest.mark.parametrize("folder", ["", "/folder"])
def test_programs_use_the_system_s_certificates_if_it_has_some(
    platform: str, bundle: Path | None, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(certificates, "system_bundle", lambda _: bundle)
    environ = {"SSL_CERT_FILE": "/file", "SSL_CERT_DIR": folder}
    certificates.share_with_programs(environ)
    assert (environ.get("UV_SYSTEM_CERTS") == "1") == (
        platform != "linux" or bundle is not None or bool(folder)
    )
    assert (environ["GIT_SSL_CAINFO"], environ.get("GIT_SSL_CAPATH", "")) == ("/file", folder)


def test_all_licence_texts_that_a_wheel_lacks_are_added_once(tmp_path: Path) -> None:
    metadata = write(tmp_path / "tree/a-1.dist-info/LICENSE", "own").parent
    texts = {}
    for name, text in {"a": "own", "b/c": "mit", "d": "bsd", "e": "mit"}.items():
        texts[name] = write(tmp_path / "texts" / name, text)
    wheel_tree.add_licences(tmp_path / "tree", texts)
    added = {
        path.relative_to(metadata).as_posix(): path.read_text()
        for path in metadata.rglob("*")
        if path.is_file()
    }
    assert added == {"LICENSE": "own", "licenses/b/c": "mit", "licenses/d": "bsd"}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("provider", ProviderName)
def test_only_own_scripts_outside_debian_share_a_jobserver(own: bool, provider: ProviderName) -> None:
    options = SimpleNamespace(own=own, config=SimpleNamespace(provider=provider))
    is_shared = own and provider is not ProviderName.DEBIAN
    assert running._knows_no_jobserver(cast(Any, options)) is not is_shared


@pytest.mark.parametrize("rejected", [(), ("a",), ("c",), ("a", "b", "c")], ids=str)
def test_all_rejected_packages_and_no_others_are_removed(rejected: Sequence[str], tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / "out/linux-64" / f"{name}-1-0.conda", "x")
    shelf = Shelf(tmp_path, cast(Any, None))
    shelf._rejected.update(f"{name}-1-0.conda" for name in rejected)
    shelf.drop_rejected()
    left = {path.name[0] for path in (tmp_path / "out/linux-64").iterdir()}
    assert left == {*"abc"} - {*rejected}


@pytest.mark.parametrize(
    ("error", "runs"),
    [
        (psutil.NoSuchProcess(1), False),
        (psutil.ZombieProcess(1), False),
        (psutil.AccessDenied(1), True),
        (ValueError(), False),
        (OverflowError(), False),
    ],
    ids=repr,
)
def test_a_process_that_cannot_be_inspected_runs_only_if_it_is_another_user_s(
    error: Exception, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(_: int) -> None:
        raise error

    monkeypatch.setattr(machine.psutil, "Process", ask)  # type: ignore[attr-defined]
    assert machine.is_running(1, 0.0) is runs


@pytest.mark.parametrize("existed", [True, False])
def test_a_published_package_has_all_facts_of_its_record(existed: bool, tmp_path: Path) -> None:
    record = SimpleNamespace(size=3, sha256="4", seconds=5.0, path="linux-64/a.conda", is_tested=True)
    row: Any = summary._published_row(cast(Any, "a"), cast(Any, record), tmp_path, existed=existed)
    status = summary.ResultStatus.SKIPPED if existed else summary.ResultStatus.BUILT
    assert (row.package, row.status, row.size, row.sha256) == ("a", status, 3, "4")
    assert (row.path, row.seconds, row.tested) == (
        f"{tmp_path}/linux-64/a.conda",
        0.0 if existed else 5.0,
        True,
    )


@pytest.mark.parametrize("compiled", [(), (0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_one_extension_that_is_compiled_sets_the_memory_of_a_compile(compiled: Sequence[int]) -> None:
    tasks = []
    for number in range(3):
        tasks.append(SimpleNamespace(method=Method.COMPILE if number in compiled else Method.NOTHING))
    needs = estimate._memory_needs(cast(Any, SimpleNamespace(has_cuda=True)), None, cast(Any, tasks))
    assert needs.ordinary == (bytes_per_compile(cuda=True) if compiled else 0)


@pytest.mark.parametrize("pythons", [(), ("3.12",), ("3.12", "3.13", "3.14")], ids=len)
@pytest.mark.parametrize("untested", ["", "asked for"])
def test_the_tests_of_all_pythons_take_their_time(
    pythons: Sequence[str], untested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = [SimpleNamespace(python=python) for python in pythons]
    monkeypatch.setattr(estimate.upstream_tests, "tests_of", lambda _: tests)  # type: ignore[attr-defined]
    progress = SimpleNamespace(plan=SimpleNamespace(untested=untested, base_python="3.13"), missing=())
    figures = SimpleNamespace(tests_hours=2.0, one_python_tests_hours=5.0)
    hours = 0.0 if untested else 2.0 * len(pythons) + 5.0 * ("3.13" in pythons)
    assert estimate._tests_hours(cast(Any, progress), cast(Any, figures)) == hours


@pytest.mark.parametrize(
    ("required", "known"),
    [
        (("nvidia-cublas", "numpy"), False),
        (("numpy", "nvidia-cublas"), False),
        (("numpy",), True),
        ((), True),
    ],
)
def test_a_package_that_requires_one_of_nvidia_s_may_need_a_gpu(required: Sequence[str], known: bool) -> None:
    lists = [
        SimpleNamespace(owner="own", required_names=required),
        SimpleNamespace(owner="b", required_names=()),
    ]
    found = features.find_unknown(cast(Any, SimpleNamespace(lists=lists)), ["code"])
    assert found == (("code",) if known else ("code", "own"))


@pytest.mark.parametrize(
    "name", ["torch", "libtorch", "cupy-cuda12", "vllm", "jaxlib", "torchvision", "tf-nightly"]
)
def test_needs_of_packages_of_each_feature_are_known(name: str) -> None:
    assert features.is_known(name)
    assert not features.is_known(f"my-{name}")


def test_a_worker_of_a_task_that_is_to_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[str] = []

    def run_worker(*_: object, on_tick: Callable[[], None], **__: object) -> None:
        on_tick()
        ticks.append("went on")
        task._stop.set()
        on_tick()

    monkeypatch.setattr(attempt, "remove_programs", lambda _: None)
    monkeypatch.setattr(attempt, "run_worker", run_worker)
    task = object.__new__(attempt.Attempt)
    watch = SimpleNamespace(tick=lambda: ticks.append("tick"))
    vars(task).update(
        state=tmp_path,
        name="a",
        _stop=threading.Event(),
        _compiling=False,
        _memory=watch,
        _steps=lambda _: [],
        _log=print,
    )
    with pytest.raises(graph.Stopped):
        task.follow(cast(Any, None), cast(Any, None))
    assert ticks == ["tick", "went on", "tick"]


@pytest.mark.parametrize("others", [(), ("9.0",), ("8.0", "9.0")], ids=str)
def test_an_audited_list_of_architectures_names_its_platform_if_another_has_its_own(
    others: Sequence[str], tmp_path: Path
) -> None:
    """Of configs of two versions of CUDA, and of none."""
    write(tmp_path / MATRIX_FILE, "torch_cuda_arch_list:\n  - 8.0\n")
    configs = []
    for platform, lists in {"linux-64": ("8.0",), "linux-aarch64": others}.items():
        for cuda in ("12.9", "13.0"):
            for archs in lists:
                variant = {"torch_cuda_arch_list": (archs,)}
                configs.append(
                    SimpleNamespace(
                        name=f"{platform} {cuda} {archs}",
                        platform=platform,
                        cuda_version=cuda,
                        variant=variant,
                    )
                )
    configs.append(SimpleNamespace(name="cpu", platform="linux-64", cuda_version=None, variant={}))
    target = SimpleNamespace(package="pytorch")
    request = SimpleNamespace(foreign=False, target=target, root=tmp_path, configs=configs)
    facts = recipe_pins.read_archs(cast(Any, request)).facts
    found = {(fact.name, *cast(Any, fact).archs): fact.holds for fact in facts}
    assert {key[0] for key in found} == {"CUDA 12.9", "CUDA 13.0"}
    assert len(found) == 2 * len({"8.0", *others})
    for (_, archs), holds in found.items():
        having = [one for one in configs if one.variant.get("torch_cuda_arch_list") == (archs,)]
        having = [one for one in having if (one.cuda_version,) == holds.cuda]
        assert holds.configs == tuple(one.name for one in having)
        is_only = not others or {one.platform for one in having} == {"linux-64", "linux-aarch64"}
        assert holds.platforms == (() if is_only else tuple(sorted({one.platform for one in having})))


@pytest.mark.parametrize("named", ["other/.netrc", "", None], ids=str)
def test_a_login_comes_from_the_netrc_file_that_is_named_or_of_the_user(
    named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for folder in ("home", "other"):
        write(tmp_path / folder / ".netrc", f"machine a login {folder} password p\n").chmod(0o600)
    environ = {}
    if named is not None:
        environ["NETRC"] = str(tmp_path / named) if named else ""
    user = "other" if named else "home"
    assert channel_logins._find_in_netrc("a", environ) == {"BasicHTTP": {"username": user, "password": "p"}}
    assert channel_logins._find_in_netrc("b", environ) is None


@pytest.mark.parametrize("place", ["missing", "missing/folder", "file/below"])
def test_a_folder_without_runs_has_no_record(place: str, tmp_path: Path) -> None:
    write(tmp_path / "file", "x")
    assert record.read(tmp_path / place) is None


def test_each_selector_of_the_matrix_means_the_platforms_that_all_its_words_mean() -> None:
    of_words = {
        "linux": {"linux-64", "linux-aarch64"},
        "osx": {"osx-64", "osx-arm64"},
        "x86_64": {"linux-64", "osx-64"},
        "aarch64": {"linux-aarch64"},
        "arm64": {"osx-arm64"},
    }
    for selector, platforms in matrix._SELECTORS.items():
        assert platforms == set.intersection(*(of_words[word] for word in selector.split(" and "))), selector
    assert {*of_words, "linux and x86_64"} - {*matrix._SELECTORS} == {"aarch64", "arm64"}


@pytest.mark.parametrize(
    ("name", "version", "fits"),
    [("a", "1.0", True), ("a", "2.0", False), ("b", "1.0", False), ("", "", False)],
)
def test_metadata_of_another_wheel_or_version_is_refused(name: str, version: str, fits: bool) -> None:
    file = cast(Any, linked("https://host/a-1-py3-none-any.whl", {}))
    content = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: c\nRequires-Python: >=3.10\n"
    with nullcontext() if fits else pytest.raises(AuditError, match="not the metadata of a 1"):
        assert wheel_metadata._required(content.encode(), file) == ["python >=3.10", "c"]


@pytest.mark.parametrize(
    ("kind", "message", "codes"),
    [
        (OutcomeKind.BUILD, "Script failed with status 137", [3, 9, 137]),
        (
            OutcomeKind.TEST,
            "x: PyRattlerBuildError: failed to run test: IO Error: Script failed with status 139",
            [3, 9, 139],
        ),
        (OutcomeKind.TEST, "Script failed with status 137", [3, 9]),
        (OutcomeKind.BUILD, "another error", [3, 9]),
    ],
)
@pytest.mark.parametrize("step", [9, None])
def test_exit_codes_of_worker_step_and_script_are_facts_about_a_failure(
    kind: OutcomeKind, message: str, codes: list[int], step: int | None
) -> None:
    outcome = SimpleNamespace(returncode=3, kind=kind, message=message)
    failure = SimpleNamespace(outcome=outcome, _step=SimpleNamespace(exit_code=step))
    assert Failure._find_exit_codes(cast(Any, failure)) == [3, step or 0, *codes[2:]]


@pytest.mark.parametrize(
    ("owner", "content", "is_found"),
    [
        ("numba", b"load('libnvvm.so.4')", True),
        ("numba", b"libnvvm", False),
        ("numba", b"libcufft.so", False),
        (users._CATALOGUE, b"libnvvm.so", False),
        ("nvidia-cuda-nvcc", b"libnvvm.so", False),
    ],
)
def test_a_library_is_used_if_a_file_outside_of_nvidia_s_packages_names_it(
    owner: str, content: bytes, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [SimpleNamespace(owner="a", content=b"x"), SimpleNamespace(owner=owner, content=content)]
    monkeypatch.setattr(users, "_read_python", lambda _: files)
    assert users._find_in_python(cast(Any, None), ["libnvrtc", "libnvvm"]) == (
        {"libnvvm"} if is_found else set()
    )


@pytest.mark.parametrize("place", range(3))
def test_each_package_that_requires_a_compiler_is_a_user(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "_find_importers", lambda *_: {})
    lists = [SimpleNamespace(owner=name, required_names=("numpy",)) for name in ("a", "b", "c")]
    lists[place].required_names = ("numpy", "nvidia-cuda-nvcc", "z")
    contents = SimpleNamespace(lists=lists, owners={})
    assert users.find_compiler_users(cast(Any, contents)) == {lists[place].owner: True}


def test_a_backup_has_the_modes_of_the_folders_of_all_touched_files(tmp_path: Path) -> None:
    for name in ("a/b/x", "a/y", "c/z"):
        write(tmp_path / name, "x")
    (tmp_path / "c").chmod(0o750)
    touched = [SimpleNamespace(path=name) for name in ("a/b/x", "a/y", "c/z")]
    folders = backup.Backup._list_folders(cast(Any, SimpleNamespace(_root=tmp_path)), cast(Any, touched))
    assert [folder.path for folder in folders] == [".", "a", "a/b", "c"]
    assert folders[-1].mode == 0o750


@pytest.mark.parametrize(
    ("item", "spec"),
    [
        ("x >=1", "x >=1"),
        ({"pin_subpackage": {"name": "a", "exact": True}}, "a ==1 h_0"),
        ({"pin_subpackage": {"name": "a", "exact": False}}, "a"),
        ({"pin_subpackage": {"name": "a"}}, "a"),
        ({"pin_subpackage": {"name": "b", "exact": True}}, "b"),
        ({"pin_compatible": {"name": "a", "exact": True}}, "a"),
    ],
)
def test_only_an_exact_pin_on_a_sibling_names_its_build(item: object, spec: str) -> None:
    pins = {"a": SimpleNamespace(version="1", build_string="h_0")}
    assert render._spec(item, pins) == spec


def test_a_clone_is_shared_only_for_one_address_and_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_world.without_settings(monkeypatch)
    monkeypatch.setattr(repositories.Repository, "update", lambda _: None)
    opened = repositories.Repositories(Services(tmp_path))
    asked = [(f"https://github.com/a/{name}", only) for name in "bc" for only in ("", "v1", "v2")]
    clones = [opened.open(address, only) for address, only in asked]
    assert len({id(clone) for clone in clones}) == len(asked)
    assert [opened.open(address, only) for address, only in asked] == clones


@pytest.mark.parametrize(
    ("words", "selected"),
    [
        ((), ["of the provider"]),
        (("a", "b"), ["b", "a"]),
        (("a", "x"), ["of the provider"]),
        (("a*", "b"), ["sorted", "of the provider"]),
        (("b", "a*"), ["sorted", "of the provider"]),
    ],
)
def test_names_in_full_are_not_filtered_and_one_pattern_sorts(
    words: Sequence[str], selected: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "available", lambda _: ["b", "a"])
    monkeypatch.setattr(build, "of_provider", lambda *_: ["of the provider"])
    monkeypatch.setattr(build, "sort_for_sharing", lambda _, names: ["sorted", *names])
    assert build._selectable(Path(), ProviderName.DEBIAN, words) == selected


@pytest.mark.parametrize("needed", [(), ("3.12",), ("3.13",), ("3.12", "3.13")], ids=str)
@pytest.mark.parametrize("silent", [(), ("3.12",), ("3.12", "3.13")], ids=str)
def test_a_needed_python_is_not_left_out_because_no_index_answered(
    needed: Sequence[str], silent: Sequence[str]
) -> None:
    missing = {}
    for python in ("3.12", "3.13"):
        missing[python] = torch_wheels.NoWheel(reason="x", is_known=python not in silent)
    is_unknown = bool({*silent} & ({*needed} or {*silent}))
    with pytest.raises(ProviderError) if is_unknown else nullcontext():
        torch_wheels._check_answered(cast(Any, SimpleNamespace(name="a")), missing, needed)
