"""The headers of an official wheel of PyTorch 2.13, as libtorch's package and the patched source have them.

Needs a folder of wheels that pip knows (``find-links``) with PyTorch 2.13.0 for this Python.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

import split_wheel
import wheel_parts
from wheel_parts import Wheel

EXPORT = "official/0008-export-a-function-that-a-header-calls.patch"
SIZE = "size-of-strings-is-Py_ssize_t.patch"
EXPORTED = "_ZN5torch3jit6detail19_tryToInferTypeImplEN8pybind116handleE"
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
CONDITIONAL = ("fbgemm/", "qnnpack", "pybind11/")
FUNCTION = """\
#include <torch/csrc/jit/python/pybind_utils.h>
namespace torch::jit::detail {
std::optional<InferredType> _tryToInferTypeImpl(pybind11::handle) { return std::nullopt; }
}
"""


def only_headers(wheel: Wheel) -> Wheel:
    """Leave out the libraries, which take most of the time."""
    members = {name: facts for name, facts in wheel.members.items() if name.startswith("torch/include/")}
    return replace(wheel, members=members)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """The wheel, which pip finds without an index."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "download", "--no-index", "--no-deps", "torch==2.13.0"]
    done = subprocess.run([*command, "--dest", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip knows no folder with the wheel: {done.stderr.strip().splitlines()[-1]}")
    return wheel_parts.find(folder, f"3.{sys.version_info.minor}")


@pytest.fixture(scope="module")
def patched(repository: Path, wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The compiler's options for the wheel's headers, with the patches of these tests, and for Python's."""
    folder = tmp_path_factory.mktemp("patched")
    split_wheel._extract(wheel, {name: name for name in only_headers(wheel).members}, folder)
    include = folder / "torch/include"
    for patch in (EXPORT, SIZE):
        command = ["patch", "-p1", "--fuzz=0", "-s", "-i", str(repository / "recipe/patches" / patch)]
        subprocess.run(command, cwd=include, check=True)
    folders = [include, include / "torch/csrc/api/include", sysconfig.get_path("include")]
    return [f"-I{place}" for place in folders]


def preprocessed(source: str, *options: str) -> str:
    """Return a source after the preprocessor; fails the test on a warning."""
    command = ["g++", "-std=c++20", "-Werror", "-x", "c++", "-E", "-", *options]
    return subprocess.run(command, input=source, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def include(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of headers of libtorch's package."""
    folder = tmp_path_factory.mktemp("libtorch")
    split_wheel.libtorch(only_headers(wheel), folder)
    return folder / "include"


def headers_of(include: Path) -> list[Path]:
    found = sorted(path for path in include.rglob("*") if path.suffix in (".h", ".hpp"))
    assert len(found) > 8000
    return found


@pytest.mark.long  # twelve seconds
def test_no_header_of_libtorch_names_one_that_only_pytorch_has(wheel: Wheel, include: Path) -> None:
    """By their text, in which every condition holds: those of FBGEMM and QNNPACK are included without effect."""
    own = [include, include / "torch/csrc/api/include"]
    in_wheel = {member.removeprefix("torch/include/") for member in wheel.members}
    found: set[str] = set()
    for header in headers_of(include):
        for name in INCLUDE.findall(header.read_text(errors="replace")):
            if not any((folder / name).exists() for folder in (*own, header.parent)):
                found.add(name)
    assert found, "nothing is read"
    assert {name for name in found & in_wheel if not name.startswith(CONDITIONAL)} == set()


@pytest.mark.long  # half a minute of preprocessing
def test_no_header_of_libtorch_includes_one_that_only_pytorch_has(
    wheel: Wheel, include: Path, tmp_path: Path
) -> None:
    headers = headers_of(include)
    (tmp_path / "all.cpp").write_text("".join(f'#include "{path}"\n' for path in headers))
    folders = [f"-I{include}", f"-I{include / 'torch/csrc/api/include'}"]
    # -MG lists a header that does not exist by the name in its #include
    command = ["g++", "-std=c++20", "-w", "-M", "-MG", *folders, str(tmp_path / "all.cpp")]
    listed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    names = set(listed.replace("\\\n", " ").split())
    assert len(names) > 9000
    in_wheel = {member.removeprefix("torch/include/") for member in wheel.members}
    # headers of PyTorch's Python side, which need Python's too
    assert {name for name in names & in_wheel if not name.startswith("pybind11/")} == set()


def test_the_patch_marks_the_function_that_a_header_calls_as_exported(patched: list[str]) -> None:
    text = preprocessed("#include <torch/csrc/jit/python/pybind_utils.h>\n", *patched)
    mark = r'__attribute__\(\(_*visibility_*\("default"\)\)\)'
    exported = rf"{mark}\s+std::optional<InferredType>\s+_tryToInferTypeImpl\("
    assert re.search(exported, text)


@pytest.mark.long  # a compile of half a minute
def test_the_patch_exports_the_function_that_a_header_calls(patched: list[str], tmp_path: Path) -> None:
    library = tmp_path / "libtorch_python.so"
    # as PyTorch compiles libtorch_python
    command = ["g++", "-std=c++20", "-w", "-shared", "-fPIC", "-fvisibility=hidden", "-x", "c++", "-"]
    subprocess.run([*command, *patched, "-o", str(library)], input=FUNCTION, text=True, check=True)
    command = ["nm", "-D", "--defined-only", str(library)]
    defined = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert f" T {EXPORTED}\n" in defined


def test_the_patch_gives_strings_of_extensions_the_size_of_python_s(patched: list[str]) -> None:
    macros = preprocessed("#include <torch/extension.h>\n", "-dM", *patched)
    assert "#define PY_SSIZE_T_CLEAN" in {line.rstrip() for line in macros.splitlines()}
    # an extension may define it as well, also by -DPY_SSIZE_T_CLEAN, which makes it 1
    preprocessed("#include <torch/csrc/python_headers.h>\n", "-DPY_SSIZE_T_CLEAN", *patched)
