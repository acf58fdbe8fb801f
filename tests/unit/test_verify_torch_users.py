"""verify judges all modules that link to torch, and extensions that Python imports from outside site-packages."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from small_files import shared_library, write

from gpu_tools.site_packages import find_import_folders
from gpu_tools.verify import inspected_environment
from gpu_tools.verify.check import LibraryVerdict, verify

SITE = "lib/python3.12/site-packages"
STAYS = "namespace c10 { void stays(); } void call() { c10::stays(); }"
GONE = STAYS + " namespace c10 { void gone(); } void old() { c10::gone(); }"
FINDER = "MAPPING: dict[str, str] = {'torch_scatter': '%s/torch_scatter', 'a.b': '/x/b'}\nNAMESPACES = {}\n"


def library(path: Path, source: str, *needed: Path) -> None:
    links = [word for file in needed for word in (f"-L{file.parent}", f"-l:{file.name}")]
    shared_library(path, source, *links, compiler="g++")


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


def distribution(site: Path, name: str) -> None:
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    write(site / f"{name}-1.0.dist-info" / "METADATA", text)


def install(site: Path, name: str, version: str, file: str, source: str = STAYS, *needed: Path) -> None:
    distribution(site, name)
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


@pytest.mark.parametrize("how", ["easy-install", "pth", "finder"])
def test_an_extension_outside_site_packages_is_judged(site: Path, tmp_path: Path, how: str) -> None:
    (site / "torch/version.py").write_text("__version__ = '2.13.0'\ncuda = None\n")
    egg = site / "torch_scatter-2.1.2-py3.12-linux-x86_64.egg"
    sources = egg if how == "easy-install" else tmp_path / "src"
    for module in ("scatter", "segment_coo", "segment_csr", "version"):
        library(sources / f"torch_scatter/_{module}_cpu.so", GONE)
    name, text = {
        "easy-install": ("easy-install.pth", f"import sys\n./{egg.name}\n"),
        "pth": ("__editable__.torch_scatter-2.1.2.pth", f"{sources}\n"),
        "finder": ("__editable___torch_scatter_2_1_2_finder.py", FINDER % sources),
    }[how]
    (site / name).write_text(text)
    libraries = verify(tmp_path).libraries
    wrong = [one for one in libraries if one.module == "torch_scatter" and "c10::gone" in one.reason]
    assert len(wrong) == 4


def test_an_extension_without_files_is_an_open_question(site: Path, tmp_path: Path) -> None:
    distribution(site, "torch_scatter")
    verdict = verify(tmp_path)
    assert verdict.unknown
    assert any("editable" in library.reason for library in verdict.libraries)


def test_torch_of_another_folder_is_the_one_to_fit(site: Path, tmp_path: Path) -> None:
    install(site, "torchvision", "1.0", "torchvision/_C.so", GONE)
    (site / "torch").rename(tmp_path / "torch")
    (site / "overlay.pth").write_text(f"# of another environment\n\n{tmp_path}\n")
    verdict = verify(tmp_path)
    assert f"torch is imported from {tmp_path}" in verdict.notes
    assert [library.ok for library in verdict.libraries if library.module == "torchvision"] == [False]


def test_lines_that_are_no_folders_name_none(site: Path) -> None:
    (site / "x.pth").write_text("import os; os.remove('x')\n#/usr\n/nowhere\n\n")
    (site / "y.pth").write_bytes(b"\xff\xfe\0")
    assert find_import_folders(site) == []


def test_all_libraries_of_editable_installations_are_read(tmp_path: Path) -> None:
    folders = [tmp_path / "b", tmp_path / "a"]
    wanted = {write(folder / "torch_scatter" / f"_{name}_cpu.so", "x") for folder in folders for name in "cd"}
    found = object.__new__(inspected_environment._Environment)
    vars(found).update(_prefix=tmp_path, _site=tmp_path / "site", _elsewhere=folders, _user_libraries=[])
    assert {*found.find_libraries()["torch_scatter"].values()} == wanted


@pytest.mark.parametrize("places", [(), ("site",), ("other",), ("site", "other")], ids="-".join)
def test_the_torch_of_site_packages_comes_before_one_of_a_pth_file(
    places: tuple[str, ...], tmp_path: Path
) -> None:
    for place in places:
        write(tmp_path / place / "torch/version.py", f"__version__ = '{place}'\n")
    found = object.__new__(inspected_environment._Environment)
    vars(found).update(_prefix=tmp_path, _site=tmp_path / "site", _elsewhere=[tmp_path / "other"], damaged=[])
    torch = found.read_torch()
    assert (torch.version if torch else None) == next(iter(places), None)


@pytest.mark.parametrize(
    ("folder", "prefix"),
    [("other/lib/python3.12/site-packages", "other"), ("src/torch/python", "env"), ("", "env")],
)
def test_a_torch_of_another_environment_is_read_with_the_libraries_there(
    folder: str, prefix: str, tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    assert inspected_environment._find_prefix(tmp_path / folder, tmp_path / "env") == tmp_path / prefix
