"""What files consist of: every byte once, whatever is in them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from sizes_files import GPU_CODE, elf

from gpu_tools.sizes.inside import classify_path, read_parts
from gpu_tools.sizes.tree import NO_PACKAGE, ContentPart, Kind, Package, Sizes, find_requirers
from gpu_tools.subject_kind import SubjectKind


def parts(folder: Path, data: bytes, name: str = "lib/x.so") -> dict[str, int]:
    """Write a file and measure it."""
    file = folder / "file"
    file.write_bytes(data)
    found = read_parts(file, name, len(data))
    assert sum(found.values()) == len(data)
    return {f"{part.kind.value} {part.arch}".strip(): size for part, size in found.items()}


def test_gpu_code_is_told_apart_by_architecture_and_kind(tmp_path: Path) -> None:
    data = elf(
        [(".text", b"t" * 500), (".nv_fatbin", GPU_CODE), (".symtab", b"s" * 50), (".debug_info", b"d" * 70)]
    )
    found = parts(tmp_path, data)
    expected = {
        "GPU code sm_80": 1064, "GPU code sm_90a": 2064, "PTX compute_90": 364, "LTO-IR sm_75": 464,
        "symbol tables": 50, "debug information": 70,
    }  # fmt: skip
    assert expected.items() <= found.items()


@pytest.mark.parametrize("section", [".ldata", ".cask_resource", "__nv_relfatbin"])
def test_fatbins_are_found_outside_of_their_usual_section(tmp_path: Path, section: str) -> None:
    found = parts(tmp_path, elf([(section, b"before" + GPU_CODE + b"after")]))
    assert found["GPU code sm_80"] == 1064
    if section.startswith("."):  # the rest of data is data
        assert found["CPU code and data"] == 11 + len(b"\0.ldata\0.shstrtab\0") - 7 + len(section) + 1


_TWICE = [(".text", b"t" * 400), (".nv_fatbin", GPU_CODE), (".data", b"d" * 100), (".data", b"e" * 100)]
_HALF = len(elf(_TWICE)) // 2


@pytest.mark.parametrize(
    "data",
    [
        elf([(".text", b"t" * 8)], hole=bytes(64) + GPU_CODE + bytes(640)),
        elf(_TWICE, places={".text": (0, _HALF), ".data": (64, _HALF)}),
    ],
    ids=["outside of every section", "in sections that overlap or repeat"],
)
def test_gpu_code_counts_once(tmp_path: Path, data: bytes) -> None:
    assert parts(tmp_path, data)["GPU code sm_80"] == 1064


@pytest.mark.parametrize(
    "data",
    [
        elf([(".text", b"t" * 100)])[:-10],
        elf([(".text", b"t" * 100)])[:70],
        elf([(".text", b"t" * 100)], places={".text": (64, 1 << 60)}),
        b"\x7fELF\x02\x01" + bytes(10),
        b"\x7fELF\x02\x01\x01" + b"\xff" * 100,
        # no section headers at all
        struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, 0, 0, 64, 56, 0, 64, 0, 0)
        + b"x" * 50,
        # names without an end
        elf([(".text", b"t" * 100)], places={".shstrtab": (1, 1)})[:-1],
    ],
)
def test_a_damaged_library_is_not_attributed(tmp_path: Path, data: bytes) -> None:
    found = parts(tmp_path, data)
    assert found["not attributed"] >= len(data) - 64


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("torch/__init__.py", "Python"),
        ("torch/__pycache__/x.cpython-312.pyc", "byte code"),
        ("torch/include/ATen/ATen.h", "headers"),
        *[(f"torch/csrc/x{suffix}", "headers") for suffix in (".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl")],
        ("torch/share/Torch.cmake", "headers"),
        ("pkg/tests/test_x.py", "tests"),
        # a file that slimming removes in any folder, and metadata in any
        ("pkg/tests/__pycache__/test_x.cpython-312.pyc", "byte code"),
        ("pkg/include/x.a", "static libraries"),
        ("tests/pkg-1.0.dist-info/METADATA", "package metadata"),
        ("torch/testing/__init__.py", "Python"),  # part of torch, used by users' tests
        ("torch-2.0.dist-info/RECORD", "package metadata"),
        ("nvidia/nvshmem/lib/x.bc", "LTO-IR"),
        ("kernels/x.ptx", "PTX"),
        ("kernels/x.cubin", "GPU code"),
        ("x/lib/x.dylib", "other libraries"),
        ("share/man/man1/x.1", "documentation"),
        ("../../etc/passwd", "other files"),
    ],
)
def test_names_tell_what_needs_no_look(path: str, kind: str) -> None:
    assert classify_path(path) == kind


@pytest.mark.parametrize(("python", "required"), [("3.10", {"old", "late"}), ("3.12", {"new"})])
def test_requirements_are_those_of_the_python_that_is_asked_for(python: str, required: set[str]) -> None:
    requires = {
        "root": ["old; python_version < '3.11'", "new; python_full_version >= '3.12.5'", "not !! one"],
        "old": ["late", "optional; extra == 'x'"],
        "new": [],
    }
    assert find_requirers(["root"], requires, python).keys() == required


@pytest.mark.parametrize(("downloads", "total"), [([None, None], None), ([None, 7], 7), ([5, 7], 12)])
def test_unknown_downloads_are_not_counted_as_nothing(downloads: list[int | None], total: int | None) -> None:
    packages = tuple(Package(name=str(octets), files={}, download=octets) for octets in downloads)
    assert Sizes(subject="x", kind=SubjectKind.ENVIRONMENT, packages=packages).download == total


def test_files_of_no_package_and_unknown_content_are_not_attributed() -> None:
    known, unknown = {ContentPart(Kind.PYTHON): 10}, {ContentPart(Kind.UNKNOWN): 3}
    packages = (
        Package(name="x", files={"a": known, "b": unknown}),
        Package(name=NO_PACKAGE, files={"c": known, "d": unknown}),
    )
    assert Sizes(subject="x", kind=SubjectKind.ENVIRONMENT, packages=packages).unattributed == 16


def test_a_file_that_cannot_be_read_is_no_file_of_an_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_parts(tmp_path / "data", "lib/data", 10)
