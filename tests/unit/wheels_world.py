"""A compiled PyTorch of four tiny libraries and an extension for it, published as a run of a compiled config does.

The libraries are really linked, with versions in their names and RPATHs as in Debian's builds; one of them needs a
library of the channel beside. ``import torch`` loads them, and so does the extension. Compiled for CUDA, it
needs two of NVIDIA's libraries besides.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rattler_build import assemble_package
from small_files import write
from tiny import make_channel, publish

from groundwork.channel import Channel
from megabuild.store import published

CONFIG = "linux_64_cpu_debian"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TAG = f"cp{PYTHON.replace('.', '')}"
DATE = 1_700_000_000
_TORCH = """\
import ctypes, os, subprocess
from torch.version import __version__
_here = os.path.dirname(__file__)
cpu = ctypes.CDLL(os.path.join(_here, "lib", "libtorch_cpu.so"))
answer = cpu.answer()
manager = subprocess.run([os.path.join(_here, "bin", "torch_shm_manager")]).returncode
"""
_EXTENSION = """\
import ctypes, glob, os, torch
answer = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "_basis_cpu.so")).twice()
"""


def library(path: Path, code: str, *options: str) -> Path:
    """Compile a library, or with ``-no-pie`` a program, that looks for others as conda's do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shared = [] if "-no-pie" in options else ["-shared", "-fPIC", f"-Wl,-soname,{path.name}"]
    command = ["cc", *shared, "-x", "c", "-", "-x", "none", "-o", str(path), "-Wl,--no-as-needed", *options]
    subprocess.run([*command, "-Wl,--disable-new-dtags"], input=code, text=True, check=True)
    return path


def _package(
    folder: Path, content: Path, name: str, version: str, build: str, depends: Sequence[str]
) -> Path:
    made = assemble_package(
        name=name, version=version, build_string=build, target_platform="linux-64", output_dir=folder,
        files_dir=content, compression_level=1, detect_prefix=False, depends=list(depends),
        license_files=[content.parent / "LICENSE"],
    )  # fmt: skip
    return Path(str(made.path))


def _dist_info(site: Path, name: str, version: str, requires: Sequence[str] = ()) -> None:
    folder = site / f"{name}-{version}.dist-info"
    lines = [f"Name: {name}", f"Version: {version}", "Requires-Python: >=3.9"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    write(folder / "METADATA", "\n".join(["Metadata-Version: 2.1", *lines, "", f"{name}, in short", ""]))
    write(folder / "WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}-{TAG}-linux_x86_64\n")
    write(folder / "INSTALLER", "conda\n")
    write(folder / "RECORD", "")
    write(folder / "LICENSE", f"{name}'s licence\n")


def nvidias(folder: Path) -> tuple[Path, Path]:
    """Compile what stands for NVIDIA's libraries."""
    return (
        library(folder / "cuda_runtime" / "lib" / "libcudart.so.12", "int cuda(void) { return 0; }"),
        library(folder / "cudnn" / "lib" / "libcudnn.so.9", "int cudnn(void) { return 0; }"),
    )


def make(folder: Path, accelerator: str = "cpu") -> Path:
    """Make that world in a folder; returns the output folder of its run."""
    packages = folder / "made" / "linux-64"
    packages.mkdir(parents=True)
    write(folder / "LICENSE", "libtorch's licence\n")
    outer, libtorch, pytorch, extension = (
        folder / name for name in ("outer", "libtorch", "pytorch", "spline")
    )
    for_cuda = list(map(str, nvidias(folder / "nvidia"))) if accelerator != "cpu" else []
    odd = library(outer / "lib" / "libodd.so.1", "int odd(void) { return 20; }", *for_cuda[:1])
    c10 = library(libtorch / "lib" / "libc10.so.2.6", "int one(void) { return 1; }", "-Wl,-rpath,$ORIGIN")
    cpu = library(
        libtorch / "lib" / "libtorch_cpu.so.2.6",
        "int one(void); int odd(void); int answer(void) { return one() + odd(); }",
        str(c10), str(odd), *for_cuda, "-Wl,-rpath,$ORIGIN/",
    )  # fmt: skip
    library(
        libtorch / "bin" / "torch_shm_manager",
        "int one(void); int main(void) { return one() + 2; }",
        str(c10), "-no-pie", "-Wl,-rpath,$ORIGIN/../lib",
    )  # fmt: skip
    for name in ("libc10", "libtorch_cpu"):
        (libtorch / "lib" / f"{name}.so").symlink_to(f"{name}.so.2.6")
    write(libtorch / "include" / "c10" / "c10.h", "int one(void);\n")
    write(libtorch / "share" / "cmake" / "Torch" / "Targets.cmake", '"${_PREFIX}/lib/libc10.so.2.6"\n')

    site = pytorch / "lib" / f"python{PYTHON}" / "site-packages"
    write(site / "torch" / "__init__.py", _TORCH)
    write(site / "torch" / "version.py", "__version__ = '2.6.0+debian'\n")
    write(site / "torch" / "__pycache__" / "version.pyc", "byte code")
    write(site / "torch" / "include" / "own.h", "int own;\n")
    up = "../" * 5
    links = [f"lib/{path.name}" for path in (libtorch / "lib").iterdir()]
    for place in [*links, "bin/torch_shm_manager", "share/cmake/Torch/Targets.cmake", "include/c10"]:
        (site / "torch" / place).parent.mkdir(parents=True, exist_ok=True)
        (site / "torch" / place).symlink_to("../" * place.count("/") + up[3:] + place)
    _dist_info(site, "torch", "2.6.0+debian")

    inside = extension / "lib" / f"python{PYTHON}" / "site-packages"
    write(inside / "torch_spline_conv" / "__init__.py", _EXTENSION)
    library(
        inside / "torch_spline_conv" / "_basis_cpu.so",
        "int answer(void); int twice(void) { return 2 * answer(); }",
        str(cpu), "-Wl,--unresolved-symbols=ignore-in-shared-libs", "-Wl,-rpath,$ORIGIN/../../..",
    )  # fmt: skip
    _dist_info(inside, "torch_spline_conv", "1.2.2", ['pytest; extra == "test"'])

    write(outer / "include" / "pybind11" / "detail" / "common.h", "int pybind11;\n")
    beside = folder / "beside"
    _package(beside / "linux-64", outer, "outer", "1.0", "0", ())
    needs = ["outer", "__glibc >=2.90,<3.0.a0"]
    if for_cuda:
        inner = folder / "inner"
        (inner / "lib").mkdir(parents=True)
        for path in for_cuda:
            shutil.copy(path, inner / "lib")
        _package(beside / "linux-64", inner, "libcudnn", "9.1.0.70", "0", ())
        needs += ["libcudnn >=9.1.0.70,<10.0a0", "__cuda"]
    make_channel(beside, (("python", f"{PYTHON}.1", "0"), ("triton", "3.2.0", "0")))
    python = f"py{PYTHON.replace('.', '')}"
    flavour = f"{accelerator}_generic"
    build = f"{flavour}_{python}_h1_0"
    exact = [f"python {PYTHON}.*", f"pytorch ==2.6.0 {build}", f"libtorch ==2.6.0 {flavour}_h0_0"]
    triton = ["triton ==3.2.0"] if for_cuda else []
    made = [
        _package(packages, libtorch, "libtorch", "2.6.0", f"{flavour}_h0_0", needs),
        _package(packages, pytorch, "pytorch", "2.6.0", build, [exact[0], exact[2], *triton]),
        _package(packages, extension, "pytorch_spline_conv", "1.2.2", f"{flavour}_{python}_h2_0", exact),
    ]
    output = folder / "output"
    publish(output / "packages" / CONFIG, made)
    published.note_channels(output / "packages" / CONFIG, [Channel.of_folder(beside)])
    return output
