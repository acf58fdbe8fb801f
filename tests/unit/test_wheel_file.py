"""Wheels are packed reproducibly, unpacked with their programs, renamed, and checked against their names."""

from __future__ import annotations

import csv
import os
import stat
import zipfile
from pathlib import Path

import pytest
from small_files import program, write

from groundwork import wheel_file
from groundwork.errors import IntegrityError

METADATA = """\
Metadata-Version: 2.1
Name: My.Torch
Version: 1.0
Requires-Dist: NVIDIA_cublas==1 ; python_version >= "3.9"
Requires-Dist: filelock

Version: in the text
"""
DATE = 1_600_000_000


def tree(folder: Path, name: str = "my_torch-1.0") -> Path:
    """Write an unpacked wheel: a module, a program, and metadata with an old RECORD."""
    write(folder / f"{name}.dist-info" / "METADATA", METADATA)
    write(folder / f"{name}.dist-info" / "RECORD", "gone.py,,\n")
    write(folder / "z.py", "x = 1\n")
    write(folder / "a, b.py", "")
    program(folder / "torch" / "bin" / "tool", "true")
    return folder


@pytest.mark.parametrize("compressed", [True, False])
def test_a_packed_wheel_has_all_files_in_order_and_their_hashes(compressed: bool, tmp_path: Path) -> None:
    source = tree(tmp_path / "tree")
    wheel = wheel_file.pack(source, tmp_path / "a.whl", DATE, compressed=compressed)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entries = archive.infolist()
        rows = list(csv.reader(archive.read(names[-1]).decode().splitlines()))
    of_metadata = [f"my_torch-1.0.dist-info/{name}" for name in ("METADATA", "RECORD")]
    assert names == ["a, b.py", "torch/bin/tool", "z.py", *of_metadata]
    assert [row[0] for row in rows] == names
    assert rows[2][1:] == ["sha256=nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q", "6"]
    assert rows[-1] == [of_metadata[-1], "", ""]
    assert {entry.date_time for entry in entries} == {(2020, 9, 13, 12, 26, 40)}
    how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    assert {entry.compress_type for entry in entries} == {how}


def test_programs_stay_programs_and_other_modes_do_not_matter(tmp_path: Path) -> None:
    source = tree(tmp_path / "tree")
    (source / "z.py").chmod(0o600)
    first = wheel_file.pack(source, tmp_path / "first.whl", DATE)
    unpacked = wheel_file.unpack(first, tmp_path / "unpacked")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in unpacked.rglob("*") if path.is_file()}
    assert [name for name, mode in modes.items() if mode != 0o644] == ["tool"]
    assert modes["tool"] == 0o755
    again = wheel_file.pack(unpacked, tmp_path / "again.whl", DATE)
    assert again.read_bytes() == first.read_bytes()


def test_a_new_version_replaces_requirements_of_the_same_projects(tmp_path: Path) -> None:
    source = tree(tmp_path)
    write(source / "torch" / "version.py", "a = 1\n__version__ = '1.0'\ncuda = '1.0'\n")
    wheel_file.name_version(source, "1.0+cu130", ["nvidia-cublas==2", "triton"])
    assert wheel_file.metadata(source).name == "my_torch-1.0+cu130.dist-info"
    head, _, body = (wheel_file.metadata(source) / "METADATA").read_text().partition("\n\n")
    assert head.splitlines()[1:] == [
        "Name: My.Torch", "Version: 1.0+cu130", "Requires-Dist: filelock", "Requires-Dist: nvidia-cublas==2",
        "Requires-Dist: triton",
    ]  # fmt: skip
    assert body == "Version: in the text\n"
    assert (source / "torch" / "version.py").read_text() == "a = 1\n__version__ = '1.0+cu130'\ncuda = '1.0'\n"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("my_torch-1.0-py3-none-any.whl", ""),
        ("My.Torch-1-1_gpu-py3-none-any.whl", ""),
        ("my_torch-1.1-py3-none-any.whl", "its metadata names My.Torch 1.0"),
        ("my_torch-1.0+cpu-py3-none-any.whl", "its metadata names My.Torch 1.0"),
        ("torch-1.0-py3-none-any.whl", "its metadata names My.Torch 1.0"),
        ("my_torch.whl", "the archive cannot be read"),
    ],
)
def test_a_wheel_is_what_its_name_says(name: str, fault: str, tmp_path: Path) -> None:
    wheel = wheel_file.pack(tree(tmp_path / "tree"), tmp_path / name, DATE)
    found = wheel_file.why_broken(wheel)
    assert (found[: len(fault)], bool(found)) == (fault, bool(fault))


def test_a_damaged_file_of_a_wheel_is_named(tmp_path: Path) -> None:
    wheel = wheel_file.pack(
        tree(tmp_path / "tree"), tmp_path / "my_torch-1.0-py3-none-any.whl", DATE, compressed=False
    )
    wheel.write_bytes(wheel.read_bytes().replace(b"x = 1\n", b"x = 2\n"))
    assert wheel_file.why_broken(wheel) == "z.py is damaged"


def test_a_wheel_that_may_not_be_read_is_not_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(wheel_file, "open_zip", refuse)
    with pytest.raises(PermissionError):
        wheel_file.why_broken(tmp_path / "a.whl")


@pytest.mark.parametrize("count", [0, 2])
def test_a_tree_with_other_than_one_folder_of_metadata_is_named(count: int, tmp_path: Path) -> None:
    for number in range(count):
        (tmp_path / f"a-{number}.dist-info").mkdir()
    with pytest.raises(IntegrityError, match=f"^a.whl: {count} dist-info folders, not one$"):
        wheel_file.metadata(tmp_path, "a.whl")
