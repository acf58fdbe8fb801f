"""Another release of PyTorch, or the user's own source: what is checked and read before anything is compiled."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from stop_at_write import unflushed, watched
from tiny import provider

from groundwork.errors import IntegrityError, MegabuildError, PreflightError, ProviderError, UsageError
from groundwork.files import sha256
from megabuild.configs.config import load
from megabuild.configs.overrides import TARBALLS, Tarball
from megabuild.configs.render import render
from megabuild.plan import planning, solving
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.plan.run_choices import PygMode
from megabuild.plan.torch_version import TorchRelease, read_release, with_torch
from megabuild.providers.wheel import torch_wheels as torch

GITMODULES = "[submodule 'a']\n\tpath = third_party/fmt\n[submodule 'b']\n    path = third_party/ideep\n"


def silent(text: object) -> None:
    """Report nothing."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A release's source."""
    folder = tmp_path / "pytorch-v2.15.2"
    for name in ("third_party/fmt", "third_party/ideep", ".ci/docker"):
        (folder / name).mkdir(parents=True)
        (folder / name / "README").touch()
    (folder / ".gitmodules").write_text(GITMODULES)
    (folder / "version.txt").write_text("2.15.2a0\n")
    (folder / "pyproject.toml").write_text('[project]\nname = "torch"\nrequires-python = ">=3.12"\n')
    (folder / ".ci" / "docker" / "triton_version.txt").write_text("3.9.1\n")
    return folder


@pytest.fixture
def tarball(tree: Path) -> Path:
    path = tree.with_name("pytorch.tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tree, tree.name)
    return path


Ask = Callable[..., Options]


@pytest.fixture
def ask(repository: Path, tmp_path: Path) -> Ask:
    """Options for a release, or for the config's own."""

    def make(
        version: str | None, name: str = "linux_64_cuda130", source: Path | None = None, **more: object
    ) -> Options:
        config = with_torch(load(repository, name), version, source)
        options = Options(config=config, root=repository, output=tmp_path, cache=tmp_path / "cache", pyg=PygMode.NONE,
                          torch=version, torch_source=source)  # fmt: skip
        return replace(options, **more)  # type: ignore[arg-type]

    return make


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Plan with a channel that has everything, staging's environments left out."""

    def make(options: Options, *lacking: str) -> Plan:
        pythons = tuple(python for python in options.config.pythons if python not in lacking)
        made = provider("https://channel.invalid", pythons=pythons, source=Path("/provider"))
        monkeypatch.setattr(planning, "choose_provider", made)
        monkeypatch.setattr("megabuild.plan.fingerprint.staging", lambda *args: Fingerprint())
        return planning.survey_plan(options, silent)

    return make


def test_the_matrix_s_own_release_and_a_rehearsal_read_nothing(ask: Ask) -> None:
    notes: list[object] = []
    assert read_release(ask(None), notes.append) == TorchRelease()
    assert read_release(ask("9.9.9", rehearse=True), notes.append) == TorchRelease()
    assert not notes


def test_a_free_threaded_python_that_the_channel_is_not_ready_for_is_left_out_unless_asked_for(
    ask: Ask, plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    def solve(specs: Sequence[str], given: object, platform: str, what: str) -> dict[str, str]:
        if any("_cp314t" in spec for spec in specs) and any(spec.startswith("triton ") for spec in specs):
            raise PreflightError(f"{what} cannot be solved: no triton", "see --plan")
        return {}

    monkeypatch.setattr(solving, "environment", solve)
    made = plan(ask(None))
    assert made.left_out.keys() == {"3.14t"}
    assert "no triton" in made.left_out["3.14t"]
    assert [item.package.python for item in made.items if item.package.python][-1] == "3.14"
    assert plan(ask(None, pythons=("3.14t",))).left_out == {}  # the preflight says what is in the way
    without = plan(ask(None), "3.13")
    assert without.left_out.keys() == {"3.13", "3.14t"}
    assert "3.13" not in {item.package.python for item in without.items}


def test_a_python_that_the_release_refuses_is_refused_with_the_reason(
    ask: Ask, plan: Callable[[Options], Plan], tree: Path
) -> None:
    with pytest.raises(ProviderError, match=r"3\.10: .*2\.15\.2 .*>=3\.12") as caught:
        plan(ask("2.15.2", source=tree, pythons=("3.10",)))
    assert "3.12, 3.13, 3.14" in caught.value.remedy


def test_triton_and_pythons_are_those_of_the_source_else_the_configs(
    ask: Ask, plan: Callable[[Options], Plan], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "free_threaded_gaps", lambda *args: {})
    made = plan(ask("2.15.2", source=tree))
    pytorch = [item.package for item in made.items if item.package.name == "pytorch"]
    assert all("triton ~=3.9.1" in package.run for package in pytorch)
    assert list(made.left_out) == ["3.10", "3.11"]
    assert pytorch[0].python == "3.12", "staging's own comes first"
    assert made.environment.source == tree, "not the provider's"
    assert made.notes[-1] == f"source of PyTorch 2.15.2: {tree}"
    (tree / ".ci" / "docker" / "triton_version.txt").unlink()
    release = read_release(ask("2.15.2", source=tree), silent)
    assert (release.source, list(release.left_out)) == (tree, ["3.10", "3.11"])
    assert list(release.overrides) == ["torch_source_path"]
    assert "2.15.2" in release.notes[-1]


def test_pythons_that_a_source_names_wrongly_are_the_config_s(ask: Ask, tree: Path) -> None:
    (tree / "pyproject.toml").write_text('requires-python = ">=3.12 or so"\n')
    assert read_release(ask("2.15.2", source=tree), silent).left_out == {}


def test_a_python_of_which_only_newer_releases_fit_is_built_for(ask: Ask, tree: Path) -> None:
    (tree / "pyproject.toml").write_text('requires-python = ">=3.12.4"\n')
    assert list(read_release(ask("2.15.2", source=tree), silent).left_out) == ["3.10", "3.11"]


@pytest.mark.parametrize(
    ("option", "choice", "key", "value"),
    [
        ("arch_list", "sm_90,12.0+PTX", "torch_cuda_arch_list", "9.0;12.0+PTX"),
        ("optimization", "0", "torch_optimization", "0"),
        ("rehearse", True, "torch_source", "model"),
        ("pythons", ("3.13",), "python", "3.13.* *_cp313"),
        ("upstream_tests", False, "torch_upstream_tests", "0"),
    ],
)
def test_each_option_of_a_run_has_its_value_in_the_recipe(
    option: str, choice: object, key: str, value: str, ask: Ask
) -> None:
    assert planning.overrides_from_options(ask(None, **{option: choice}))[key] == (value,)


def test_wheels_are_not_rehearsed(ask: Ask) -> None:
    with pytest.raises(UsageError, match=r"^linux_64_cpu_wheel unpacks wheels") as caught:
        planning.overrides_from_options(ask(None, "linux_64_cpu_wheel", rehearse=True))
    assert caught.value.remedy == "omit --rehearse"


def test_a_tarball_is_unpacked_once_and_its_sha256_told(
    ask: Ask, tarball: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tarball.parent / "cache" / "torch-source"
    options = ask("2.15.2", source=tarball)
    with watched(cache) as calls:
        release = read_release(options, silent)
    assert [call for call in calls if call.startswith("open") and call.endswith("/version.txt")]
    assert unflushed(calls, sha256(tarball)[:16]) == set()
    assert release.source is not None
    assert sha256(tarball) in release.notes[0]
    (release.source / "mark").touch()
    assert read_release(options, silent).source == release.source
    assert (release.source / "mark").is_file()


def test_the_official_tarball_is_compared_with_its_known_sha256(
    ask: Ask, tarball: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TARBALLS, "2.15.2", Tarball(sha256="0" * 64, source="this test", is_confirmed=True))
    with pytest.raises(IntegrityError, match=sha256(tarball)):
        read_release(ask("2.15.2", source=tarball), silent)
    monkeypatch.setitem(
        TARBALLS, "2.15.2", Tarball(sha256=sha256(tarball), source="this test", is_confirmed=True)
    )
    assert sha256(tarball) not in read_release(ask("2.15.2", source=tarball), silent).notes[0]


@pytest.mark.parametrize("cut", [0, 60])
def test_a_broken_tarball_is_refused_and_leaves_nothing(ask: Ask, tarball: Path, cut: int) -> None:
    tarball.write_bytes(tarball.read_bytes()[:cut] if cut else b"no tar")
    with pytest.raises(IntegrityError):
        read_release(ask("2.15.2", source=tarball), silent)
    assert not list((tarball.parent / "cache" / "torch-source").iterdir())


def test_a_cache_that_cannot_be_written_is_named_before_a_source_is_unpacked_to_it(
    ask: Ask, plan: Callable[..., Plan], tarball: Path
) -> None:
    """The message of the tarball would name the tarball."""
    with pytest.raises(PreflightError, match="cannot be written to") as raised:
        plan(ask("2.15.2", source=tarball, cache=tarball / "cache"))
    assert raised.value.remedy == "set MEGABUILD_CACHE to another folder"


@pytest.mark.parametrize("name", ["fmt", "ideep"])
def test_missing_submodules_are_named_where_the_build_needs_them(name: str, ask: Ask, tree: Path) -> None:
    (tree / "third_party" / name / "README").unlink()
    with pytest.raises(PreflightError, match=f"third_party/{name}") as caught:
        read_release(ask("2.15.2", source=tree), silent)
    assert "git submodule" in caught.value.remedy
    assert read_release(ask("2.15.2", source=tree, rehearse=True), silent).source == tree
    assert read_release(ask("2.15.2", "linux_64_cpu_debian", tree), silent).source == tree
    (tree / "third_party" / name).rmdir()
    with pytest.raises(PreflightError, match=f"third_party/{name}"):
        read_release(ask("2.15.2", source=tree), silent)


@pytest.mark.parametrize(
    "name", ["version.txt", ".gitmodules", "pyproject.toml", ".ci/docker/triton_version.txt"]
)
def test_a_file_of_the_source_that_cannot_be_read_is_no_missing_one(name: str, ask: Ask, tree: Path) -> None:
    """A folder in place of the file: permissions do not stop root."""
    (tree / name).unlink()
    (tree / name).mkdir()
    with pytest.raises(IsADirectoryError):
        read_release(ask("2.15.2", source=tree), silent)


@pytest.mark.parametrize(
    ("version", "text", "kind", "says"),
    [
        ("2.13.0", "2.15.2a0", UsageError, r"--torch 2\.15\.2"),
        ("2.15.2", "two", PreflightError, "version.txt"),
        ("2.15.2", "", PreflightError, "version.txt"),
    ],
)
def test_another_source_than_the_one_meant_is_refused(
    ask: Ask, tree: Path, version: str, text: str, kind: type[MegabuildError], says: str
) -> None:
    (tree / "version.txt").write_text(text)
    with pytest.raises(kind) as caught:
        read_release(ask(version, source=tree), silent)
    assert says.replace("\\", "") in caught.value.message + caught.value.remedy


@pytest.mark.parametrize(
    ("name", "version", "source", "says"),
    [
        ("linux_64_cpu_wheel", None, "tree", "compiles no PyTorch"),
        ("linux_64_cpu", "2.14.1", None, "pytorch-v2.14.1.tar.gz"),
        ("linux_64_cpu_debian", "2.14.1", None, "--torch-source"),
        ("linux_64_cpu", "2.14.1", "nosuch", "no such file"),
        ("linux_64_cpu", "2.14", "tree", "not a release"),
        ("linux_64_cpu", "2.14", "tree", "write it like '2.15.0'"),
        ("linux_64_cpu", "2.16.0.dev20261120", "tree", "not a release"),
        ("linux_64_cpu_wheel", "2.16.0.dev1", None, "not a release"),
        ("linux_64_cpu_wheel", "2.16.0.dev1", None, "or '2.16.0.dev20261120' for a nightly build"),
    ],
)
def test_what_no_provider_can_have_is_refused(
    ask: Ask, name: str, version: str | None, source: str | None, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_release(ask(version, name, Path(source) if source else None), silent)
    assert says in caught.value.message + caught.value.remedy


def test_a_nightly_build_comes_as_a_wheel(repository: Path) -> None:
    version = "2.16.0.dev20261120"
    changed = with_torch(load(repository, "linux_64_cpu_wheel"), version, None)
    packages = render(changed, repository / "recipe" / "recipe.yaml")
    assert {package.version for package in packages} == {version}
    assert torch.upstream(changed) == f"{torch.UPSTREAM}/nightly/cpu"


def test_another_release_changes_the_version_everywhere(repository: Path) -> None:
    config = with_torch(load(repository, "linux_64_cpu"), "2.6.0", Path("pytorch"))
    assert config.variant["torch_sha256"] == ("None",)
    source = {"torch_source_path": ("/pytorch",)}
    packages = render(config, repository / "recipe" / "recipe.yaml", overrides=source)
    assert {package.version for package in packages} == {"2.6.0"}
    # requirements follow the version, whoever provides them
    pytorch = next(package for package in packages if package.name == "pytorch")
    assert "cmake >=3.27,<4" in pytorch.build
    assert {"setuptools <75", "pybind11 <3"} <= set(pytorch.host)
    assert "sympy ==1.13.1" in pytorch.run


def test_every_patch_is_listed_once_for_any_source(repository: Path) -> None:
    recipe = YAML(typ="safe").load((repository / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    *sources, patched = recipe["outputs"][0]["source"]
    assert all("torch_source_path" in source["if"] and "patches" not in source["then"] for source in sources)
    *common, by_source = patched["then"]["patches"]
    listed = [*common, *by_source["then"], *by_source["else"]]
    folder = repository / "recipe" / "patches"
    assert sorted(listed) == sorted(str(path.relative_to(folder.parent)) for path in folder.rglob("*.patch"))
