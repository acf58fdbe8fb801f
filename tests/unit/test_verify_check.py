"""The verdict about a whole package: every library counts, and so does what metadata say of it."""

from __future__ import annotations

import _ctypes
import zipfile
from pathlib import Path

import pytest

from gpu_tools.verify.check import verify
from gpu_tools.verify.verdict import Expectation


def wheel(folder: Path, build: str, **libraries: bytes) -> Path:
    """A wheel of a module that the table of extensions does not know."""
    path = folder / f"other-1.0+{build}-cp312-cp312-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in libraries.items():
            archive.writestr(f"other/{name}.so", content)
        archive.writestr(f"other-1.0+{build}.dist-info/METADATA", f"Name: other\nVersion: 1.0+{build}\n")
        archive.writestr(f"other-1.0+{build}.dist-info/WHEEL", "Tag: cp312-cp312-linux_x86_64\n")
    return path


def test_a_library_that_cannot_be_read_is_a_fault_beside_good_ones(tmp_path: Path) -> None:
    good = Path(_ctypes.__file__).read_bytes()
    assert verify(wheel(tmp_path, "pt213cpu", good=good)).ok
    verdict = verify(wheel(tmp_path, "pt213cpu", good=good, torn=b"\x7fELF" + bytes(60)))
    assert [(one.path.rpartition("/")[2], one.ok) for one in verdict.libraries] == [
        ("torn.so", False),
        ("good.so", True),
    ]
    assert not verdict.ok


@pytest.mark.parametrize(
    ("build", "accelerator", "said"),
    [
        ("pt213cu130", "cpu", "built for CUDA 13.0"),
        ("pt213cpu", "cuda130", "built for the CPU"),
        ("pt213cu126", "cuda130", "built for CUDA 12.6"),
    ],
)
def test_a_build_for_another_processor_is_refused_whatever_its_libraries_hold(
    build: str, accelerator: str, said: str, tmp_path: Path
) -> None:
    path = wheel(tmp_path, build, good=Path(_ctypes.__file__).read_bytes())
    verdict = verify(path, expect=Expectation(accelerator=accelerator))
    assert not verdict.ok
    assert said in verdict.libraries[0].reason
