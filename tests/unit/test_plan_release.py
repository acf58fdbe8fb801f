"""A release that is not the matrix's brings its own Triton and its own Pythons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wheel_files import make_wheel

from groundwork.errors import PreflightError, ProviderError, UsageError
from megabuild.configs.config import load
from megabuild.configs.tarballs import TARBALLS
from megabuild.plan import planning, release, solving
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.options import Options
from megabuild.plan.other_torch import with_torch
from megabuild.plan.plan import Plan
from megabuild.plan.release import ReleaseNeeds
from megabuild.plan.report import rendered_lines
from megabuild.plan.solving import Solved
from megabuild.plan.torch_source import SourceTree
from megabuild.providers.environment import Environment
from megabuild.providers.pypi import torch

#: As in the wheels of the index.
CUDA = {
    "2.14.1": (">=3.10", 'triton~=3.8.0; platform_system == "Linux" and python_version < "3.15"'),
    "2.15.0": (">=3.11", 'triton~=3.9.0; platform_system == "Linux" and python_version < "3.16"'),
}
REFUSED = {"3.10": "PyTorch 2.15.0 requires Python >=3.11"}
SHA256 = "ab" * 32


def wheel(folder: Path, version: str, tag: str, pythons: str, *requires: str) -> None:
    lines = ["Metadata-Version: 2.1", "Name: torch", f"Version: {version}", f"Requires-Python: {pythons}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    make_wheel(folder, f"torch-{version}-{tag}.whl", {}, metadata="\n".join([*lines, ""]).encode())


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index that has wheels of two releases for CUDA, and of one for CPUs that names no Triton."""
    folder = tmp_path / "wheels"
    for version, (pythons, requirement) in CUDA.items():
        wheel(folder, version, "cp312-cp312-macosx_14_0_arm64", pythons)
        wheel(folder, version, "cp313-cp313-manylinux_2_28_x86_64", pythons, requirement)
    wheel(folder, "2.15.0+cpu", "cp312-cp312-manylinux_2_28_x86_64", ">=3.11")
    wheel(folder, "2.15.1+cpu", "cp312-cp312-manylinux_2_28_x86_64", ">=3.11")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(torch, "UPSTREAM", str(tmp_path / "upstream"))
    return folder


@pytest.fixture
def asking(repository: Path, tmp_path: Path) -> Options:
    return Options(
        config=load(repository, "linux_64_cuda130"),
        root=repository,
        output=tmp_path,
        cache=tmp_path / "cache",
    )


def of(asked: Options, version: str, **more: Any) -> Options:
    config = with_torch(asked.config, version, None, SHA256, rehearse=False)
    return replace(asked, config=config, torch=version, pyg="none", **more)


def planned(
    asked: Options, monkeypatch: pytest.MonkeyPatch, gaps: Callable[..., dict[str, str]] = lambda *args: {}
) -> Plan:
    """Plan with a channel that has everything, but for what ``gaps`` finds."""
    environment = Environment(channels=("https://channel.invalid",), pythons=asked.config.pythons)
    monkeypatch.setattr(planning, "provide", lambda *args, **kwargs: environment)
    monkeypatch.setattr(planning, "_staging", lambda *args: Fingerprint())
    monkeypatch.setattr(solving, "free_threaded_gaps", gaps)
    return planning.make_plan(asked, lambda line: None, only_plan=True)


def test_the_matrix_s_own_release_is_asked_nothing(asking: Options) -> None:
    assert release.find_needs(asking, None, pytest.fail) == ReleaseNeeds()


@pytest.mark.parametrize(("version", "triton"), [("2.14.1", "3.8.0"), ("2.15.0", "3.9.0")])
@pytest.mark.parametrize("config", ["linux_64_cuda130", "linux_aarch64_cuda130"])
def test_triton_and_pythons_are_those_of_the_official_wheel(
    asking: Options, monkeypatch: pytest.MonkeyPatch, repository: Path, config: str, version: str, triton: str
) -> None:
    plan = planned(of(replace(asking, config=load(repository, config)), version), monkeypatch)
    pytorch = [item.package for item in plan.items if item.package.name == "pytorch"]
    assert all(f"triton ~={triton}" in package.run for package in pytorch)
    left_out = REFUSED if version == "2.15.0" else {}
    assert plan.left_out == left_out
    assert {one.python for one in pytorch} == set(plan.config.pythons) - set(left_out)
    assert pytorch[0].python == "3.12", "staging's own comes first"


def test_a_free_threaded_python_that_the_channel_is_not_ready_for_is_left_out_unless_asked_for(
    asking: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def solved(specs: Sequence[str], *args: object, what: str, **more: object) -> tuple[Solved, ...]:
        if any("_cp314t" in spec for spec in specs) and any(spec.startswith("triton ") for spec in specs):
            raise PreflightError(f"{what} cannot be solved: no triton", "see --plan")
        return ()

    gaps = solving.free_threaded_gaps
    monkeypatch.setattr(solving, "environment", solved)

    found = planned(replace(asking, pyg="none"), monkeypatch, gaps=gaps)
    assert found.left_out.keys() == {"3.14t"}
    assert "run environment cannot be solved: no triton" in found.left_out["3.14t"]
    assert [one.package.python for one in found.items if one.package.python][-1] == "3.14"
    asked = planned(replace(asking, pyg="none", pythons=("3.14t",)), monkeypatch, gaps=gaps)
    assert asked.left_out == {}  # the preflight says what is in the way


def test_a_config_for_cpus_needs_no_triton(
    asking: Options, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    asked = of(replace(asking, config=load(repository, "linux_64_cpu")), "2.15.1")
    assert planned(asked, monkeypatch).left_out.keys() == {"3.10"}


def test_a_python_that_the_release_refuses_is_refused_with_the_reason(
    asking: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ProviderError, match=r"Python 3\.10: PyTorch 2\.15\.0 requires Python >=3\.11"
    ) as caught:
        planned(of(asking, "2.15.0", pythons=("3.10",)), monkeypatch)
    assert "3.11, 3.12, 3.13, 3.14" in caught.value.remedy


def test_what_nobody_says_is_asked_for(asking: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"what PyTorch 9\.9\.9 requires could not be read") as caught:
        planned(of(asking, "9.9.9"), monkeypatch)
    assert "--triton" in caught.value.remedy
    assert "--python" in caught.value.remedy
    plan = planned(of(asking, "9.9.9", triton="4.0.0", pythons=("3.14",)), monkeypatch)
    assert [one.package.python for one in plan.items if one.package.python] == ["3.14"]
    assert any("triton ~=4.0.0" in one.package.run for one in plan.items)


def test_a_wheel_for_cpus_does_not_say_which_triton(asking: Options) -> None:
    with pytest.raises(UsageError) as caught:
        release.find_needs(of(asking, "2.15.1"), None, lambda line: None)
    assert "--triton" in caught.value.remedy
    assert "--python" not in caught.value.remedy


def test_the_source_that_is_brought_is_asked_first(asking: Options, tmp_path: Path) -> None:
    tree = SourceTree(path=tmp_path, triton="3.9.1", pythons=">=3.12")
    found = release.find_needs(of(asking, "9.9.9"), tree, pytest.fail)
    assert (found.triton, set(found.left_out)) == ("3.9.1", {"3.10", "3.11"})
    silent = replace(tree, triton=None, pythons=None)
    found = release.find_needs(of(asking, "2.15.0"), silent, lambda line: None)
    assert found == ReleaseNeeds(triton="3.9.0", left_out=REFUSED)


def test_a_tarball_whose_sha256_one_source_names_is_taken_and_said_to_be_unconfirmed(
    asking: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_torch(asking.config, "2.14.1", None, None, rehearse=False)
    asked = replace(asking, config=config, torch="2.14.1", pyg="none")
    plan = planned(asked, monkeypatch)
    (note,) = (note for note in plan.notes if "sha256" in note)
    assert "one copy of Homebrew's formula" in note
    assert "--torch-sha256" in note
    assert note in "\n".join(rendered_lines(asked))
    assert config.variant["torch_sha256"] == (TARBALLS["2.14.1"].sha256,)
    assert release.notes(asking) == []  # of conda-forge's own, which its packages are built from
    brought = replace(asked, torch_source=Path("pytorch"))
    assert not any("sha256" in note for note in release.notes(brought))


@pytest.mark.parametrize(("version", "listed"), [("2.14.1", "12.6, 13.0, 13.2"), ("2.15.0", "13.0, 13.2")])
def test_a_cuda_that_upstream_compiles_no_release_for_is_noted(
    asking: Options, repository: Path, version: str, listed: str
) -> None:
    asked = of(replace(asking, config=load(repository, "linux_64_cuda129")), version)
    (note,) = (note for note in release.notes(asked) if "12.9" in note)
    assert f"for CUDA {listed}," in note
    for name in ("linux_64_cuda130", "linux_64_cpu"):
        assert not any(
            "CUDA" in note
            for note in release.notes(of(replace(asking, config=load(repository, name)), version))
        )


def test_a_release_without_a_known_sha256_says_what_to_fetch(asking: Options) -> None:
    with pytest.raises(UsageError, match="no sha256 of its tarball is known") as caught:
        with_torch(asking.config, "2.15.0", None, None, rehearse=False)
    assert "/v2.15.0/pytorch-v2.15.0.tar.gz" in caught.value.remedy
    assert "--torch-source" in caught.value.remedy
    with pytest.raises(UsageError, match="is not a release"):
        with_torch(asking.config, "2.15", None, None, rehearse=False)


def test_without_an_environment_the_packages_are_still_those_of_the_release(asking: Options) -> None:
    lines = rendered_lines(of(asking, "2.15.0"))
    assert [line for line in lines if "_py310_" in line] == []
    assert any("pytorch-2.15.0-cuda130_mkl_py311_h" in line for line in lines)
    assert any(
        line.endswith("Python 3.10 is left out: PyTorch 2.15.0 requires Python >=3.11") for line in lines
    )


def test_a_rehearsal_builds_the_model_and_asks_nobody(asking: Options) -> None:
    assert release.find_needs(of(asking, "9.9.9", rehearse=True), None, pytest.fail) == ReleaseNeeds()


def test_what_is_no_sha256_is_refused(asking: Options) -> None:
    with pytest.raises(UsageError, match="not a sha256"):
        with_torch(asking.config, "2.15.0", None, "ab", rehearse=False)


def test_the_release_s_own_sha256_is_taken(asking: Options) -> None:
    pinned = asking.config.variant["torch_sha256"][0]
    assert with_torch(asking.config, "2.13.0", None, pinned, rehearse=False).variant == asking.config.variant


@pytest.mark.parametrize(
    ("config", "version", "triton", "says"),
    [
        ("linux_64_cpu", "2.15.0", "3.9.0", "has no effect here"),
        ("linux_64_cuda132_wheel", "2.15.0", "3.9.0", "has no effect here"),
        ("linux_64_cuda130", None, "3.9.0", "has no effect here"),
        ("linux_64_cuda130", "2.15.0", "latest", "not a release of Triton"),
    ],
)
def test_a_triton_is_named_for_another_release_that_is_compiled_for_cuda(
    repository: Path, config: str, version: str | None, triton: str, says: str
) -> None:
    digest = SHA256 if version and "wheel" not in config else None
    with pytest.raises(UsageError, match=says):
        with_torch(load(repository, config), version, None, digest, triton, rehearse=False)
