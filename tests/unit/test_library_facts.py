"""What a compiled library says about its accelerator, its Python and its processor."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from wheels_world import library

from cuda_code import library_facts
from cuda_code.elf_file import NotElf

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed")


@pytest.mark.parametrize(
    ("linked", "other", "runtime"),
    [
        ("libcudart-faf08d9a.so.13", None, 13),
        ("libamdhip64.so.6", ("ROCm", "libamdhip64.so.6"), None),
        ("libze_loader.so.1", ("XPU", "libze_loader.so.1"), None),
        ("libother.so", ("ROCm", ".hip_fatbin"), None),
    ],
)
def test_the_accelerator_is_that_of_a_linked_library_or_of_a_section(
    linked: str, other: tuple[str, str] | None, runtime: int | None, tmp_path: Path
) -> None:
    section = (
        'const char x[] __attribute__((section(".hip_fatbin"))) = "x"; ' if linked == "libother.so" else ""
    )
    code = f"{section}int PyLong_AsLong(int); int y(void) {{ return PyLong_AsLong(1); }}"
    file = library(tmp_path / "x.cpython-313t.so", code, str(library(tmp_path / linked, "int a;")))
    facts = library_facts.read(file, file.name)
    assert facts is not None
    assert (facts.other, facts.cuda_runtime, facts.links_cuda) == (other, runtime, runtime is not None)
    assert (facts.machine, facts.uses_python) == (os.uname().machine, True)
    assert facts.pythons[0][0] == "3.13t"


@pytest.mark.parametrize(
    ("name", "needed", "constants", "pythons"),
    [
        ("_x_cpu.so", ("libc.so.6",), b"", []),
        ("_x.cpython-312-x86_64-linux-gnu.so", (), b"", [("3.12", "its file name")]),
        ("_x.cpython-314t.so", (), b"", [("3.14t", "its file name")]),
        ("_x.abi3.so", ("libpython3.so",), b"", [("abi3", "its file name")]),
        ("_x.so", ("libc.so.6", "libpython3.13t.so.1.0"), b"", [("3.13t", "libpython3.13t.so.1.0")]),
        (
            "_x.cpython-312.so",
            ("libpython3.11.so",),
            (
                b"a/lib/python3.13t/dist-packages/torch/include/c10/x.h\0"
                b"a/lib/python3.10/site-packages/torch/include/c10/x.h\0"
                b"a/lib/python3.10/site-packages/torch/include/c10/y.h\0"
                b"a/lib/python3.9/site-packages/numpy/include/x.h\0"
            ),
            [
                ("3.12", "its file name"),
                ("3.11", "libpython3.11.so"),
                ("3.10", library_facts.TORCH_HEADERS),
                ("3.13t", library_facts.TORCH_HEADERS),
            ],
        ),
    ],
)
def test_every_python_that_a_library_names_is_listed_with_its_place(
    name: str, needed: tuple[str, ...], constants: bytes, pythons: list[tuple[str, str]]
) -> None:
    assert list(library_facts._pythons(f"folder/{name}", needed, constants)) == pythons


def test_a_pipe_in_place_of_a_library_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libx.so")
    with pytest.raises(NotElf, match="a pipe"):
        library_facts.read(tmp_path / "libx.so", "libx.so")
