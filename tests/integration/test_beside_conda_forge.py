"""Our packages in one environment, or one list of channels, with conda-forge's own of the same versions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import neighbour_channels
import pytest
from neighbour_channels import Line, OurPackages, channel, solution
from tiny import publish

from conda_wheels import built
from megabuild.configs.config import load
from megabuild.configs.render import render

ROOT = Path(__file__).resolve().parents[2]
SCATTER = "pytorch_scatter"
THEIRS, OURS = "conda-forge", "ours"


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return channel(tmp_path_factory.mktemp("theirs") / THEIRS, neighbour_channels.conda_forge())


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> OurPackages:
    return OurPackages(ROOT, "linux_64_cuda130", tmp_path_factory.mktemp("cuda130"))


@pytest.fixture(scope="module")
def scatter(packages: OurPackages) -> Mapping[str, Line]:
    """pytorch_scatter with each pin."""
    return {pin: packages.extension(SCATTER, pin) for pin in ("minor", "exact", "stable")}


# ---- which PyTorch an extension goes with -------------------------------------------------------------------------
def test_pinned_to_a_minor_version_it_is_installed_with_conda_forge_s_pytorch(
    theirs: Path, scatter: Mapping[str, Line], tmp_path: Path
) -> None:
    minor, exact = (channel(tmp_path / pin / "extensions", [scatter[pin]]) for pin in ("minor", "exact"))
    found = solution(["pytorch-gpu", SCATTER], [minor, theirs])
    assert found["pytorch"].startswith(f"{THEIRS}/cuda130_mkl_py312_")
    assert found[SCATTER] == f"extensions/{scatter['minor'].build}"
    with pytest.raises(Exception, match=r"(?s)pytorch_scatter.*pytorch ==2\.13\.0 cuda130_mkl_py312_"):
        solution([SCATTER], [exact, theirs])
    with pytest.raises(Exception, match=r"pytorch_scatter"):
        solution([SCATTER, "pytorch-cpu"], [minor, theirs])  # it is for CUDA


def test_a_minor_version_later_only_what_keeps_to_the_stable_abi_is_installed(
    scatter: Mapping[str, Line], tmp_path: Path
) -> None:
    later = (
        Line(name="libtorch", version="2.14.1", build="cuda130_mkl_h1_300", number=300),
        Line(name="pytorch", version="2.14.1", build="cuda130_mkl_py312_h1_300", number=300),
    )
    found = solution([SCATTER], [channel(tmp_path / "later", (*later, scatter["stable"]))])
    assert found["pytorch"] == "later/cuda130_mkl_py312_h1_300"
    for pin in ("minor", "exact"):
        with pytest.raises(Exception, match=SCATTER):
            solution([SCATTER], [channel(tmp_path / pin, (*later, scatter[pin]))])


def test_a_wheel_of_it_requires_the_torch_that_the_package_does(
    packages: OurPackages, scatter: Mapping[str, Line], tmp_path: Path
) -> None:
    for pin, required in (("minor", "==2.13.0+cu130"), ("exact", "==2.13.0+cu130"), ("stable", ">=2.13.0")):
        folder = tmp_path / pin / "linux_64_cuda130"
        publish(folder, [packages.path(scatter[pin])])
        (wheel,) = built.find(folder, (), ())
        assert (wheel.requires, wheel.python) == ((f"torch{required}",), "3.12")


# ---- who decides where both channels are given ---------------------------------------------------------------------
def test_build_numbers_are_conda_forge_s_for_the_same_version() -> None:
    numbers = {
        (line.name, line.build.rpartition("_h")[0]): line.number for line in neighbour_channels.conda_forge()
    }
    compared = set()
    for name in ("cpu", "cpu_generic", "cuda129", "cuda130", "cuda130_generic"):
        config = load(ROOT, f"linux_64_{name}")
        for package in render(config, ROOT / "recipe" / "recipe.yaml"):
            key = (package.name, package.build_string.rpartition("_h")[0])
            if package.name in ("libtorch", "pytorch") and key in numbers:
                assert package.build_number == numbers[key], package.file_name
                compared.add(key)
    assert len(compared) == 10  # libtorch, and pytorch for one Python, of five configs


@pytest.mark.parametrize("pin", ["minor", "exact"])
def test_with_strict_priority_the_first_channel_decides(
    pin: str, packages: OurPackages, theirs: Path, scatter: Mapping[str, Line], tmp_path: Path
) -> None:
    ours = channel(tmp_path / OURS, (*packages.pytorch, scatter[pin]))
    first = solution(["pytorch", SCATTER], [ours, theirs])
    assert {place.partition("/")[0] for place in first.values()} == {OURS}
    second = solution(["pytorch", SCATTER], [theirs, ours])
    assert {place.partition("/")[0] for place in second.values()} == {THEIRS}


def test_conda_forge_s_libtorch_does_not_get_a_second_linalg_library(
    packages: OurPackages, theirs: Path, tmp_path: Path
) -> None:
    """It has that file itself; ours may be left from before in an environment that changes to theirs."""
    specs = ["libtorch * *_hcf00001_302", "libtorch-cuda-linalg"]
    with pytest.raises(Exception, match="libtorch-cuda-linalg"):
        solution(specs, [channel(tmp_path / OURS, packages.pytorch), theirs], strict=False)
