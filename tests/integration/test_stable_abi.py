"""Libraries compiled against PyTorch 2.13's own headers: what keeps to torch's stable ABI, and what does not."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import built_libraries
import pytest
from built_libraries import SOURCES, Torch
from wheel_files import make_wheel

import verify_package
from command_line.main import megabuild
from command_line.run_command import Invocation, outcome
from cuda_code.library_facts import LibraryFacts, read
from gpu_tools.verify.check import verify

# a wheel of PyTorch on a fresh machine
pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]
PLACE = "lib/python3.11/site-packages/pyg_lib/libpyg.so"
DEPENDS = {
    "later": ["python >=3.10", "pytorch * cpu*", "pytorch >=2.13.0", "libtorch >=2.13.0"],
    "minor": ["python >=3.10", "pytorch * cpu*", "pytorch >=2.13.0,<2.14.0a0", "libtorch >=2.13.0,<2.14.0a0"],
}


@pytest.fixture(scope="module")
def torch() -> Torch:
    """torch 2.13.0 without CUDA."""
    return built_libraries.torch_wheel("torch==2.13.0+cpu", "3.11")


@pytest.fixture(scope="module")
def later() -> Torch:
    """torch 2.14.1."""
    return built_libraries.torch_wheel("torch==2.14.1", "3.11")


@pytest.fixture(scope="module")
def libraries(torch: Torch) -> dict[str, Path]:
    """One that keeps to the stable ABI, the same with one symbol of c10 planted, and an ordinary one."""
    stable = SOURCES / "stable.cpp"
    return {
        "stable": torch.build("stable", source=stable),
        "planted": torch.build("planted", "-DPLANTED", source=stable),
        "ordinary": torch.build("cpu"),
    }


def facts(library: Path) -> LibraryFacts:
    found = read(library, library.name)
    assert found is not None
    return found


def package(folder: Path, library: Path, depends: list[str]) -> Path:
    """A package of pyg-lib with that library."""
    index = {"name": "pyg-lib", "version": "0.8.0", "build": "cpu_mkl_stable_abi3_h1_100", "depends": depends}
    for path, content in {
        PLACE: library.read_bytes(), "info/index.json": json.dumps(index).encode()
    }.items():  # fmt: skip
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    with tarfile.open(folder / "pyg-lib-0.8.0-cpu_mkl_stable_abi3_h1_100.tar.bz2", "w:bz2") as archive:
        archive.add(folder / "lib", "lib")
        archive.add(folder / "info", "info")
    return folder / "pyg-lib-0.8.0-cpu_mkl_stable_abi3_h1_100.tar.bz2"


def test_the_one_without_torch_s_cpp_is_recognised_and_a_single_symbol_makes_it_ordinary(
    libraries: dict[str, Path],
) -> None:
    assert {name: facts(library).stable_abi for name, library in libraries.items()} == {
        "stable": True,
        "planted": False,
        "ordinary": False,
    }
    more = facts(libraries["planted"]).undefined - facts(libraries["stable"]).undefined
    assert [name for name in more if "c10" in name] == [
        name for name in more if name.startswith("_ZN3c106detail14torchCheckFail")
    ]


@pytest.mark.parametrize("name", ["stable", "planted", "ordinary"])
def test_a_package_for_every_later_torch_is_refused_unless_its_library_keeps_to_the_stable_abi(
    name: str, libraries: dict[str, Path], tmp_path: Path
) -> None:
    (verdict,) = verify(package(tmp_path, libraries[name], DEPENDS["later"])).libraries
    assert (verdict.ok, verdict.stable_abi, verdict.torch) == (name == "stable", name == "stable", "2.13.0")
    if name == "planted":
        assert verdict.reason.startswith("not for every later torch: it needs c10::detail::torchCheckFail of")


def test_for_one_minor_version_both_are_right(libraries: dict[str, Path], tmp_path: Path) -> None:
    for name in ("stable", "planted"):
        (verdict,) = verify(package(tmp_path / name, libraries[name], DEPENDS["minor"])).libraries
        assert (verdict.ok, verdict.torch) == (True, "2.13")


def test_beside_a_later_torch_only_the_stable_one_is_right(
    libraries: dict[str, Path], later: Torch, tmp_path: Path
) -> None:
    for name in ("stable", "planted"):
        wheel = make_wheel(
            tmp_path / name,
            "own_ops-1.0+pt213-cp310-abi3-linux_x86_64.whl",
            {"own_ops/ops.so": libraries[name].read_bytes()},
        )
        (verdict,) = verify(wheel, beside=later.prefix).libraries
        assert verdict.ok == (name == "stable"), verdict.reason
        assert ("built for torch 2.13" in verdict.reason) == (name == "planted")


def test_the_recipes_test_refuses_the_pin_that_a_library_does_not_keep(
    libraries: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyg_lib").mkdir()
    for name in ("stable", "planted"):
        shutil.copy(libraries[name], tmp_path / "pyg_lib" / "libpyg.so")
        faults = verify_package.check(tmp_path, "pyg_lib", "cpu", (), "3.11", torch_pin="stable")
        assert [fault.partition(" of torch")[0] for fault in faults] == (
            []
            if name == "stable"
            else ["pyg_lib/libpyg.so: not for every later torch: it needs c10::detail::torchCheckFail"]
        )
        assert verify_package.check(tmp_path, "pyg_lib", "cpu", (), "3.11", torch_pin="minor") == []
    said = capsys.readouterr().out.splitlines()
    assert [line.rpartition(", ")[2] for line in said] == [
        "torch's stable ABI only",
        "torch's stable ABI only",
        "torch's C++",
        "torch's C++",
    ]


def test_the_command_shows_it(
    libraries: dict[str, Path], invocation: Invocation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["verify", str(package(tmp_path, libraries["stable"], DEPENDS["later"]))]
    code = outcome(lambda: megabuild.main(arguments, standalone_mode=False, obj=invocation), invocation)
    assert code == 0
    assert "libpyg.so >=2.13.0 cpu 3.10" in " ".join(capsys.readouterr().out.replace("abi3", "3.10").split())
