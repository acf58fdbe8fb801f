"""The headers of an official wheel of PyTorch 2.13, as libtorch's package and the patched source have them.

Needs a folder of wheels that pip knows (``find-links``) with PyTorch 2.13.0 for this Python.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

import split_wheel
import wheel_parts
from wheel_parts import Wheel

EXPORTED = "_ZN5torch3jit6detail19_tryToInferTypeImplEN8pybind116handleE"
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


def patched(repository: Path, wheel: Wheel, folder: Path, patch: str) -> list[str]:
    """Unpack the wheel's headers, apply a patch, and return the compiler's options for them and Python's."""
    split_wheel._extract(wheel, {name: name for name in only_headers(wheel).members}, folder)
    include = folder / "torch/include"
    command = ["patch", "-p1", "--fuzz=0", "-s", "-i", str(repository / "recipe/patches" / patch)]
    subprocess.run(command, cwd=include, check=True)
    folders = [include, include / "torch/csrc/api/include", sysconfig.get_path("include")]
    return [f"-I{place}" for place in folders]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """The wheel, which pip finds without an index."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "download", "--no-index", "--no-deps", "torch==2.13.0"]
    done = subprocess.run([*command, "--dest", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip knows no folder with the wheel: {done.stderr.strip().splitlines()[-1]}")
    return wheel_parts.find(folder, f"3.{sys.version_info.minor}")


def test_no_header_of_libtorch_includes_one_that_only_pytorch_has(wheel: Wheel, tmp_path: Path) -> None:
    split_wheel.libtorch(only_headers(wheel), tmp_path)
    include = tmp_path / "include"
    headers = sorted(path for path in include.rglob("*") if path.suffix in (".h", ".hpp"))
    assert len(headers) > 8000
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


def test_the_patch_exports_the_function_that_a_header_calls(
    repository: Path, wheel: Wheel, tmp_path: Path
) -> None:
    patch = "official/0008-export-a-function-that-a-header-calls.patch"
    library = tmp_path / "libtorch_python.so"
    # as PyTorch compiles libtorch_python
    command = ["g++", "-std=c++20", "-w", "-shared", "-fPIC", "-fvisibility=hidden", "-x", "c++", "-"]
    command += [*patched(repository, wheel, tmp_path, patch), "-o", str(library)]
    subprocess.run(command, input=FUNCTION, text=True, check=True)
    command = ["nm", "-D", "--defined-only", str(library)]
    defined = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert f" T {EXPORTED}\n" in defined


def test_the_patch_gives_strings_of_extensions_the_size_of_python_s(
    repository: Path, wheel: Wheel, tmp_path: Path
) -> None:
    folders = patched(repository, wheel, tmp_path, "size-of-strings-is-Py_ssize_t.patch")
    command = ["g++", "-std=c++20", "-x", "c++", "-dM", "-E", "-", *folders]
    source = "#include <torch/extension.h>\n"
    macros = subprocess.run(command, input=source, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "#define PY_SSIZE_T_CLEAN" in {line.rstrip() for line in macros.splitlines()}
    # an extension may define it as well, also by -DPY_SSIZE_T_CLEAN, which makes it 1
    command = ["g++", "-std=c++20", "-Werror", "-DPY_SSIZE_T_CLEAN", "-x", "c++", "-E", "-", *folders]
    subprocess.run(command, input=source, check=True, stdout=subprocess.DEVNULL, text=True)
