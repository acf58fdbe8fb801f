"""Wheels, conda packages and channels: what they install, whatever they claim."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from sizes_files import GPU_CODE, elf
from tiny import make_package
from wheel_files import make_wheel

from gpu_tools.sizes.measure import measure
from gpu_tools.sizes.tree import ContentPart, Kind
from gpu_tools.unpacked_package import unpack_package
from groundwork.errors import IntegrityError, OutOfSpaceError

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
