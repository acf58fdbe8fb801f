"""The toolchain file that the build scripts write, as CMake reads it."""

from __future__ import annotations

import os
import shutil
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


def settings(repository: Path, folder: Path, blas: str) -> dict[str, str]:
    """The variables of a build script."""
    programs = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    return {
        "PATH": programs, "PREFIX": str(folder / "env"), "SRC_DIR": str(folder), "CPU_COUNT": "2",
        "RECIPE_DIR": str(repository / "recipe"), "target_platform": "linux-64", "torch_optimization": "2",
        "blas_impl": blas, "provider": "conda-forge", "torch_source": "official", "torch_version": "2.13.0",
        "cuda_compiler_version": "None",
    }  # fmt: skip


def configured(repository: Path, folder: Path, blas: str) -> str:
    """What a project prints that is configured with the toolchain file for a BLAS."""
    environment = settings(repository, folder, blas)
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


@pytest.mark.skipif(shutil.which("ccache") is None, reason="ccache is not installed")
def test_a_header_of_another_content_is_compiled_whatever_its_size_and_date(
    repository: Path, tmp_path: Path
) -> None:
    """Files of a local package all have one date."""
    script = 'source "$RECIPE_DIR/build_env.sh"; ccache cc -c -o a.o a.c; strings a.o'
    (tmp_path / "a.c").write_text('#include "a.h"\nconst char* answer(void) { return ANSWER; }\n')
    environment = settings(repository, tmp_path, "mkl") | {
        "TORCH_CCACHE": "ccache", "CCACHE_DIR": str(tmp_path / "objects"), "CCACHE_CONFIGPATH": os.devnull,
    }  # fmt: skip
    for answer in ("first", "other"):
        (tmp_path / "a.h").write_text(f'#define ANSWER "{answer}"\n')
        os.utime(tmp_path / "a.h", (1, 1))
        printed = subprocess.run(
            ["bash", "-ec", script], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout
        assert answer in printed.split()


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
