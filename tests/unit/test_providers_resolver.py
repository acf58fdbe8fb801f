"""Which wheels fit, asked of an index on this machine: small fakes, named like the real ones."""

from __future__ import annotations

import io
import platform
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from audit_site import Site, serving
from audit_wheels import configured_by_the_test
from wheel_files import make_wheel, simple_index

from groundwork import process
from groundwork.errors import ProviderError
from groundwork.files import link, sha256, verified
from groundwork.machine import machine_platform
from groundwork.network import resolver
from groundwork.network.client import NetworkError, NotFound
from groundwork.network.index import Configured
from groundwork.network.wheel_contents import noted
from megabuild.configs.config import load
from megabuild.providers import catalogue, local_channel, specs
from megabuild.providers.catalogue import NvidiaWheel
from megabuild.providers.command import each
from megabuild.providers.environment import ProviderRequest
from megabuild.providers.local import interpreters
from megabuild.providers.local.compilers import Toolchain
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local_channel import LocalChannel
from megabuild.providers.provider import base_python
from megabuild.providers.pypi import download, lock, nvidia
from megabuild.providers.wheel import torch_wheels as torch
from megabuild.providers.wheel.provider import WheelProvider

PURE = "py3-none-any"
CUDA = ('cuda-toolkit[cudart]==13.0.3; platform_system == "Linux"', "filelock")
CHOSEN = ["app-2.0", "lib-2.0", "quick-7", "tool-1.5"]


def _interpreter(python: str = "3.12") -> Interpreter:
    here = Path("/nowhere")
    return Interpreter(
        executable=Path(sys.executable), version=f"{python}.1", soabi="", prefix=here, stdlib=here, include=here,
        library_folder=here, multiarch="", free_threaded=False,
    )  # fmt: skip


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An index that pip is configured with, empty as yet."""
    configured_by_the_test(monkeypatch)
    with serving({}) as running:
        monkeypatch.setenv("PIP_INDEX_URL", f"{running.url}/simple")
        monkeypatch.setattr(torch, "UPSTREAM", f"{running.url}/whl")
        yield running


def _offer(site: Site, folder: Path, wheels: dict[str, tuple[str, ...]], base: str = "/simple") -> None:
    """Put wheels with requirements on the index, each with 300 kB that nobody needs to see."""
    made = [
        make_wheel(folder, name, {"large.bin": random.Random(0).randbytes(300_000)}, requires=requires)
        for name, requires in wheels.items()
    ]
    site.answers |= simple_index(made, base)


def _resolve(folder: Path, *needs: str, python: str = "3.12") -> list[str]:
    wheels = lock.resolve(needs, _interpreter(python), folder / "locks").wheels
    return [wheel.file_name.rpartition("-py3")[0] for wheel in wheels]


@pytest.fixture
def world(site: Site, tmp_path: Path) -> Site:
    """The index with wheels that need each other."""
    wheels: dict[str, tuple[str, ...]] = {
        f"app-2.0-{PURE}.whl": ("tool[fast]>=1", "old; python_version < '3.0'", "lib<3"),
        f"tool-1.5-{PURE}.whl": ("quick==7; extra == 'fast'", "slow; extra == 'slow'"),
        f"tool-2.0rc1-{PURE}.whl": (),
        f"quick-7-{PURE}.whl": ("lib>=1",),
        **{f"lib-{version}-{PURE}.whl": () for version in ("1.0", "2.0", "3.0")},
    }
    _offer(site, tmp_path / "index", wheels)
    return site


def test_wheels_are_chosen_by_metadata_alone_once(world: Site, tmp_path: Path) -> None:
    resolved = lock.resolve(["app"], _interpreter(), tmp_path / "locks")
    assert _resolve(tmp_path, "app") == CHOSEN
    assert all(wheel.size > 300_000 for wheel in resolved.wheels)
    parts = [part for path, part in world.asked if path.endswith(".whl")]
    assert parts
    assert all(parts)  # nobody asked for a whole one
    content = noted(tmp_path / "locks", resolved.wheels[0].sha256)
    assert content is not None
    assert "large.bin" in content.members
    asked = len(world.asked)
    assert lock.resolve(["app"], _interpreter(), tmp_path / "locks") == resolved
    assert len(world.asked) == asked
    assert "://" not in "".join(path.read_text() for path in tmp_path.glob("locks/*.json"))


def test_several_pythons_are_resolved_at_the_same_time_from_a_folder_too(
    world: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pythons = ["3.10", "3.11", "3.12", "3.13"]
    assert list(each(lambda python: _resolve(tmp_path, "app", python=python), pythons, 4)) == [CHOSEN] * 4
    monkeypatch.setenv("PIP_FIND_LINKS", str(make_wheel(tmp_path / "w", f"six-1.0-{PURE}.whl", {}).parent))
    assert _resolve(tmp_path, "six") == ["six-1.0"]


def test_an_index_with_other_hashes_and_without_ranges_will_do(world: Site, tmp_path: Path) -> None:
    world.ranges = False
    pages = {path: page for path, page in world.answers.items() if isinstance(page, bytes)}
    for path, page in pages.items():
        world.answers[path] = re.sub(rb"#sha256=(\w{32})\w+", rb"#md5=\1", page)
    resolved = lock.resolve(["app"], _interpreter(), tmp_path / "locks")
    assert _resolve(tmp_path, "app") == CHOSEN
    download.download(resolved.wheels, tmp_path, print)
    assert all(sha256(wheel.path(tmp_path)) == wheel.sha256 for wheel in resolved.wheels)


@pytest.mark.parametrize("listed", ["without a hash", "with its hash"])
@pytest.mark.parametrize("later", [True, False], ids=["on the next index", "nowhere else"])
def test_a_listed_wheel_that_is_not_there_comes_from_the_next_index(
    later: bool, listed: str, world: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror lists files that it no longer has."""
    resolved = lock.resolve(["app"], _interpreter(), tmp_path / "locks")
    name = next(wheel.file_name for wheel in resolved.wheels if wheel.name == "lib")
    page = world.answers["/simple/lib/"]
    assert isinstance(page, bytes)
    if listed == "without a hash":
        page = re.sub(rb"#sha256=\w+", b"", page)
    world.answers["/simple/lib/"] = page
    wheel = world.answers.pop(f"/simple/files/{name}")
    if later:
        world.answers["/later/lib/"] = page.replace(b"/simple/", b"/later/")
        world.answers[f"/later/files/{name}"] = wheel
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{world.url}/later")
    expected = (
        nullcontext() if later else pytest.raises(ProviderError, match=rf"^{re.escape(name)}: .*/{name}: ")
    )
    with expected as caught:
        download.download(resolved.wheels, tmp_path, print)
    if caught is not None:
        assert (type(caught.value), "HTTP status 404" in caught.value.message) == (ProviderError, True)
        assert f"rm -r {tmp_path / 'locks'}" in caught.value.remedy
    whole = [wheel.file_name for wheel in resolved.wheels if verified(wheel.path(tmp_path), wheel.sha256)]
    assert (name in whole) == later


def test_a_wheel_that_has_left_its_folder_may_come_from_another_index(tmp_path: Path) -> None:
    file = cast(Any, SimpleNamespace(url=(tmp_path / "gone.whl").as_uri()))
    with pytest.raises(NetworkError, match=rf"^{tmp_path}/gone\.whl: missing, or not readable$"):
        download._save(file, cast(Any, None), tmp_path / "target")


def test_a_listed_wheel_that_is_not_there_is_named_while_it_is_locked(world: Site, tmp_path: Path) -> None:
    """Its metadata are there, with which uv has chosen it."""
    (wheel,) = (path for path in world.answers if path.startswith("/simple/files/quick-7"))
    content = world.answers[wheel]
    page = world.answers["/simple/quick/"]
    assert isinstance(page, bytes)
    assert isinstance(content, bytes)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        world.answers[f"{wheel}.metadata"] = archive.read("quick-7.dist-info/METADATA")
    world.answers["/simple/quick/"] = page.replace(b'" >', b'" data-core-metadata="true" >')
    del world.answers[wheel]
    with pytest.raises(
        NotFound, match=r"^quick-7-.*whl: listed by pip's index, but .*/quick-7-.*HTTP status 404"
    ):
        lock.resolve(["quick"], _interpreter(), tmp_path / "locks")


def test_a_hash_that_the_index_has_corrected_is_named(world: Site, tmp_path: Path) -> None:
    resolved = lock.resolve(["lib<2"], _interpreter(), tmp_path / "locks")
    path = next(path for path in world.answers if path.startswith("/simple/lib"))
    page = world.answers[path]
    assert isinstance(page, bytes)
    world.answers[path] = re.sub(rb"#sha256=\w{10}", b"#sha256=0123456789", page)
    with pytest.raises(ProviderError, match=r"^lib-.*hash") as refused:
        download.download(resolved.wheels, tmp_path, print)
    assert f"rm -r {tmp_path / 'locks'}" in refused.value.remedy


def test_wheels_for_other_pythons_and_withdrawn_ones_are_passed_over(site: Site, tmp_path: Path) -> None:
    _offer(site, tmp_path, {"lib-1.0-cp312-none-any.whl": (), "lib-2.0-cp313-none-any.whl": ()})
    newer = make_wheel(tmp_path, f"lib-4.0-{PURE}.whl", {})
    for more in ('data-requires-python="&gt;=3.14"', "data-yanked"):
        answers = simple_index([newer], more=more)
        site.answers |= answers | {"/simple/lib/": site.answers["/simple/lib/"] + answers["/simple/lib/"]}  # type: ignore[operator]
    (wheel,) = lock.resolve(["lib"], _interpreter(), tmp_path / "locks").wheels
    assert wheel.version == "1.0"


MANY = (
    "cp312-cp312-manylinux_2_17_x86_64.manylinux_2_17_aarch64",
    "cp312-abi3-manylinux_2_17_x86_64.manylinux_2_17_aarch64",
    "cp311-cp311t-manylinux_2_17_x86_64.manylinux_2_17_aarch64",
    "cp312-cp312-manylinux_2_17_riscv64",
    "py3-none-any",
)


@pytest.mark.parametrize(("python", "tag"), [("3.12", MANY[0]), ("3.13", MANY[1]), ("3.11", MANY[4])])
def test_of_several_wheels_of_a_version_the_most_specific_is_taken(
    python: str, tag: str, site: Site, tmp_path: Path
) -> None:
    _offer(site, tmp_path / "index", {f"many-1.0-{tag}.whl": () for tag in MANY})
    (wheel,) = lock.resolve(["many"], _interpreter(python), tmp_path / "locks").wheels
    assert wheel.file_name == f"many-1.0-{tag}.whl"


def test_a_python_without_the_interpreter_lock_is_asked_for_its_own_wheels(
    site: Site, tmp_path: Path
) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    own = f"own-1.0-cp{version.replace('.', '')}-cp{version.replace('.', '')}t-{sysconfig.get_platform()}.whl"
    _offer(site, tmp_path / "own", {own.replace("-x86", "_x86").replace("linux-", "linux_"): ()})
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable}\nimport sys, sysconfig\nsysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\n"
        "exec(sys.argv[sys.argv.index('-c') + 1])\n"
    )
    program.chmod(0o755)
    free = replace(
        _interpreter(version), executable=program, version=platform.python_version(), free_threaded=True
    )
    (wheel,) = lock.resolve(["own"], free, tmp_path / "locks").wheels
    assert f"cp{version.replace('.', '')}t" in wheel.file_name
    with pytest.raises(ProviderError, match="no wheels"):
        lock.resolve(["own"], _interpreter(version), tmp_path / "locks")


def test_an_index_that_does_not_answer_is_left_out(
    world: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(resolver._SET, "UV_HTTP_RETRIES", "0")
    world.answers["/broken/lib/"] = lambda handler: handler.reply(500, b"")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{world.url}/broken http://127.0.0.1:9/closed")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{world.url}/links {tmp_path}/nowhere")
    assert _resolve(tmp_path, "lib<3") == ["lib-2.0"]
    with pytest.raises(ProviderError) as raised:
        _resolve(tmp_path, "lib>=9")
    assert "error:" not in raised.value.message
    assert "only lib<=3.0 is available and you require lib>=9" in raised.value.message
    for silent in (f"{world.url}/broken", "127.0.0.1:9", f"{world.url}/links:"):
        assert silent in raised.value.message
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:s3cret-word@127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))  # a folder that has nothing of it
    with pytest.raises(ProviderError, match=r"127\.0\.0\.1:9: ") as raised:
        _resolve(tmp_path, "lib")
    assert "s3cret" not in str(raised.value)


def test_credentials_are_used_and_nobody_sees_them(
    world: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    run = subprocess.run

    def noticed(words: Sequence[str], **more: Any) -> object:
        started.extend(map(str, words))
        return run(words, **more)

    monkeypatch.setattr(subprocess, "run", noticed)
    monkeypatch.setenv("PIP_INDEX_URL", world.url.replace("://", "://user:s3cret-word@") + "/simple")
    assert _resolve(tmp_path, "app") == CHOSEN
    assert {headers.get("authorization", "")[:5] for headers in world.headers} == {"Basic"}
    with pytest.raises(ProviderError) as raised:
        _resolve(tmp_path, "lib>=9")
    kept = "".join(
        path.read_text(errors="replace") for path in tmp_path.rglob("locks/**/*") if path.is_file()
    )
    assert "compile" in started
    assert "s3cret" not in f"{started} {raised.value.message} {kept}"


def test_uvs_own_settings_do_not_change_what_is_chosen(
    world: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv.toml").write_text('resolution = "lowest"\nno-index = true\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    monkeypatch.setenv("UV_RESOLUTION", "lowest")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert _resolve(tmp_path, "lib<3") == ["lib-2.0"]


def test_a_plan_of_nvidias_packages_needs_no_wheel(site: Site, tmp_path: Path) -> None:
    name = f"nvidia_cuda_runtime-13.0.96-{PURE}.whl"
    members = {"nvidia/cu13/lib/libcudart.so.13": b"1", "nvidia/cu13/include/cuda.h": b"2"}
    site.answers |= simple_index([make_wheel(tmp_path / "index", name, members)])
    resolved = lock.resolve(["nvidia-cuda-runtime"], _interpreter(), tmp_path / "locks")
    (wheel,) = resolved.wheels
    table = {"nvidia-cuda-runtime": NvidiaWheel(run="cuda-cudart", dev="cuda-cudart-dev")}

    def keys() -> list[str]:
        made = nvidia.packages(resolved, tmp_path, table, "13.0", "linux-64", tmp_path / "locks")
        return [package.key for package in made]

    planned = keys()
    link(tmp_path / "index" / name, wheel.path(tmp_path))
    assert keys() == planned


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


def test_wheels_are_resolved_with_all_that_is_asked_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A companion, made from the same wheel, asks for no version; further indexes are asked, too."""
    resolved: list[tuple[list[str], Sequence[str], Path]] = []

    def resolve(projects: list[str], _: object, *, folder: Path, more: Sequence[str]) -> lock.Lock:
        resolved.append((projects, more, folder))
        return lock.Lock(python="3.12", environment={}, wheels=())

    def record_more(*_: object, more: Sequence[str]) -> None:
        resolved.append(([], more, tmp_path))

    monkeypatch.setattr(lock, "resolve", resolve)
    monkeypatch.setattr(local_channel.download, "download", record_more)  # type: ignore[attr-defined]
    local_channel._describe_wheels(
        cast(Any, SimpleNamespace(cache=tmp_path, report=print)),
        cast(Any, SimpleNamespace(interpreters={"3.12": _interpreter()}, platform="linux-64")),
        specs.parse(["pybind11 >=3", "pybind11-global"]), catalogue.load(), ("index",),
    )  # fmt: skip
    locks = tmp_path / "wheels" / "locks"
    assert resolved == [(["pybind11>=3"], ("index",), locks), ([], ("index",), tmp_path)]


def test_byte_code_is_made_by_the_python_that_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = LocalPackage(
        name="six", version="1", platform="linux-aarch64", inputs={}, fill=print, summary="", python="3.12"
    )
    wheels = SimpleNamespace(wheels=(), packages=[made])
    monkeypatch.setattr(local_channel, "_describe_wheels", lambda *_: wheels)
    monkeypatch.setattr(local_channel.python, "packages", lambda *_: [])  # type: ignore[attr-defined]
    target, running = (replace(_interpreter(), executable=tmp_path / name) for name in ("target", "running"))
    side = SimpleNamespace(
        platform="linux-aarch64",
        needs=["six"],
        interpreters={"3.12": target},
        running={"3.12": running},
        own=(),
    )
    described = local_channel._describe(
        cast(Any, SimpleNamespace(rehearsal=False)), cast(Any, side), more=(), only=(), any_wheel=False
    )
    assert [package.interpreter for package in described.packages] == [running.executable]


def test_a_lock_is_kept_by_each_input_and_resolved_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    def places(more: Sequence[str], index: str | None) -> tuple[object, ...]:
        return (*more, index)

    def resolve(requirements: list[str], python: Interpreter, where: object, **options: Any) -> list[object]:
        asked.append((requirements, python.version, where, options["dependencies"]))
        return []

    monkeypatch.setattr(lock.pip_indexes, "places", places)  # type: ignore[attr-defined]
    monkeypatch.setattr(lock.resolver, "resolve", resolve)  # type: ignore[attr-defined]
    monkeypatch.setattr(lock, "Contents", lambda *_: None)
    usual = {"requirements": ["a"], "interpreter": _interpreter(), "folder": tmp_path}
    changes: list[dict[str, Any]] = [
        {}, {"requirements": ["a", "b"]}, {"interpreter": _interpreter("3.13")}, {"dependencies": False},
        {"more": ("one",)}, {"more": ("one", "two")}, {"index": "one"},
    ]  # fmt: skip
    for change in changes * 2:
        kept = lock.resolve(**{**usual, **change})
        assert kept.python == {**usual, **change}["interpreter"].python
    assert asked == [
        (["a"], "3.12.1", (None,), True),
        (["a", "b"], "3.12.1", (None,), True),
        (["a"], "3.13.1", (None,), True),
        (["a"], "3.12.1", (None,), False),
        (["a"], "3.12.1", ("one", None), True),
        (["a"], "3.12.1", ("one", "two", None), True),
        (["a"], "3.12.1", ("one",), True),
    ]


def test_a_lock_has_the_marker_values_of_the_machine_that_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock.resolver, "resolve", lambda *_, **__: [])  # type: ignore[attr-defined]
    foreign = replace(_interpreter(), machine="riscv64")
    for _ in range(2):  # resolved, then as it was kept
        assert lock.resolve(["a"], foreign, tmp_path).environment["platform_machine"] == "riscv64"


# ------------------------------------------------------------------------------------------- PyTorch's own index


def _torch(version: str, python: str = "cp312") -> str:
    return f"torch-{version}-{python}-{python}-linux_x86_64.whl"


def _versions(
    repository: Path, folder: Path, name: str, **more: str
) -> tuple[dict[str, str], torch.TorchWheels]:
    config = replace(load(repository, name), **more)  # type: ignore[arg-type]
    pythons = {python: _interpreter(python) for python in ("3.11", "3.12")}
    wheels = torch.find(config, pythons, folder / "wheels")
    return {python: locked.wheels[0].version for python, locked in wheels.locks.items()}, wheels


@pytest.fixture
def pypi(site: Site, tmp_path: Path) -> Site:
    """CUDA wheels for two Pythons, and a CPU wheel for one of them."""
    cuda = {_torch("2.13.0", python): CUDA for python in ("cp311", "cp312")}
    _offer(site, tmp_path / "pip", {**cuda, _torch("2.13.0+cpu", "cp311"): ("filelock",)})
    return site


def test_pythons_without_a_fitting_wheel_are_left_out_with_the_reason(
    pypi: Site, tmp_path: Path, repository: Path
) -> None:
    versions, wheels = _versions(repository, tmp_path, "linux_64_cpu_wheel")
    assert versions == {"3.11": "2.13.0+cpu"}
    assert all(fact in wheels.left_out["3.12"] for fact in ("torch 2.13.0", "CUDA 13.0"))
    assert base_python(load(repository, "linux_64_cpu_wheel"), wheels.locks) == "3.11"
    assert f"{pypi.url}/whl/cpu: " in wheels.notes[0]
    pypi.asked.clear()
    versions, _ = _versions(repository, tmp_path, "linux_64_cuda130_wheel")
    assert versions == {"3.11": "2.13.0", "3.12": "2.13.0"}
    pythons = {python: _interpreter(python) for python in ("3.11", "3.12")}
    torch.find(load(repository, "linux_64_cpu_wheel"), pythons, tmp_path / "wheels", ["3.11"])
    assert not any("/whl/" in path for path, _ in pypi.asked)  # pip's indexes had all that was needed


def test_a_fault_of_an_index_drops_no_python(
    pypi: Site, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = lock.resolve

    def resolve(requirements: Sequence[str], python: Interpreter, *words: Any, **more: Any) -> lock.Lock:
        if python.python == "3.12":
            raise ProviderError("wheels for Python 3.12 cannot be resolved: HTTP status 503")
        return asked(requirements, python, *words, **more)

    monkeypatch.setattr(lock, "resolve", resolve)
    with pytest.raises(ProviderError, match=r"wheel for Python 3\.12 cannot be looked up: .*HTTP status 503"):
        _versions(repository, tmp_path, "linux_64_cuda130_wheel")
    # another Python was asked for
    pythons = {python: _interpreter(python) for python in ("3.11", "3.12")}
    found = torch.find(load(repository, "linux_64_cuda130_wheel"), pythons, tmp_path / "wheels", ["3.11"])
    assert [*found.locks] == ["3.11"]


@pytest.mark.skipif(machine_platform() != "linux-64", reason="the config is for linux-64")
@pytest.mark.parametrize("surveyed", [True, False])
def test_a_survey_downloads_no_wheel_of_pytorch(
    surveyed: bool, pypi: Site, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nvidia(_: object, needs: Sequence[str], python: Interpreter, **more: object) -> list[LocalPackage]:
        asked.append((needs[0], python.version, needs[-1].startswith("cuda-toolkit[nvcc,")))
        return []

    asked: list[tuple[str, str, bool]] = []
    toolchain = Toolchain(cc="", cxx="", version="14.2.0", glibc="2.36", programs={}, libraries={}, digest="")
    channel = LocalChannel(path=tmp_path, packages=(), toolchain=toolchain, stand_ins=(), by_name=())
    pythons = {python: _interpreter(python) for python in ("3.11", "3.12")}
    monkeypatch.setattr(interpreters, "some_of", lambda *_: pythons)
    monkeypatch.setattr(WheelProvider, "nvidia", nvidia)
    monkeypatch.setattr(local_channel, "make", lambda *_, **__: channel)
    config = load(repository, "linux_64_cuda130_wheel")
    request = ProviderRequest(config=config, planned=[], cache=tmp_path / "c", report=lambda _: None)
    provider = WheelProvider(request)
    environment = provider.survey() if surveyed else provider.provide()
    assert (environment.pythons, bool(environment.pending)) == (("3.11", "3.12"), surveyed)
    assert asked == [("cuda-toolkit[cudart]==13.0.3", f"{base_python(config, pythons)}.1", True)]
    downloaded = {path.name for path in tmp_path.glob("c/**/torch-*.whl")}
    assert downloaded == (set() if surveyed else set(environment.staging_source or ()))


def test_a_rehearsal_downloads_no_large_wheel_that_it_does_not_import(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's has 200 MB for each Python, and SymPy 1,600 modules."""

    def resolve(projects: Sequence[str], python: Interpreter, **_: object) -> lock.Lock:
        asked.append(tuple(projects))
        return lock.Lock(python=python.python, environment={}, wheels=())

    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(lock, "resolve", resolve)
    toolchain = Toolchain(cc="", cxx="", version="14.2.0", glibc="2.36", programs={}, libraries={}, digest="")
    config = load(repository, "linux_64_cuda130")
    made: list[LocalChannel] = []
    for rehearsal in (False, True):
        request = ProviderRequest(
            config=config, planned=(), cache=tmp_path, report=lambda _: None, rehearsal=rehearsal
        )
        needs, pythons = ["triton ==3.7.1", "six", "sympy >=1.13.3"], {"3.12": _interpreter("3.12")}
        made.append(
            local_channel.make(request, needs, pythons, survey=True, toolchain=toolchain, only=("3.11",))
        )
    assert asked == [("six", "sympy>=1.13.3", "triton==3.7.1"), ("six",)]
    assert [channel.stand_ins for channel in made] == [(), ("sympy", "triton")]
    names = {str(package.id) for package in made[1].packages}
    assert {"sympy 1.13.3 rehearsal", "triton 3.7.1 rehearsal"} <= names


def test_a_cpu_package_is_never_made_from_a_cuda_wheel(site: Site, tmp_path: Path, repository: Path) -> None:
    _offer(site, tmp_path / "pip", {_torch("2.13.0"): CUDA})
    with pytest.raises(ProviderError, match=r"Python 3\.12: .*2\.13\.0.* CUDA 13\.0") as raised:
        _versions(repository, tmp_path, "linux_64_cpu_wheel")
    assert "PyPI has no CPU wheels of PyTorch for x86-64" in raised.value.message
    assert "put torch-2.13.0+cpu-cp311-*.whl into a folder" in raised.value.remedy
    assert "set PIP_FIND_LINKS to the folder" in raised.value.remedy
    assert "set PIP_EXTRA_INDEX_URL to a mirror of " in raised.value.remedy
    assert "docs/firewall.md" in raised.value.remedy


def test_a_missing_wheel_of_a_free_threaded_python_is_told_by_its_file_s_name(repository: Path) -> None:
    """Its tags are ``cp314-cp314t``."""
    missing = {"3.14t": torch.NoWheel(reason="none", is_known=True)}
    error = torch._none_fits(load(repository, "linux_64_cpu_wheel"), missing, ())
    assert "put torch-2.13.0+cpu-cp314-*.whl into a folder" in error.remedy


@pytest.mark.parametrize("config", ["linux_64_cuda132_wheel", "linux_aarch64_cpu_wheel"])
def test_wheels_that_pypi_has_are_not_told_to_be_missing_there(
    site: Site, tmp_path: Path, repository: Path, config: str
) -> None:
    _offer(site, tmp_path / "pip", {_torch("2.1.0"): CUDA})
    with pytest.raises(ProviderError, match="no wheel of PyTorch fits") as raised:
        _versions(repository, tmp_path, config)
    assert "PyPI has no" not in raised.value.message
    assert "PIP_FIND_LINKS" in raised.value.remedy


def test_a_folder_of_wheels_that_is_missing_is_named(
    site: Site, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _offer(site, tmp_path / "pip", {_torch("2.13.0"): CUDA})
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path}/typo")
    with pytest.raises(ProviderError, match="no wheel of PyTorch fits") as raised:
        _versions(repository, tmp_path, "linux_64_cpu_wheel")
    assert f"{tmp_path}/typo: no such folder" in raised.value.message
    assert raised.value.remedy.startswith("check the network and pip's configuration")


@pytest.mark.usefixtures("site")
def test_a_silent_index_is_not_told_to_have_no_wheel(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ProviderError, match="no wheel of PyTorch fits") as raised:
        _versions(repository, tmp_path, "linux_64_cpu_wheel")
    assert "PyPI has no" not in raised.value.message
    assert raised.value.remedy.startswith("check the network")


def test_upstreams_index_has_what_pips_lack(pypi: Site, tmp_path: Path, repository: Path) -> None:
    _offer(pypi, tmp_path / "upstream", {_torch("2.13.0+cpu"): ("filelock",)}, "/whl/cpu")
    versions, wheels = _versions(repository, tmp_path, "linux_64_cpu_wheel")
    assert versions == {"3.11": "2.13.0+cpu", "3.12": "2.13.0+cpu"}
    assert wheels.more == (f"{pypi.url}/whl/cpu",)
    assert not wheels.left_out
    version = "2.16.0.dev20261120"
    _offer(pypi, tmp_path / "nightly", {_torch(f"{version}+cu130"): CUDA}, "/whl/nightly/cu130")
    versions, _ = _versions(repository, tmp_path, "linux_64_cuda130_wheel", torch_version=version)
    assert versions["3.12"] == f"{version}+cu130"


@pytest.mark.parametrize(
    ("said", "exit_code"),
    [
        ("error: failed to lock `/cache/uv/.lock`: No locks available (os error 37)", 4),
        ('error: Permission denied (os error 13) at path "/cache/uv/.tmp1"', 4),
        ("error: failed to create file: No space left on device (os error 28)", 12),
        ("error: Failed to read metadata\n  cause: Hash mismatch for package metadata at `https://i/l`", 6),
        ("error: Failed to fetch: `https://i/simple/l/`\n  cause: Connection refused (os error 111)", 5),
    ],
)
def test_a_cache_that_cannot_be_used_is_no_fault_of_the_network(said: str, exit_code: int) -> None:
    error = resolver._error(said, "3.12", Path("/cache/uv"))
    assert error.exit_code == exit_code


def test_what_the_catalogue_does_not_list_is_a_wheel_where_an_index_has_one(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cython = "cython-3.1.0-cp312-cp312-manylinux_2_17_x86_64.manylinux_2_17_aarch64.whl"
    wheels = (cython, f"setuptools_scm-9.0-{PURE}.whl", f"msgpack-1.1-{PURE}.whl", f"libfoo-1-{PURE}.whl")
    _offer(site, tmp_path / "index", dict.fromkeys(wheels, ()))
    site.answers["/simple/nccl/"] = b'<a href="/simple/files/nccl-1.tar.gz">nccl-1.tar.gz</a>'
    yanked = f"taken_back-1.0-{PURE}.whl"
    page = f'<a href="/simple/files/{yanked}" data-yanked="broken">{yanked}</a>'
    site.answers["/simple/taken-back/"] = page.encode()
    asked = ["cython", "setuptools_scm", "msgpack-python", "libfoo", "nccl", "cuda-nvcc_linux-64", "absent"]
    asked.append("taken_back")
    table = catalogue.load()
    assert lock.with_wheels(asked, table, [_interpreter()]) == ("cython", "msgpack-python", "setuptools_scm")
    both = [_interpreter(), _interpreter("3.13")]
    assert lock.with_wheels(["cython"], table, both) == (), "a Python without a wheel"
    with monkeypatch.context() as patch:
        patch.setenv("PIP_EXTRA_INDEX_URL", "http://127.0.0.1:9/simple")
        assert lock.with_wheels(["cython"], table, [_interpreter()]) == ("cython",)
        with pytest.raises(ProviderError, match=r"looking for wheels of cython: .*127\.0\.0\.1"):
            lock.with_wheels(["cython"], table, both)  # the silent index may have the other one
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ProviderError, match="cython"):
        lock.with_wheels(["cython"], table, [_interpreter()])


@pytest.mark.parametrize(
    ("code", "printed", "says"),
    [(-9, "", "uv ended with exit code -9"), (2, "error: x\n", "cannot be resolved: x")],
)
def test_a_resolver_that_was_killed_is_an_error_with_words(
    code: int, printed: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess[str]([], code, "", printed)
    monkeypatch.setattr(process, "run", lambda *_, **__: done)
    with pytest.raises(ProviderError, match=says):
        resolver._compile(["uv"], ["a"], resolver.Target(version="3.12.1"), Configured(), None)


def test_a_machine_without_uv_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ProviderError, match=r"^uv is not installed$") as told:
        resolver._command(cast(Any, None), None, dependencies=True)
    assert told.value.remedy == "run: pip install uv"
