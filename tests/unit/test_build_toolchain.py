"""The toolchain file that the build scripts write, as CMake reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# as PyTorch's FindOpenBLAS does it, and what ATen's CMake file reads afterwards
PROJECT = """\
cmake_minimum_required(VERSION 3.18)
project(blas LANGUAGES C)
find_library(OpenBLAS_LIB NAMES openblas PATHS $ENV{OpenBLAS_HOME}/lib NO_DEFAULT_PATH)
message(STATUS "libraries ${OpenBLAS_LIB}")
message(STATUS "dot ${BLAS_USE_CBLAS_DOT}")
"""


def configured(repository: Path, folder: Path, blas: str) -> str:
    """What a project prints that is configured with the toolchain file for a BLAS."""
    programs = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    environment = {
        "PATH": programs, "PREFIX": str(folder / "env"), "SRC_DIR": str(folder), "CPU_COUNT": "2",
        "RECIPE_DIR": str(repository / "recipe"), "target_platform": "linux-64", "torch_optimization": "2",
        "blas_impl": blas, "provider": "conda-forge", "torch_source": "official", "torch_version": "2.13.0",
        "cuda_compiler_version": "None",
    }  # fmt: skip
    script = 'source "$RECIPE_DIR/build_env.sh"; write_toolchain "$CMAKE_TOOLCHAIN_FILE"; cmake -S . -B build'
    (folder / "CMakeLists.txt").write_text(PROJECT)
    command = ["bash", "-ec", script]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("blas", ["generic", "mkl"])
def test_complex_dot_products_go_through_cblas_and_generic_needs_no_openblas(
    repository: Path, tmp_path: Path, blas: str
) -> None:
    printed = configured(repository, tmp_path, blas)
    assert "-- dot TRUE\n" in printed
    libraries = ";".join(f"{tmp_path}/env/lib/lib{name}.so" for name in ("lapack", "cblas", "blas"))
    assert (f"-- libraries {libraries}\n" in printed) == (blas == "generic")


def test_an_unchanged_toolchain_file_keeps_its_date(repository: Path, tmp_path: Path) -> None:
    """A newer one would have CMake configure a tree again."""
    configured(repository, tmp_path, "mkl")
    made = tmp_path / "conda-toolchain.cmake"
    os.utime(made, (1, 1))
    configured(repository, tmp_path, "mkl")
    assert made.stat().st_mtime == 1
    configured(repository, tmp_path, "generic")
    assert made.stat().st_mtime > 1
    assert not list(tmp_path.glob("*.new"))
