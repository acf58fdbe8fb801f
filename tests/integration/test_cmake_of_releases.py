"""The CMake files of real releases of PyTorch with a real nvcc: they find CUDA as conda-forge lays it out, and compile.

The files are read from the wheels of pip's index. The recipe's patches and FindCUDA.cmake are applied to them, as in a
build. A project takes the place of PyTorch: it includes cmake/public/cuda.cmake as cmake/Dependencies.cmake does, links
PyTorch's targets, and has one kernel. nvcc is that of PATH, CUDA_HOME or /usr/local.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_files import write

from cuda_code.cuda_archs import units
from cuda_code.elf_file import opened
from groundwork import files
from groundwork.network.client import NetworkError
from groundwork.network.index import offered, places
from groundwork.network.wheel_contents import RemoteFile

pytestmark = pytest.mark.long

RECIPE = Path(__file__).resolve().parents[2] / "recipe"
#: Where a wheel has CMake's files, and where the source has those that lie in none of the folders below.
IN_WHEEL = "torch/share/cmake/Caffe2/"
FOLDERS = ("public/", "Modules_CUDA_fix/")
MODULES = "Modules/"
TRIPLET = "x86_64-linux"
HOST = "x86_64-conda-linux-gnu"
#: Libraries that PyTorch links, without those of the toolkit's smallest part, which nvcc needs itself.
STUBS = ("cublas", "cublasLt", "cufft", "cufile", "curand", "cusolver", "cusparse", "nvJitLink", "nvrtc")
#: Targets of FindCUDAToolkit.cmake, with the library of each.
TARGETS = {
    "CUDA::cudart": "libcudart.so", "CUDA::cublas": "libcublas.so", "CUDA::cublasLt": "libcublasLt.so",
    "CUDA::cufft": "libcufft.so", "CUDA::cuFile": "libcufile.so", "CUDA::curand": "libcurand.so",
    "CUDA::cusolver": "libcusolver.so", "CUDA::cusparse": "libcusparse.so", "CUDA::nvrtc": "libnvrtc.so",
    "CUDA::cuda_driver": "stubs/libcuda.so",
}  # fmt: skip
PROJECT = """\
cmake_minimum_required(VERSION 3.27)
project(Torch LANGUAGES CXX C)
set(CMAKE_CXX_STANDARD 17)
list(APPEND CMAKE_MODULE_PATH "${PROJECT_SOURCE_DIR}/cmake/Modules")
set(USE_SYSTEM_NVTX ON)
set(CAFFE2_USE_CUDA ON)
set(CAFFE2_USE_CUFILE ON)
set(CAFFE2_USE_NVRTC ON)
include(cmake/public/utils.cmake)
include(cmake/public/cuda.cmake)
if(NOT CAFFE2_USE_CUDA)
  message(FATAL_ERROR "CUDA was not found")
endif()
message(STATUS "include: ${CUDAToolkit_INCLUDE_DIRS}")
foreach(target IN ITEMS @TARGETS@)
  get_target_property(location ${target} IMPORTED_LOCATION)
  message(STATUS "target ${target}: ${location}")
endforeach()
add_library(kernel SHARED kernel.cu)
target_link_libraries(kernel PRIVATE torch::cudart caffe2::cublas caffe2::curand caffe2::cufft caffe2::nvrtc
  torch::cufile CUDA::cusparse CUDA::cusolver)
"""
KERNEL = """\
#include <cuda_runtime.h>
#include <cuda_fp16.h>
__global__ void add(const float* a, const float* b, float* c) { c[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x]; }
extern "C" void launch(const float* a, const float* b, float* c) { add<<<1, 32>>>(a, b, c); }
"""


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """A CUDA toolkit of this machine, at least its nvcc and its runtime."""

    home: Path
    version: str  #: ``13.0``

    @property
    def archs(self) -> dict[str, str]:
        """Each of PyTorch's names of an architecture to compile for, with the code that it makes."""
        names = {"7.5": "sm_75", "9.0": "sm_90"}
        if tuple(map(int, self.version.split("."))) >= (12, 8):
            names["12.0"] = "sm_120"
        return names


def find_toolkit() -> Toolkit | None:
    """Return a toolkit with ``targets/TRIPLET``, as NVIDIA's packages and wheels have it."""
    on_path = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), str(Path(on_path).resolve().parents[1]) if on_path else None]
    homes += [str(path) for path in sorted(Path("/usr/local").glob("cuda*"))]
    for home in filter(None, homes):
        folder = Path(home).resolve()
        has_parts = all(
            (folder / part).exists()
            for part in ("bin/nvcc", "nvvm/bin/cicc", f"targets/{TRIPLET}/include/cuda_runtime.h")
        )
        if not has_parts:
            continue
        printed = subprocess.run([folder / "bin/nvcc", "--version"], capture_output=True, text=True).stdout
        version = re.search(r"release (\d+\.\d+)", printed)
        if version is not None:
            return Toolkit(home=folder, version=version[1])
    return None


@pytest.fixture(scope="module")
def toolkit() -> Toolkit:
    found = find_toolkit()
    if found is None:
        pytest.skip(f"no nvcc with its runtime below targets/{TRIPLET} in PATH, CUDA_HOME and /usr/local")
    if shutil.which("g++") is None:
        pytest.skip("no g++, which nvcc needs")
    return found


@pytest.fixture(scope="module", params=["2.13.0", "2.15.0"])
def cmake_files(request: pytest.FixtureRequest) -> Mapping[str, bytes]:
    """A release's CMake files, by their names in the source's folder cmake."""
    version = request.param
    try:
        client = places().client()
        wheels = offered("torch", places(), client.get)[0]
        wheel = next(
            one
            for one in wheels
            if str(one.version) == version and one.name.endswith("cp312-cp312-manylinux_2_28_x86_64.whl")
        )
        with zipfile.ZipFile(RemoteFile(client, wheel.url)) as archive:
            return _read_cmake_files(archive)
    except (NetworkError, StopIteration) as error:
        pytest.skip(f"no index has the wheel of PyTorch {version}: {error}")


def _read_cmake_files(archive: zipfile.ZipFile) -> Mapping[str, bytes]:
    files: dict[str, bytes] = {}
    for member in archive.namelist():
        name = member.removeprefix(IN_WHEEL)
        if name == member or member.endswith("/"):
            continue
        if not name.startswith(FOLDERS):
            name = MODULES + name
        files[name] = archive.read(member)
    return files


@dataclass(frozen=True, kw_only=True)
class World:
    """A build and a host environment, and a source tree of a release's CMake files with one kernel."""

    folder: Path
    toolkit: Toolkit

    @property
    def tree(self) -> Path:
        return self.folder / "work"

    @property
    def build_prefix(self) -> Path:
        """The build environment."""
        return self.folder / "build_env"

    @property
    def prefix(self) -> Path:
        """The host environment."""
        return self.folder / "host_env"

    def write_tree(self, files: Mapping[str, bytes], *, patches: Sequence[str]) -> None:
        """Lay out the CMake files as PyTorch's source has them, with the recipe's patches and its FindCUDA.cmake."""
        for name, content in files.items():
            write(self.tree / "cmake" / name, content)
        for patch in patches:
            command = ["patch", "-p1", "--fuzz=0", "-s", "-i", str(RECIPE / "patches" / patch)]
            subprocess.run(command, cwd=self.tree, check=True)
        shutil.copy(RECIPE / "FindCUDA.cmake", self.tree / "cmake/Modules_CUDA_fix/FindCUDA.cmake")
        write(self.tree / "CMakeLists.txt", PROJECT.replace("@TARGETS@", " ".join(TARGETS)))
        write(self.tree / "kernel.cu", KERNEL)

    def install_compiler(self, prefix: Path) -> None:
        """Install the packages of ``compiler("cuda")``: nvcc, and for it the runtime and the driver's stub."""
        for part in ("bin", "nvvm"):
            _link_tree(self.toolkit.home / part, prefix / part)
        self._install_runtime(prefix)

    def install_libraries(self, prefix: Path) -> None:
        """Install the packages of CUDA's libraries: below targets, with links in lib."""
        self._install_runtime(prefix)
        target = prefix / "targets" / TRIPLET
        for name in STUBS:
            _make_stub(target / "lib" / f"lib{name}.so")
        for library in sorted((target / "lib").glob("*.so*")):
            link = prefix / "lib" / library.name
            link.parent.mkdir(exist_ok=True)
            if not link.exists():
                link.symlink_to(f"../targets/{TRIPLET}/lib/{library.name}")
        nvtx = target / "include" / "nvtx3"
        if not nvtx.exists():
            nvtx.mkdir()
        _link_tree(nvtx, prefix / "include" / "nvtx3")

    def _install_runtime(self, prefix: Path) -> None:
        target = prefix / "targets" / TRIPLET
        if not target.exists():
            _link_tree(self.toolkit.home / "targets" / TRIPLET, target)
            _make_stub(target / "lib" / "stubs" / "libcuda.so", soname="libcuda.so.1")

    def build(self, script: str, **variables: str) -> str:
        """Configure and compile in an activated build environment; return what CMake and ninja printed."""
        programs = [self.build_prefix / "bin", self.prefix / "bin", Path(sys.executable).parent]
        path = os.pathsep.join([*map(str, programs), "/usr/local/bin", "/usr/bin", "/bin"])
        own = {"PATH": path, "HOME": str(self.folder), "CC": "gcc", "CXX": "g++", "CUDAARCHS": "75"}
        own["NVCC_PREPEND_FLAGS"] = "-ccbin=g++"
        done = subprocess.run(
            ["bash", "-ec", script], cwd=self.tree, env={**own, **variables},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    @property
    def variables_of_recipe(self) -> dict[str, str]:
        """The variables that conda's activation scripts and rattler-build set, and those of the recipe's variant."""
        target = self.prefix / "targets" / TRIPLET
        sysroot = self.build_prefix / HOST / "sysroot"
        sysroot.mkdir(parents=True, exist_ok=True)
        roots = [self.prefix, sysroot, target, self.build_prefix / "targets" / TRIPLET]
        arguments = [
            "-DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER", "-DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY",
            "-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY",
            f"-DCMAKE_FIND_ROOT_PATH={self.prefix};{sysroot}",  # the C compiler's
            f"-DCMAKE_INSTALL_PREFIX={self.prefix}",
            f"-DCMAKE_FIND_ROOT_PATH={';'.join(map(str, roots))}",  # nvcc's
        ]  # fmt: skip
        libraries = f"-L{target}/lib -L{target}/lib/stubs"
        return {
            "PREFIX": str(self.prefix), "BUILD_PREFIX": str(self.build_prefix), "SRC_DIR": str(self.tree),
            "RECIPE_DIR": str(RECIPE), "PYTHON": sys.executable, "CPU_COUNT": "2", "CMAKE_ARGS": " ".join(arguments),
            "CFLAGS": f"-I{target}/include", "CXXFLAGS": f"-I{target}/include", "LDFLAGS": libraries,
            "NVCC_APPEND_FLAGS": f"-I{target}/include {libraries}",
            "target_platform": "linux-64", "build_platform": "linux-64", "provider": "conda-forge",
            "torch_source": "official", "torch_version": "2.13.0", "torch_optimization": "2", "blas_impl": "mkl",
            "cuda_compiler_version": self.toolkit.version,
            "torch_cuda_arch_list": ";".join(self.toolkit.archs) + "+PTX",
        }  # fmt: skip


def _link_tree(source: Path, target: Path) -> None:
    """Copy a folder by hard links: nvcc finds its parts from the place of its file, which no symbolic link has."""

    def link(old: str, new: str) -> None:
        files.link(Path(old), Path(new))

    shutil.copytree(source, target, copy_function=link, symlinks=False, dirs_exist_ok=True)


def _make_stub(library: Path, *, soname: str = "") -> None:
    """Make a library without functions."""
    library.parent.mkdir(parents=True, exist_ok=True)
    name = soname or f"{library.name}.1"
    command = ["g++", "-shared", "-o", str(library), f"-Wl,-soname,{name}", "-x", "c++", "/dev/null"]
    subprocess.run(command, check=True)


OF_RECIPE = """\
source "$RECIPE_DIR/build_env.sh"
write_toolchain "$CMAKE_TOOLCHAIN_FILE"
cmake -S . -B build
cmake --build build -v
"""
OF_USER = "cmake -G Ninja -S . -B build && cmake --build build -v"
PATCHES = ("official/0002-explicit-CUDAToolkit_ROOT-wins.patch",)


@pytest.fixture
def world(toolkit: Toolkit, tmp_path: Path) -> World:
    return World(folder=tmp_path, toolkit=toolkit)


def check_printed(world: World, printed: str, environment: Path) -> None:
    """Check that CMake has found everything in an environment; the libraries' paths may go through its lib."""
    version = world.toolkit.version
    assert f"-- PyTorch: CUDA detected: {version}\n" in printed
    assert f"-- PyTorch: Header version is: {version}\n" in printed
    assert f"-- include: {environment}/targets/{TRIPLET}/include" in printed
    for target, library in TARGETS.items():
        (found,) = re.findall(rf"^-- target {target}: (.*)$", printed, re.MULTILINE)
        expected = environment / "targets" / TRIPLET / "lib" / library
        assert Path(found).resolve() == expected.resolve(), target
    assert re.search(r"libnvrtc\.so shorthash is [0-9a-f]{8}\n", printed)
    for arch in world.toolkit.archs.values():
        number = arch.removeprefix("sm_")
        assert f"arch=compute_{number},code={arch}" in printed


def check_library(world: World) -> None:
    """Check that the compiled kernel is for all architectures, and for newer GPUs."""
    newest = [*world.toolkit.archs.values()][-1]
    with opened(world.tree / "build" / "libkernel.so") as library:
        (unit,) = units(library)
    assert unit.sm == set(world.toolkit.archs.values())
    assert unit.ptx == {newest.replace("sm_", "compute_")}


def test_cuda_in_the_host_environment_and_nvcc_in_the_build_environment(
    world: World, cmake_files: Mapping[str, bytes]
) -> None:
    world.write_tree(cmake_files, patches=PATCHES)
    world.install_compiler(world.build_prefix)
    world.install_libraries(world.prefix)
    printed = world.build(OF_RECIPE, **world.variables_of_recipe)
    check_printed(world, printed, world.prefix)
    assert f"-- PyTorch: CUDA nvcc is: {world.build_prefix}/bin/nvcc\n" in printed
    assert not (world.prefix / "bin" / "nvcc").exists()
    linked = [line for line in printed.splitlines() if "-shared" in line and "libkernel.so" in line]
    assert linked
    # nvcc's own folder of libraries is among those that are searched, and has the runtime only
    libraries = re.findall(r"(?<=\s)/\S+\.so\b", " ".join(linked))
    assert len(libraries) >= len(STUBS) - 2
    assert not [name for name in libraries if name.startswith(str(world.build_prefix))]
    check_library(world)


def test_without_the_toolchain_file_the_host_environment_s_libraries_are_not_found(
    world: World, cmake_files: Mapping[str, bytes]
) -> None:
    """The test above would notice its loss."""
    world.write_tree(cmake_files, patches=PATCHES)
    world.install_compiler(world.build_prefix)
    world.install_libraries(world.prefix)
    with pytest.raises(AssertionError, match=r"CMake Error[^$]*CUDA::cu"):
        world.build(OF_USER, TORCH_CUDA_ARCH_LIST="9.0", PREFIX=str(world.prefix))


def test_a_user_has_nvcc_and_libraries_in_one_environment(
    world: World, cmake_files: Mapping[str, bytes]
) -> None:
    world.write_tree(cmake_files, patches=PATCHES)
    for install in (world.install_compiler, world.install_libraries):
        install(world.build_prefix)
    archs = ";".join(world.toolkit.archs) + "+PTX"
    printed = world.build(OF_USER, TORCH_CUDA_ARCH_LIST=archs)
    check_printed(world, printed, world.build_prefix)
    check_library(world)
