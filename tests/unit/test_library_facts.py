"""What a compiled library says about its accelerator, its Python and its processor."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from wheels_world import library

from cuda_code import library_facts

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
