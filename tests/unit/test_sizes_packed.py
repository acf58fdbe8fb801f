"""Wheels, conda packages and channels: what they install, whatever they claim."""

from __future__ import annotations

import io
import json
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from calling import call
from sizes_files import GPU_CODE, elf
from tiny import make_package
from wheel_files import make_wheel

from command_line.run_command import Invocation
from gpu_tools.sizes.measure import measure
from gpu_tools.sizes.tree import ContentPart, Kind
from gpu_tools.unpacked_package import unpack_package
from groundwork.errors import IntegrityError, OutOfSpaceError, UsageError

NAME = "torch-2.0-cp312-cp312-linux_x86_64.whl"
LIBRARY = elf([(".text", b"t" * 3000), (".nv_fatbin", GPU_CODE)])


def test_hostile_names_in_a_wheel_are_only_names(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("../../evil.so", "/abs.so", "a\nb\x1b[2J.so", "d/../d.so"):
            archive.writestr(name, LIBRARY)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("../../evil.so", LIBRARY)
    before = set(tmp_path.parent.iterdir())
    assert measure(path).installed == 4 * len(LIBRARY)  # of two of one name, one is installed
    assert set(tmp_path.parent.iterdir()) == before


def test_a_bomb_is_not_blown_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_wheel(tmp_path / "wheel", NAME, {"bomb.dat": bytes(50 << 20)})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=40 << 20))
    with pytest.raises(OutOfSpaceError, match=r"52\.4 MB") as refused:
        measure(path)
    assert refused.value.remedy.startswith("set TMPDIR to a folder")
    with (
        pytest.raises(OutOfSpaceError, match=f"more than {tmp_path} has") as refused,
        unpack_package(path, tmp_path),
    ):
        pass
    assert refused.value.remedy.startswith("pass a folder as --output")


def sentence(path: Path) -> str:
    """Measure an archive; return what is said against it, empty where nothing is."""
    try:
        measure(path)
    except IntegrityError as error:
        return error.message if error.remedy else ""
    return ""


def damaged(path: Path) -> list[bytes]:
    whole = path.read_bytes()
    return [
        b"",
        whole[:30],
        whole[: len(whole) // 2],
        whole[:-5],
        b"PK\x03\x04" + bytes(100),
        whole[:60] + b"\xff" * 40 + whole[100:],
    ]


def conda(folder: Path) -> Path:
    return make_package(folder, "pkg", "1.0", "h0", {"share/a.h": "h" * 200, "bin/x": "y" * 300})


def tar_bz2(folder: Path) -> Path:
    path = folder / "pkg-1.0-h0.tar.bz2"
    index = json.dumps(
        {"name": "pkg", "version": "1.0", "build": "h0", "depends": ["python >=3.12", "libx"]}
    ).encode()
    with tarfile.open(path, "w:bz2") as archive:
        for name, data in (("lib/x.so", LIBRARY), ("info/index.json", index)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for kind, target in ((tarfile.LNKTYPE, "lib/x.so"), (tarfile.SYMTYPE, "x.so")):
            member = tarfile.TarInfo(f"lib/link{len(target)}.so")
            member.type, member.linkname = kind, target
            archive.addfile(member)
    return path


def test_both_forms_of_conda_packages_are_read_without_their_own_information(tmp_path: Path) -> None:
    new, old = measure(conda(tmp_path)), measure(tar_bz2(tmp_path))
    assert new.installed == 500
    assert (new.packages[0].name, new.packages[0].version) == ("pkg", "1.0")
    assert old.installed == len(LIBRARY)  # links take no room
    assert old.parts[ContentPart(Kind("GPU code"), "sm_80")] == 1064


@pytest.mark.parametrize("make", [conda, tar_bz2, lambda folder: make_wheel(folder, NAME, {"x.so": LIBRARY})])
def test_a_damaged_archive_is_one_sentence(tmp_path: Path, make: object) -> None:
    assert callable(make)
    path = make(tmp_path)
    for data in damaged(path):
        path.write_bytes(data)
        said = sentence(path)
        assert not said or path.name in said


METADATA = {"torch-2.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.0\n"}


def _zipped(files: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", how) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def _encrypted(whole: bytes) -> bytes:
    data = bytearray(whole)
    for magic, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(magic) + flags] |= 1
    return bytes(data)


def _with_other_offset(whole: bytes) -> bytes:
    data = bytearray(whole)
    struct.pack_into("<I", data, data.index(b"PK\1\2") + 42, 1 << 20)
    return bytes(data)


@pytest.mark.parametrize("command", ["sizes", "verify", "slim"])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda whole: b"", "File is not a zip file"),
        (lambda whole: b"<!DOCTYPE html>", "File is not a zip file"),
        (lambda whole: whole[:-10], "File is not a zip file"),
        (lambda whole: whole.replace(b"payload", b"another", 1), "Bad CRC-32 for file 'torch/x.py'"),
        (_encrypted, "'torch/x.py' is encrypted"),
        (_with_other_offset, "Truncated file header"),
        (lambda whole: _zipped({"a": b""}, zipfile.ZIP_LZMA), "'a' is compressed with LZMA"),
        (lambda whole: _zipped({"torch": b"", "torch/a.py": b"", **METADATA}), "Not a directory: a.py"),
        (lambda whole: _zipped({f"{'x' * 300}.py": b"", **METADATA}), f"File name too long: {'x' * 300}.py"),
    ],
    ids=[
        "empty",
        "a page",
        "cut",
        "another content",
        "encrypted",
        "offset",
        "LZMA",
        "file and folder",
        "name",
    ],
)
def test_a_broken_wheel_is_named_with_the_reason(
    make: Callable[[bytes], bytes], reason: str, command: str, tmp_path: Path, invocation: Invocation
) -> None:
    path = tmp_path / NAME
    path.write_bytes(make(_zipped({"torch/x.py": b"payload" * 100, **METADATA})))
    more = ["--output", str(tmp_path / "out"), "--arch-list", "9.0"] if command == "slim" else []
    done = call(invocation, command, str(path), *more)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    said = " ".join(" ".join(lines).split())
    assert done.exit_code == 6
    assert said.startswith(f"error: {path}: damaged archive: {reason}")
    assert said.endswith("hint: download or build it again")


def test_a_wheel_without_metadata_has_only_files(tmp_path: Path, invocation: Invocation) -> None:
    path = tmp_path / NAME
    path.write_bytes(_zipped({"torch/x.py": b"x" * 100}))
    done = call(invocation, "sizes", str(path), "--json")
    assert (done.exit_code, json.loads(done.stdout)["installed"]) == (0, 100)
    refused = call(invocation, "verify", str(path))
    assert refused.exit_code == 6
    assert refused.stderr.startswith(f"error: {NAME}: 0 dist-info folders, not one\n")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a-1-py3-none-any.whl", "not an environment, wheel or conda package"),
        ("a-1-0.conda", "not an environment, wheel or conda package"),
        ("a.zip", "not an environment, wheel or conda package"),
        ("gone.whl", "not found"),
        ("gone", "not an environment, wheel or conda package"),
    ],
)
def test_what_is_no_package_is_told_before_it_is_read(name: str, told: str, tmp_path: Path) -> None:
    if "gone" not in name:
        (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match=rf"^{tmp_path / name}: {told}$"), unpack_package(tmp_path / name):
        pass


def test_a_folder_of_a_wheel_that_is_named_like_conda_s_information_counts(tmp_path: Path) -> None:
    sizes = measure(make_wheel(tmp_path, "a-1-py3-none-any.whl", {"info/x.py": b"x" * 50, "a.py": b""}))
    assert any("info/x.py" in package.files for package in sizes.packages)
