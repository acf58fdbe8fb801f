"""The live feedstock with a patch of contrib, and its build.sh on the CMake graph of real PyTorch 2.6.0."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from real_graph import DEPFILES, RECIPE, TOOLS, TREE, RealGraph
from small_files import program

CLONE = "MEGABUILD_TEST_FEEDSTOCK"
#: The commit of the feedstock's main branch that the patches are for, of 2026-08-13: PyTorch 2.13.0, build 2.
MADE_FOR = "74dd3d46ff0c3d05053197961386b5a2018cf3d1"
#: The last line of build.sh before it begins to build; its second half is what runs here.
BUILDS = "\ncase ${PKG_NAME} in\n"
#: conda-forge's build.sh turns on what Debian's source lacks: its third_party is empty.
_DEBIAN = """
export USE_SYSTEM_LIBS=ON BLAS=Generic GENERIC_BLAS_LIBRARIES=blas ONNX_NAMESPACE=onnx
export USE_MKLDNN=0 USE_SYSTEM_FMT=0
"""
#: Folders that build.sh moves by name, of which one is not there without tensorpipe.
_HEADERS = "{ATen,caffe2,tensorpipe,torch,c10}"


def applied(patch: Path | None, folder: Path) -> Path:
    """Check out the commit that the patches are for, apply one as a maintainer would, and return the recipe.

    Skips the test where the environment names no clone.
    """
    clone = os.environ.get(CLONE, "")
    if not clone:
        pytest.skip(f"{CLONE} names no clone of https://github.com/conda-forge/pytorch-cpu-feedstock")
    git = ["git", "-c", "user.name=a test", "-c", "user.email=test@localhost", "-C", str(folder)]
    subprocess.run(["git", "clone", "-q", "--shared", "-n", clone, str(folder)], check=True)
    subprocess.run([*git, "checkout", "-q", "-b", "patched", MADE_FOR], check=True)
    if patch:
        subprocess.run([*git, "am", "-q", str(patch)], check=True)
    return folder / "recipe"


def lay_out(graph: RealGraph, recipe: Path, debian_patches: Path) -> None:
    """Debian's sources as build.sh expects them, and build.sh with Debian's settings before it builds."""
    tree = graph.work / "tree"
    for patch in sorted(debian_patches.glob("*.patch")):
        subprocess.run(["patch", "-s", "-p1", "-i", str(patch)], cwd=tree, check=True)
    (tree / "third_party" / "NNPACK" / "cmake").mkdir(parents=True, exist_ok=True)
    # of rsync, build.sh wants that it merges folders
    program(graph.tools / "bin" / "rsync", 'for last; do :; done\nmkdir -p "$last" && exec cp "$@"')
    swap = Path(__file__).resolve().parents[2] / "recipe" / "swap" / "cmake_python_swap"
    shutil.copytree(swap, graph.tools / "python" / swap.name)  # the stub reads ninja's graph with it
    shutil.copytree(recipe, graph.recipe)
    script = graph.recipe / "build.sh"
    text = script.read_text()
    for old, new in ((BUILDS, _DEBIAN + BUILDS), (_HEADERS, _HEADERS.replace("tensorpipe,", ""))):
        assert text.count(old) == 1
        text = text.replace(old, new)
    script.write_text(text)


def build(graph: RealGraph, python: str, package: str) -> subprocess.CompletedProcess[str]:
    """Run build.sh for a package as conda-build would, with a compiler that compiles nothing."""
    flags = (
        f"-O2 -isystem {graph.prefix}/include -fdebug-prefix-map={TREE}=/usr/local/src/conda/{package}-2.6.0 "
        f"-fdebug-prefix-map={graph.prefix}=/usr/local/src/conda-prefix"
    )
    environment = {
        "PATH": f"{TOOLS}/bin:{graph.prefix}/bin:/usr/bin:/bin",
        "CFLAGS": flags,
        "CXXFLAGS": flags,
        "LDFLAGS": "-Wl,-O2 -Wl,--as-needed -Wl,-z,now",
        "CMAKE_ARGS": f"-DCMAKE_INSTALL_PREFIX={graph.prefix} -DCMAKE_INSTALL_LIBDIR=lib",
        "PKG_NAME": package,
        "PKG_VERSION": "2.6.0",
        "PY_VER": python,
        "SP_DIR": f"{graph.prefix}/lib/python{python}/site-packages",
        "SRC_DIR": TREE,
        "RECIPE_DIR": RECIPE,
        "SHLIB_EXT": ".so",
        "CPU_COUNT": "3",  # build.sh leaves one of them alone
        "c_compiler": "gcc",
        "build_platform": "linux-64",
        "target_platform": "linux-64",
        "blas_impl": "generic",
        "cuda_compiler_version": "None",
        # of the stub, see stub_cmake.sh and stub_compiler.sh
        "PYTHONPATH": f"{TOOLS}/python",
        "STUB_LISTS": DEPFILES,
        "STUB_FOLDER": TREE,
        # the stub's libraries hold nothing, no RPATH either
        "CMAKE_SKIP_RPATH": "ON",
        "PIP_NO_COMPILE": "1",
    }
    # one stream, and no terminal
    command = ["bash", "-c", f"exec bash {RECIPE}/build.sh 2>&1"]
    return graph.run(python, command, environment=environment, writable=True)


def must_build(graph: RealGraph, python: str, package: str) -> int:
    """Build a package; returns the steps that ninja finished, in all its runs."""
    result = build(graph, python, package)
    assert result.returncode == 0, result.stdout[-6000:]
    return len(re.findall(r"^ *\[\d+/\d+\]", result.stdout, re.MULTILINE))


def give_libtorch(graph: RealGraph, staging: str, others: Iterable[str]) -> None:
    """Copy the files of the libtorch output into the other environments, as its package does."""
    prefixes = graph.work / "prefixes"
    folders = ("share/cmake/Torch", *(f"include/{name}" for name in ("ATen", "c10", "torch", "caffe2")))
    libraries = [
        f"lib/{path.name}"
        for path in (prefixes / staging / "lib").glob("lib[cts]*.so*")
        if path.name.startswith(("libc10", "libtorch", "libshm"))
    ]
    for python in others:
        for name in ("bin/torch_shm_manager", *folders, *libraries):
            (prefixes / python / name).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", prefixes / staging / name, prefixes / python / name], check=True)
