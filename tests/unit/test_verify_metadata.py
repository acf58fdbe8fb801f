"""What metadata say, and what an installed torch tells of the libraries beside it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from small_files import write

from cuda_code.torch_abi import c_symbols, cpp_symbols
from gpu_tools.verify import build_target
from gpu_tools.verify.build_target import fits_torch, read_conda_index, read_wheel_metadata
from gpu_tools.verify.expectation import Expectation
from gpu_tools.verify.inspected_package import open_subject
from gpu_tools.verify.installed_torch import InstalledTorch, parse_torch
from groundwork.errors import IntegrityError, UsageError

HEADER = """#pragma once
inline void check(int x) {
  TORCH_INTERNAL_ASSERT(
      x > 0,
      "small");
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(x < 9);
}
"""


@pytest.fixture
def torch(tmp_path: Path) -> InstalledTorch:
    """An installed torch of three files."""
    package = tmp_path / "lib/python3.12/site-packages/torch"
    write(package / "include/c10/util/check.h", HEADER)
    return parse_torch(package, tmp_path, "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n")


def test_assertions_at_lines_that_the_headers_lack_come_from_another_torch(torch: InstalledTorch) -> None:
    # the first and the last line of a call count: compilers differ; what is not installed tells nothing
    lines = [("c10/util/check.h", line) for line in (3, 4, 5, 6)]
    assert torch.denies(frozenset([*lines, ("c10/util/gone.h", 4)])) == ["c10/util/check.h:4"]


def test_an_assertion_ends_with_its_own_parenthesis(torch: InstalledTorch) -> None:
    header = write(
        torch.package / "include/c10/x.h", 'TORCH_INTERNAL_ASSERT(\n  size(x) > (0),\n  "small");\n'
    )
    lines = frozenset((f"c10/{header.name}", line) for line in (1, 2, 3))
    assert torch.denies(lines) == ["c10/x.h:2"]


def test_a_torch_without_a_version_is_an_error(torch: InstalledTorch) -> None:
    with pytest.raises(ValueError, match="__version__"):
        parse_torch(torch.package, torch.prefix, "cuda = None\n")


def test_only_symbols_of_torch_can_be_missing_in_torch(torch: InstalledTorch) -> None:
    undefined = frozenset(
        {"_ZN3c106detail3newEv", "_ZNK2at6Tensor3oldEv", "_ZTIN3c105ErrorE", "malloc", "_ZSt4cout"}
    )
    assert torch.lacks(undefined) == ["_ZN3c106detail3newEv", "_ZNK2at6Tensor3oldEv", "_ZTIN3c105ErrorE"]
    assert torch.lacks(frozenset({"torch_of_later", "PyObject_Call"})) == ["torch_of_later"]


@pytest.mark.parametrize(
    ("more", "is_torchs"),
    [
        ("_ZNSt6localeC1Ev", False),
        ("_ZN3c106detail14torchCheckFailEPKcS2_jS2_", True),
        ("_ZN3pyg3runERKN2at6TensorE", True),  # a function of another library's
        ("_Z16THPVariable_WrapP7_object", True),
        ("THPVariableClass", True),
        ("_ZN13c10x_and_more3runEv", False),  # names whose lengths end in the digit
        ("_ZN12attribute_of3runEv", False),
    ],
)
def test_the_c_interface_of_torch_is_told_from_its_cpp(more: str, is_torchs: bool) -> None:
    interface = ("aoti_torch_new_tensor_handle", "torch_call_dispatcher")
    undefined = frozenset({*interface, "memcpy", more})
    assert c_symbols(undefined) == interface
    assert cpp_symbols(undefined) == ((more,) if is_torchs else ())


@pytest.mark.parametrize(
    ("depends", "expected"),
    [
        (["pytorch 2.13.0 cuda132_py312_h1_300", "python_abi 3.12.* *_cp312"], ("2.13.0", False, "13.2", "3.12")),
        (["python >=3.11,<3.12.0a0"], (None, False, "13.0", "3.11")),
        (["python 3.13.*"], (None, False, "13.0", "3.13")),
        (["python_abi 3.13.* *_cp313t", "python"], (None, False, "13.0", "3.13t")),
        (["python >=3.10"], (None, False, "13.0", "abi3")),
        (["python"], (None, False, "13.0", "abi3")),
        (["pytorch ==2.13.0 cpu_h1_2", "pytorch >=2.13.0,<2.14.0a0"], ("2.13.0", False, "cpu", None)),
        (["pytorch * cuda*", "libtorch >=2.13.0,<2.14.0a0"], ("2.13", False, "13.0", None)),
        (["pytorch * cuda*", "pytorch >=2.13.0", "libtorch >=2.13.0"], ("2.13.0", True, "13.0", None)),
        (["pytorch >=2.9,<3"], ("2.9", True, "13.0", None)),
        (["pytorch >=2.9,<3.10"], ("2.9", True, "13.0", None)),
        (["pytorch * cuda*"], (None, False, "13.0", None)),
        (["pytorch <2.14"], (None, False, "13.0", None)),
    ],
)  # fmt: skip
def test_a_conda_package_says_torch_cuda_and_python_in_its_dependencies(
    depends: list[str], expected: tuple[str | None, bool, str, str | None]
) -> None:
    found = read_conda_index({"name": "pytorch_scatter", "build": "cuda130_h1_0", "depends": depends})
    assert (found.torch, found.later, found.cuda, found.python) == expected


def test_a_package_of_pytorch_is_for_its_own_version() -> None:
    found = read_conda_index({"name": "libtorch", "version": "2.13.0", "build": "cpu_mkl_h1_0"})
    assert (found.torch, found.later, found.cuda) == ("2.13.0", False, "cpu")


@pytest.mark.parametrize(
    ("said", "installed", "later", "fits"),
    [
        ("2.13", "2.13.1+cu130", False, True),
        ("2.13", "2.14.0", False, False),
        ("2.13", "2.14.0", True, True),
        ("2.13.0", "2.9.1", True, False),
        ("2.13.0", "none", True, False),
    ],
)
def test_what_keeps_to_the_stable_abi_goes_with_later_torches_only(
    said: str, installed: str, later: bool, fits: bool
) -> None:
    assert fits_torch(said, installed, later=later) is fits


@pytest.mark.parametrize(
    ("version", "tag", "expected"),
    [
        ("2.1.2+pt213cu130", "cp312-cp312-linux_x86_64", ("2.13", "13.0", "3.12")),
        ("0.8.0+pt213cpu", "cp310-abi3-linux_x86_64", ("2.13", "cpu", "abi3")),
        ("2.1.2+pt26cu124", "cp313-cp313t-linux_x86_64", ("2.6", "12.4", "3.13t")),
        ("2.1.2", "cp311-cp311-linux_x86_64", (None, None, "3.11")),
    ],
)
def test_a_wheel_says_torch_cuda_and_python(version: str, tag: str, expected: tuple[str | None, ...]) -> None:
    found = read_wheel_metadata(
        f"Name: torch_scatter\nVersion: {version}\n", f"Wheel-Version: 1.0\nTag: {tag}\n"
    )
    assert (found.torch, found.cuda, found.python) == expected


@pytest.mark.parametrize(
    ("name", "version", "own", "cuda"),
    [
        ("torch", "2.1.2", "+cu130", None),
        ("torch", "2.1.2+cu126", "+cu130", "12.6"),
        ("torch_scatter", "2.1.2", "", None),
        ("torch_scatter", "2.1.2", "+cu130", "13.0"),
        ("torch_scatter", "2.1.2+pt21cu126", "+cu130", "12.6"),
    ],
)
def test_an_extension_s_module_names_the_cuda_that_its_wheel_does_not(
    name: str, version: str, own: str, cuda: str | None
) -> None:
    """The module of torch itself is not asked."""
    found = read_wheel_metadata(f"Name: {name}\nVersion: {version}\n", "", f'__version__ = "2.1.2{own}"\n')
    assert found.cuda == cuda


@pytest.mark.parametrize("own", [(), ("libc10.so",), ("libc10.so", "libtorch_cpu.so")], ids=len)
def test_of_two_libtorches_that_of_the_package_is_read(own: tuple[str, ...], tmp_path: Path) -> None:
    package = tmp_path / "lib/python3.12/site-packages/torch"
    shared = {write(tmp_path / "lib" / name, "x") for name in ("libc10.so", "libtorch_cpu.so")}
    read = {write(package / "lib" / name, "y") for name in own}
    torch = InstalledTorch(package=package, prefix=tmp_path, version="2.1.2", cuda=None)
    is_second = "libtorch_cpu.so" in own
    assert torch.second == (tmp_path / "lib/libtorch_cpu.so" if is_second else None)
    assert {*torch.libraries()} == (read if is_second else read | shared)


def test_an_unknown_accelerator_is_refused() -> None:
    with pytest.raises(UsageError):
        Expectation(accelerator="gpu")


def test_a_damaged_wheel_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    wheel = tmp_path / "torch_scatter-2.1.2-cp312-cp312-linux_x86_64.whl"
    wheel.write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(IntegrityError, match="damaged archive"), open_subject(wheel):
        pass
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch_scatter/__init__.py", "")
    with pytest.raises(IntegrityError, match="dist-info"), open_subject(wheel):
        pass


def test_torch_s_own_headers_count_more_than_another_one_s_in_the_environment(tmp_path: Path) -> None:
    write(tmp_path / "torch/include/c10/x.h", "\nTORCH_INTERNAL_ASSERT(a);\n")
    write(tmp_path / "include/c10/x.h", "\n\n\nTORCH_INTERNAL_ASSERT(a);\n")
    torch = InstalledTorch(package=tmp_path / "torch", prefix=tmp_path, version="2.1.2", cuda=None)
    assert torch.denies(frozenset({("c10/x.h", 2), ("c10/x.h", 4)})) == ["c10/x.h:4"]


@pytest.mark.parametrize("folder", ["torch/include", "torch/include/torch/csrc/api/include", "include"])
def test_headers_of_torch_are_found_in_each_of_its_folders(folder: str, tmp_path: Path) -> None:
    write(tmp_path / folder / "c10/x.h", "\nTORCH_INTERNAL_ASSERT(a);\n")
    torch = InstalledTorch(package=tmp_path / "torch", prefix=tmp_path, version="2.1.2", cuda=None)
    assert torch.denies(frozenset({("c10/x.h", 2), ("c10/x.h", 1), ("c10/y.h", 1)})) == ["c10/x.h:1"]


@pytest.mark.parametrize(
    ("requirements", "torch"),
    [
        (["numpy", "torch==2.13.0"], "2.13.0"),
        (["torch (===2.13.*)", "torch==2.12"], "2.13"),
        (["torch>=2.13", "torchvision==0.28"], None),
        ([], None),
    ],
)
def test_a_wheel_is_for_the_one_torch_that_it_requires(requirements: list[str], torch: str | None) -> None:
    assert build_target._find_required_torch(requirements) == torch
