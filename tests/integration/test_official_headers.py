"""The headers of an official wheel of PyTorch 2.13, as libtorch's package and the patched source have them.

Needs a folder of wheels that pip knows (``find-links``) with PyTorch 2.13.0 for this Python.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
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
    split_wheel.libtorch(wheel, tmp_path)
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
    split_wheel._extract(
        wheel, {name: name for name in wheel.members if name.startswith("torch/include/")}, tmp_path
    )
    include = tmp_path / "torch/include"
    (patch,) = (repository / "recipe/patches/official").glob("0008-*")
    subprocess.run(["patch", "-p1", "--fuzz=0", "-s", "-i", patch], cwd=include, check=True)
    folders = [include, include / "torch/csrc/api/include", sysconfig.get_path("include")]
    # as PyTorch compiles libtorch_python
    command = ["g++", "-std=c++20", "-w", "-shared", "-fPIC", "-fvisibility=hidden", "-x", "c++", "-"]
    command += [f"-I{folder}" for folder in folders]
    library = tmp_path / "libtorch_python.so"
    subprocess.run([*command, "-o", str(library)], input=FUNCTION, text=True, check=True)
    defined = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, stdout=subprocess.PIPE, text=True
    )
    assert f" T {EXPORTED}\n" in defined.stdout
