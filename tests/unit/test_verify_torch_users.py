"""verify judges all modules of an environment that link to torch: torchvision, torchaudio, flash-attn."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpu_tools.verify.check import LibraryVerdict, verify

SITE = "lib/python3.12/site-packages"
STAYS = "namespace c10 { void stays(); } void call() { c10::stays(); }"
GONE = STAYS + " namespace c10 { void gone(); } void old() { c10::gone(); }"


def library(path: Path, source: str, *needed: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    links = [word for file in needed for word in ("-L", str(file.parent), f"-l:{file.name}")]
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", *links, "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """site-packages with torch 2.13.0 for CUDA 13.2."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    site = tmp_path / SITE
    library(site / "torch/lib/libc10.so", "namespace c10 { void stays() {} }")
    (site / "torch/version.py").write_text("__version__ = '2.13.0+cu132'\ncuda = '13.2'\n")
    (tmp_path / "bin").mkdir()
    return site


def install(site: Path, name: str, version: str, file: str, source: str = STAYS, *needed: Path) -> None:
    information = site / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    library(site / file, source, site / "torch/lib/libc10.so", *needed)
    (site / name / "version.py").write_text(f"__version__ = '{version}'\n")


def judge(site: Path) -> LibraryVerdict:
    prefix = site.parent.parent.parent
    (judged,) = [library for library in verify(prefix).libraries if library.module != "torch"]
    return judged


@pytest.mark.parametrize(
    ("name", "local", "fault"),
    [
        ("torchaudio", "cu132", ""),
        ("torchaudio", "cu130", "built for CUDA 13.0"),  # it raises on import
        ("torchvision", "cu130", ""),  # it compares major versions
        ("torchvision", "cu129", "built for CUDA 12.9"),
        ("torchvision", "cpu", "built for the CPU"),
    ],
)
def test_the_cuda_in_a_modules_version_counts(name: str, local: str, fault: str, site: Path) -> None:
    install(site, name, f"1.0+{local}", f"{name}/_C.so")
    judged = judge(site)
    assert judged.module == name
    assert judged.reason.startswith(fault)
    assert judged.ok == (not fault)


def test_a_module_for_another_torch_is_found(site: Path) -> None:
    install(site, "xformers", "1.0", "xformers/lib/_C.so", GONE)
    assert re.search(r" 2\.13\.0\+cu132 .* c10::gone$", judge(site).reason)


def test_a_copied_cuda_runtime_of_another_version_is_found(site: Path, tmp_path: Path) -> None:
    runtime = tmp_path / "torchvision.libs/libcudart.faf08d9a.so.12"
    library(runtime, "void cudaMalloc() {}")
    use = "extern void cudaMalloc(); void more() { cudaMalloc(); }"
    install(site, "torchvision", "1.0", "torchvision/image.so", STAYS + use, runtime)
    assert "CUDA 12" in judge(site).reason


def test_a_library_beside_the_packages_is_judged_as_well(site: Path) -> None:
    file = site / "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"
    library(file, STAYS, site / "torch/lib/libc10.so")
    assert judge(site).module == "flash_attn_2_cuda"
    assert "Python 3.11" in judge(site).reason


@pytest.mark.parametrize(("more", "fault"), [("", ""), ("PyErr_Print", "built for Python 3.10")])
def test_headers_of_another_python_count_only_with_its_interface(more: str, fault: str, site: Path) -> None:
    """torch loads xformers/_C.so, compiled with 3.10, in any Python."""
    header = 'extern const char path[] = "/opt/lib/python3.10/site-packages/torch/include/ATen/core/x.h";'
    call = f'extern "C" void {more}(); void print() {{ {more}(); }}' if more else ""
    install(site, "xformers", "1.0", "xformers/_C.so", STAYS + header + call)
    assert judge(site).reason.startswith(fault)
    assert judge(site).ok == (not fault)


def test_libraries_that_do_not_link_to_torch_are_left_out(site: Path) -> None:
    library(site / "numpy/core.cpython-311-x86_64-linux-gnu.so", "void add() {}")
    (site / "numpy/damaged.so").write_bytes(b"\x7fELF")
    assert {library.module for library in verify(site.parent.parent.parent).libraries} == {"torch"}
