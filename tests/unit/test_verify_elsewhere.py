"""verify judges extensions that Python imports from outside site-packages: eggs, editable ones, .pth files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpu_tools.site_packages import find_import_folders
from gpu_tools.verify.check import verify

SITE = "lib/python3.12/site-packages"
NEEDS = "namespace c10 { void gone_in_2_13(); } void call() { c10::gone_in_2_13(); }"
HAS = "namespace c10 { void stays() {} }"
FINDER = "MAPPING: dict[str, str] = {'torch_scatter': '%s/torch_scatter', 'a.b': '/x/b'}\nNAMESPACES = {}\n"


def library(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)


def distribution(site: Path, name: str, version: str) -> Path:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """An environment with torch 2.13.0."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    site = tmp_path / "env" / SITE
    library(site / "torch/lib/libc10.so", HAS)
    (site / "torch/version.py").write_text("__version__ = '2.13.0'\ncuda = None\n")
    distribution(site, "torch", "2.13.0")
    (tmp_path / "env" / "bin").mkdir()
    return tmp_path / "env"


@pytest.mark.parametrize("how", ["easy-install", "pth", "finder"])
def test_an_extension_outside_site_packages_is_judged(env: Path, tmp_path: Path, how: str) -> None:
    site, sources = env / SITE, tmp_path / "src"
    egg = site / "torch_scatter-2.1.2-py3.12-linux-x86_64.egg"
    for module in ("scatter", "segment_coo", "segment_csr", "version"):
        folder = egg if how == "easy-install" else sources
        library(folder / f"torch_scatter/_{module}_cpu.so", NEEDS)
    if how == "easy-install":
        (site / "easy-install.pth").write_text(f"import sys\n./{egg.name}\n")
    elif how == "pth":
        (site / "__editable__.torch_scatter-2.1.2.pth").write_text(f"{sources}\n")
    elif how == "finder":
        (site / "__editable___torch_scatter_2_1_2_finder.py").write_text(FINDER % sources)
    verdict = verify(env)
    assert not verdict.ok
    wrong = [library for library in verdict.libraries if library.module == "torch_scatter"]
    assert len(wrong) == 4
    assert all("c10::gone_in_2_13" in library.reason for library in wrong)


def test_an_editable_extension_that_is_not_found_is_an_open_question(env: Path) -> None:
    distribution(env / SITE, "torch_scatter", "2.1.2")
    verdict = verify(env)
    assert verdict.unknown
    assert any("editable" in library.reason for library in verdict.libraries)


def test_torch_of_another_folder_is_named(env: Path, tmp_path: Path) -> None:
    (env / SITE / "torch").rename(tmp_path / "torch")
    (env / SITE / "overlay.pth").write_text(f"# of another environment\n\n{tmp_path}\n")
    assert any(f" {tmp_path}: " in note and "--beside" in note for note in verify(env).notes)


def test_lines_that_are_no_folders_name_none(env: Path) -> None:
    site = env / SITE
    (site / "x.pth").write_text("import os; os.remove('x')\n#/usr\n/nowhere\n\n")
    (site / "y.pth").write_bytes(b"\xff\xfe\0")
    assert find_import_folders(site) == []
