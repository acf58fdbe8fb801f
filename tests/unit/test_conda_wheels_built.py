"""Which published packages become wheels, with which versions and requirements."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rattler.exceptions import ExtractError
from small_files import write

from conda_wheels import built
from conda_wheels.built import BuiltPackage
from groundwork.errors import ConfigError, IntegrityError, UsageError
from megabuild.store import published

TORCH = BuiltPackage(
    project="torch", version="2.6.0", python="3.12", path=Path("torch.conda"), sha256="1", build_string="b",
    accelerator="cu124", official=False, torch="2.6.0", more=("triton==3.2",),
)  # fmt: skip
SCATTER = replace(TORCH, project="torch_scatter", version="2.1.2", more=("torch_sparse",))


@pytest.mark.parametrize(
    ("package", "version", "requires"),
    [
        (TORCH, "2.6.0+cu124", ("triton==3.2",)),
        (SCATTER, "2.1.2+pt26cu124", ("torch==2.6.0+cu124", "torch_sparse")),
        (replace(SCATTER, official=True, more=()), "2.1.2+pt26cu124", ("torch==2.6.0",)),
        (replace(SCATTER, later=True, more=()), "2.1.2+pt26cu124", ("torch>=2.6.0",)),
        (replace(SCATTER, torch="2.13.0", accelerator="cpu", more=()), "2.1.2+pt213cpu", ("torch==2.13.0+cpu",)),
    ],
    ids=["torch", "an extension", "of an official torch", "for later torches", "for CPUs"],
)  # fmt: skip
def test_a_wheel_is_for_the_torch_that_its_package_was_compiled_with(
    package: BuiltPackage, version: str, requires: tuple[str, ...]
) -> None:
    assert (package.wheel_version, package.requires) == (version, requires)


# ------------------------------------------------------------------------------------------------ a package's record


def read(
    monkeypatch: pytest.MonkeyPatch, file: str, depends: Sequence[str], channel: str = "linux_64_cpu"
) -> BuiltPackage | None:
    record = published.PublishedPackage(path=f"linux-64/{file}", size=1, sha256="1", fingerprint="f")
    monkeypatch.setattr(built, "_read_depends", lambda _: depends)
    return built._read(Path(channel), record)


@pytest.mark.parametrize(
    ("channel", "file", "expected"),
    [
        ("linux_64_cuda130", "pytorch-2.6.0-cuda130_generic_py314t_h01_0.conda",
         {"project": "torch", "python": "3.14t", "accelerator": "cu130", "cuda": "13.0", "official": False,
          "torch": "2.6.0", "later": False, "subdir": "linux-64"}),
        ("linux_64_cpu_wheel", "pytorch-2.6.0-cpu_wheel_exact_py39_h01_0.conda",
         {"python": "3.9", "accelerator": "cpu", "cuda": None, "official": True}),
        ("linux_64_cpu-2.6.0-rehearsal", "pyg-lib-0.4.0-cpu_mkl_stable_abi3_h01_0.conda",
         {"project": "pyg_lib", "python": None, "accelerator": "cpu.rehearsal", "cuda": None}),
    ],
)  # fmt: skip
def test_a_package_s_name_tells_its_wheel(
    channel: str, file: str, expected: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = read(monkeypatch, file, (), channel)
    assert {name: getattr(package, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("depends", "torch", "later"),
    [
        (["pytorch ==2.6.0"], "2.6.0", False),
        (["pytorch >=2.6.0,<2.7.0a0"], "2.6.0", False),
        (["pytorch >=2.6.0"], "2.6.0", True),
        (["pytorch >=2.6.0", "pytorch >=2.6.0,<2.7.0a0"], "2.6.0", False),
        (["pytorch >=2.6.0", "pytorch ==2.6.0 cpu_*"], "2.6.0", False),
        (["python", "numpy"], "2.1.2", False),
    ],
)
def test_an_extension_s_requirements_tell_the_torches_that_it_works_with(
    depends: Sequence[str], torch: str, later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = read(monkeypatch, "pytorch_scatter-2.1.2-cpu_mkl_py312_h01_0.conda", depends)
    assert package is not None
    assert (package.torch, package.later) == (torch, later)


def test_a_wheel_requires_the_extensions_and_the_triton_of_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    depends = ["triton ==3.2.0", "pytorch_sparse", "pyg-lib >=0.4", "numpy", "triton-other ==1", "triton >=2"]
    package = read(monkeypatch, "pytorch_cluster-1-cuda124_mkl_py312_h01_0.conda", depends)
    assert package is not None
    assert package.more == ("pyg_lib", "torch_sparse", "triton==3.2.0")


@pytest.mark.parametrize(
    "file", ["libtorch-2.6.0-cpu_mkl_h01_0.conda", "pytorch-2.6.0-h01_0.conda", "zlib-1-0.conda"]
)
def test_other_packages_are_no_wheels(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, file, ()) is None


@pytest.mark.parametrize(("fault", "error"), [("damaged", IntegrityError), ("", ExtractError)])
def test_a_package_that_cannot_be_read_is_compared_with_its_record(
    fault: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "pytorch-2.6.0-cpu_mkl_py312_h01_0.conda", "no archive")

    def check(checked: Path) -> None:
        assert checked == path
        if fault:
            raise IntegrityError(fault, "build it again")

    monkeypatch.setattr(published, "check", check)
    with pytest.raises(error):
        built._read_depends(path)


# ------------------------------------------------------------------------------------------------------ what is asked


@pytest.fixture
def channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A channel with PyTorch for two Pythons, an extension for each, and one for every Python."""
    packages = [
        *(replace(TORCH, python=python) for python in ("3.10", "3.9", "3.14t", "3.14")),
        *(replace(SCATTER, python=python) for python in ("3.9", "3.10")),
        replace(SCATTER, project="pyg_lib", python=None),
        replace(SCATTER, project="torch", python="3.8", official=True),
    ]
    by_name: dict[str, BuiltPackage] = {}
    for number, package in enumerate(packages):
        path = write(tmp_path / "linux_64_cpu" / "linux-64" / f"{number}.conda", "")
        os.utime(path, (number, number))
        by_name[path.name] = replace(package, path=path)
    monkeypatch.setattr(published, "records", lambda _: by_name)
    monkeypatch.setattr(built, "_read", lambda _, package: package)
    return tmp_path / "linux_64_cpu"


@pytest.mark.parametrize(
    ("pythons", "names", "found"),
    [
        (
            (),
            (),
            "torch 3.9, torch 3.10, torch 3.14, torch 3.14t, pyg_lib any, torch_scatter 3.9, torch_scatter 3.10",
        ),
        (("3.10",), (), "torch 3.10, pyg_lib any, torch_scatter 3.10"),
        ((), ("pytorch_scatter",), "torch_scatter 3.9, torch_scatter 3.10"),
        ((), ("torch-scatter", "PYG.lib"), "pyg_lib any, torch_scatter 3.9, torch_scatter 3.10"),
        (("3.14t",), ("pytorch", "pyg-lib"), "torch 3.14t, pyg_lib any"),
    ],
)
def test_the_wheels_that_are_asked_for_are_found_pytorch_first(
    pythons: tuple[str, ...], names: tuple[str, ...], found: str, channel: Path
) -> None:
    packages = built.find(channel, pythons, names)
    assert ", ".join(f"{package.project} {package.python or 'any'}" for package in packages) == found


@pytest.mark.parametrize(
    ("pythons", "names", "message", "choices"),
    [
        ((), ("torch", "numpy"), "linux_64_cpu has no numpy", "pyg-lib, torch, torch-scatter"),
        (
            ("3.14",),
            ("pytorch_scatter",),
            "linux_64_cpu has no torch-scatter for Python 3.14",
            "pyg-lib, torch",
        ),
        (("3.11",), ("torch",), "linux_64_cpu has no torch for Python 3.11", "pyg-lib"),
    ],
)
def test_a_wheel_that_the_channel_lacks_is_named_also_next_to_others(
    pythons: tuple[str, ...], names: tuple[str, ...], message: str, choices: str, channel: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        built.find(channel, pythons, names)
    assert (refused.value.message, refused.value.remedy) == (message, f"choose from {choices}")


def test_a_channel_with_an_official_pytorch_alone_has_no_wheel_to_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "linux_64_cpu_wheel-rehearsal" / "linux-64" / "a.conda", "")
    monkeypatch.setattr(published, "records", lambda _: {"a.conda": replace(TORCH, official=True, path=path)})
    monkeypatch.setattr(built, "_read", lambda _, package: package)
    with pytest.raises(ConfigError) as refused:
        built.find(tmp_path / "linux_64_cpu_wheel-rehearsal", (), ())
    assert refused.value.message.startswith("linux_64_cpu_wheel-rehearsal has nothing for a wheel")
    assert "build-locally.py linux_64_cpu_wheel --pyg source" in refused.value.remedy
