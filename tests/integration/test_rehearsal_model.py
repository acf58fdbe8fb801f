"""The model of PyTorch's tree is built by hand, without recipe and driver, and must behave as the real one does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

import install_libtorch
import sync_tree

_NEEDS = [
    "cmake",
    "ninja",
    "numpy",
    "pip",
    "pybind11",
    "pyyaml",
    "setuptools<82",
    "typing_extensions",
    "wheel",
]
_VERSION = "9.8.7"
_LINALG = "libtorch_cuda_linalg.so"

_COMPUTATION = f"""
import functorch, numpy, torch
assert torch.__version__ == torch.version.__version__ == "{_VERSION}" and torch.version.cuda == "13.0"
a = torch.rand(6, 6) + 6 * torch.eye(6)
b = torch.rand(6, 2)
x = torch.linalg.solve(a, b)
assert numpy.allclose(x.numpy(), numpy.linalg.solve(a.numpy(), b.numpy()))
assert numpy.allclose(torch._C._cuda_emulatedSolve(a, b).numpy(), x.numpy())
weights = torch.rand(4, 3, requires_grad=True)
(torch.tanh(torch.ones(2, 4) @ weights) * 2).sum().backward()
slope = 2 * (1 - numpy.tanh(numpy.ones((2, 4)) @ weights.detach().numpy()) ** 2)
assert numpy.allclose(weights.grad.numpy(), numpy.ones((4, 2)) @ slope)
assert functorch.numel(b) == 12
assert not torch._C._shm_remove("/megabuild-nobody-made-this")
assert torch.distributed.is_available() and torch.backends.cuda.is_built() and not torch.cuda.is_available()
assert torch.cuda.get_arch_list() == ["sm_80", "sm_90", "compute_90"]
assert "BLAS_INFO=open" in torch.__config__.show() and "USE_CUDNN=1" in torch.__config__.show()
print(torch.backends.cuda.preferred_linalg_library(), torch.cuda.has_magma)
"""

_PROJECT = """
cmake_minimum_required(VERSION 3.18)
project(user CXX)
find_package(Torch 9.8 REQUIRED)
find_package(ATen REQUIRED)
set(CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS} ${TORCH_CXX_FLAGS}")
add_executable(user main.cpp)
target_link_libraries(user ${TORCH_LIBRARIES})
message(STATUS "prefix=${TORCH_INSTALL_PREFIX} aten=${ATEN_INCLUDE_DIR}")
"""
_PROGRAM = """
#include <torch/torch.h>
#include <iostream>
int main() {
  const torch::Tensor x = torch::ones({2, 2}).requires_grad_();
  torch::matmul(x, x).sum().backward();
  const double slope = x.grad().sum().item<double>();
  std::cout << TORCH_VERSION << ' ' << slope << ' ' << at::getCUDAHooks().isBuilt() << std::endl;
}
"""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A built tree of the model, installed for one Python."""

    tree: Path
    python: Path
    magma: Path
    env: Mapping[str, str]

    @property
    def build(self) -> Path:
        return self.tree / "build"

    def run(self, *command: str | Path, cwd: Path | None = None) -> str:
        """Give what a command prints; a failure of it is one of the test."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words,
            cwd=cwd or self.tree,
            env=dict(self.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout[-6000:]}"
        return done.stdout

    def pending(self) -> list[str]:
        """What ninja would make, without the version file, which it always writes."""
        steps = re.findall(r"^\[\d+/\d+\] (.*)$", self.run("ninja", "-C", self.build, "-n"), re.MULTILINE)
        return [step.split()[-1] for step in steps if step != "Regenerating version file"]


@pytest.fixture(scope="module")
def model(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Build the model once, CUDA-shaped, as the recipe does but by hand."""
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip(f"{sys.executable} has no headers (Debian: python3-dev)")
    folder = tmp_path_factory.mktemp("model")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *_NEEDS]
    if subprocess.run(install).returncode != 0:
        pytest.skip("pip cannot install what the build needs: no package index in reach")

    magma = folder / "magma"
    (magma / "include").mkdir(parents=True)
    (magma / "lib").mkdir()
    version = {"MAJOR": 2, "MINOR": 10, "MICRO": 0}
    header = "".join(f"#define MAGMA_VERSION_{part} {number}\n" for part, number in version.items())
    (magma / "include" / "magma.h").write_text(header)
    library = magma / "lib" / "libmagma.so"
    empty = ["-x", "c", "/dev/null", "-Wl,-soname,libmagma.so"]
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, *empty], check=True)

    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("BUILD_", "USE_", "CMAKE_"))
    }
    kept |= {name: value for name, value in os.environ.items() if name.endswith("_COMPILER_LAUNCHER")}
    tree = folder / "tree"
    made = Model(
        tree=tree,
        python=python,
        magma=magma,
        env=kept
        | {
            "PATH": f"{python.parent}:{kept['PATH']}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTORCH_BUILD_VERSION": _VERSION,
            "PYTORCH_BUILD_NUMBER": "0",
            "CMAKE_PREFIX_PATH": str(folder / "venv"),
            # nothing is added to the flags of this build type
            "CMAKE_BUILD_TYPE": "Debug",
            "CMAKE_CXX_FLAGS_DEBUG": "-DNDEBUG",
            "CMAKE_ARGS": "-DMODEL_ARGUMENT=passed",
            "BLAS": "OpenBLAS",
            "BUILD_TEST": "0",
            "USE_CUDA": "1",
            "BUILD_LINALG_MAGMA": "1",
            "CUDA_VERSION": "13.0",
            "TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX",
            "MAGMA_HOME": str(magma),
            "MAX_JOBS": "2",
            "PIP_CONFIG_FILE": os.devnull,  # where a machine has torch within limits, the model is beyond them
        },
    )
    sync_tree.sync(repository / "rehearsal" / "model", tree)
    made.run(python, "setup.py", "build", "--cmake-only")
    assert not list((tree / "build" / "caffe2").rglob("*.o")), "compiled, though only asked to configure"
    made.run(python, "-m", "pip", "install", ".", "--no-deps", "--no-build-isolation", "-v")
    return made


def needed(library: Path) -> list[str]:
    """Names of the libraries that one asks the loader for."""
    with library.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        return [str(vars(tag)["needed"]) for tag in dynamic.iter_tags("DT_NEEDED")]


def test_environment_reaches_cmake_and_a_configured_tree_is_not_configured_again(model: Model) -> None:
    cache = (model.build / "CMakeCache.txt").read_text()
    entries = dict(re.findall(r"^(\w+):\w+=(.*)$", cache, re.MULTILINE))
    assert entries["BLAS"] == "OpenBLAS"
    assert entries["TORCH_CUDA_ARCH_LIST"] == "8.0;9.0+PTX"
    assert entries["MODEL_ARGUMENT"] == "passed"
    assert entries["CMAKE_INSTALL_PREFIX"] == str(model.tree / "torch")
    purelib, given = entries["CMAKE_PREFIX_PATH"].split(";")
    assert purelib.endswith("site-packages")
    assert given == model.env["CMAKE_PREFIX_PATH"]
    again = model.run("env", "BLAS=MKL", model.python, "setup.py", "build", "--cmake-only")
    assert "BLAS" not in again
    assert (model.build / "CMakeCache.txt").read_text() == cache


def test_a_finished_build_has_nothing_left_to_do(model: Model) -> None:
    assert model.pending() == []
    model.run("cmake", model.build)  # as after every swap
    assert model.pending() == []


def test_only_the_python_side_includes_python(model: Model) -> None:
    deps = model.run("ninja", "-C", model.build, "-t", "deps")
    objects = {block.split(":")[0]: "Python.h" in block for block in deps.split("\n\n") if ": #deps" in block}
    parts = ("torch_python.dir", "nnapi_backend.dir", "functorch.dir")
    python_side = {
        name: includes for name, includes in objects.items() if any(part in name for part in parts)
    }
    core = {name: includes for name, includes in objects.items() if name not in python_side}
    assert len(core) >= 20
    assert [name for name, includes in core.items() if includes] == []
    # as in PyTorch, some objects of the Python side know nothing of Python and are still compiled anew for each
    assert sum(python_side.values()) >= 6
    assert 2 <= sum(not includes for includes in python_side.values()) <= 6


def test_the_linalg_flavour_that_is_installed_decides_and_both_compute(model: Model) -> None:
    where = "import torch; print(torch.__path__[0])"
    libraries = Path(model.run(model.python, "-c", where, cwd=model.magma).strip()) / "lib"
    plain, magma = libraries / _LINALG, libraries / "libtorch_cuda_linalg_magma.so"
    assert "libmagma.so" not in needed(plain)
    assert "libmagma.so" in needed(magma)
    compute: list[str | Path] = [
        "env",
        f"LD_LIBRARY_PATH={model.magma}/lib",
        model.python,
        "-c",
        _COMPUTATION,
    ]
    assert model.run(*compute, cwd=model.magma) == "Cusolver False\n"
    aside = plain.rename(libraries / "aside")
    plain.symlink_to(magma.name)  # as its package has it
    assert model.run(*compute, cwd=model.magma) == "Magma 2.10.0 True\n"
    plain.unlink()
    # installed neither: said when it is asked for, and no reason not to start
    assert (
        model.run(*compute[:3], "-c", "import torch; print(torch.cuda.has_magma)", cwd=model.magma)
        == "False\n"
    )
    aside.rename(plain)


def test_the_second_linalg_flavour_costs_its_own_objects_and_a_link(model: Model) -> None:
    magma = model.build / "lib" / "libtorch_cuda_linalg_magma.so"
    (built,) = (model.build / "caffe2").rglob("torch_cuda_linalg_magma.dir/**/BatchLinearAlgebra.cpp.o")
    magma.unlink()
    built.unlink()
    assert [Path(step).name for step in model.pending()] == [built.name, magma.name]
    model.run("ninja", "-C", model.build, "torch_cuda_linalg_magma")


@pytest.mark.parametrize("layout", ["site-packages", "prefix"])
def test_a_program_finds_builds_links_and_runs(model: Model, layout: str, tmp_path: Path) -> None:
    if layout == "prefix":
        root = tmp_path / "prefix"
        install_libtorch.install(model.tree / "torch", root)
        cmake_files = root / "share" / "cmake"
    else:
        print_path = "import torch.utils; print(torch.utils.cmake_prefix_path)"
        cmake_files = Path(model.run(model.python, "-c", print_path, cwd=tmp_path).strip())
        root = cmake_files.parent.parent
    (tmp_path / "CMakeLists.txt").write_text(_PROJECT)
    (tmp_path / "main.cpp").write_text(_PROGRAM)
    said = model.run("cmake", "-GNinja", f"-DCMAKE_PREFIX_PATH={cmake_files}", "-S.", "-Bout", cwd=tmp_path)
    assert f"prefix={root} aten={root / 'include'}" in said
    model.run("cmake", "--build", "out", cwd=tmp_path)
    assert model.run(tmp_path / "out" / "user").split() == [_VERSION, "16", "1"]
    assert "libtorch_cuda.so" in needed(tmp_path / "out" / "user")
