"""The module that stands in for FindCUDA, in the layouts that CUDA comes in."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from small_files import program, write

TRIPLET = "sbsa-linux" if platform.machine() == "aarch64" else "x86_64-linux"
NVCC = """\
if [ "$1" = --version ]; then echo 'Cuda compilation tools, release 13.0, V13.0.88'; fi
if [ "$1" = -v ]; then echo '#$ TOP={top}' >&2; fi
"""
PROJECT = """\
cmake_minimum_required(VERSION 3.18)
project(user LANGUAGES C)
list(APPEND CMAKE_MODULE_PATH "${CMAKE_SOURCE_DIR}/modules")
find_package(CUDA REQUIRED)
cuda_select_nvcc_arch_flags(flags 9.0)
message(STATUS "version ${CUDA_VERSION} ${CUDA_VERSION_MAJOR}")
message(STATUS "include ${CUDA_INCLUDE_DIRS}")
message(STATUS "flags ${flags}")
get_target_property(runtime ${CUDA_LIBRARIES} IMPORTED_LOCATION)
message(STATUS "runtime ${runtime}")
"""
SELECT = (
    "function(cuda_select_nvcc_arch_flags result)\n  set(${result} for_${ARGN} PARENT_SCOPE)\nendfunction()\n"
)


@pytest.mark.parametrize("inside", [f"targets/{TRIPLET}", "."], ids=["conda-forge", "flat"])
def test_cuda_is_found(repository: Path, tmp_path: Path, inside: str) -> None:
    if shutil.which("cmake", path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip("the system has no cmake; later ones find more in a toolkit than this one has")
    home, modules = tmp_path / "cuda", tmp_path / "project" / "modules"
    for name in ("include/cuda_runtime.h", "lib/libcudart.so"):
        write(home / inside / name)
    program(home / "bin/nvcc", NVCC.format(top=home))
    write(modules / "upstream/FindCUDA/select_compute_arch.cmake", SELECT)
    shutil.copy(repository / "recipe/FindCUDA.cmake", modules)
    (tmp_path / "project/CMakeLists.txt").write_text(PROJECT)
    build = tmp_path / "build"
    environment = {"PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin"}
    printed = subprocess.run(
        ["cmake", "-S", str(tmp_path / "project"), "-B", str(build)],
        env=environment, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    folder = home if inside == "." else home / inside
    assert "-- version 13.0 13\n" in printed
    assert f"-- include {folder}/include\n" in printed
    assert f"-- runtime {folder}/lib/libcudart.so\n" in printed
    assert "-- flags for_9.0\n" in printed
    # setup.py reads it there, and ends without it
    assert f"CUDA_TOOLKIT_ROOT_DIR:PATH={home}\n" in (build / "CMakeCache.txt").read_text()
