"""What comparisons of packages tell apart."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard
from package_files import entries


class Member(NamedTuple):
    mode: int
    link: str
    content: bytes


SAME = {"program": Member(0o755, "", b"run"), "link": Member(0o777, "program", b"")}


def package(path: Path, members: dict[str, Member]) -> Path:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, member in members.items():
            info = tarfile.TarInfo(name)
            info.mode, info.linkname, info.size = member.mode, member.link, len(member.content)
            info.type = tarfile.SYMTYPE if member.link else tarfile.REGTYPE
            archive.addfile(info, io.BytesIO(member.content))
    with zipfile.ZipFile(path, "w") as outer:
        outer.writestr("pkg-it.tar.zst", zstandard.ZstdCompressor().compress(tar.getvalue()))
    return path


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("program", Member(0o644, "", b"run")),
        ("program", Member(0o755, "", b"ran")),
        ("link", Member(0o777, "elsewhere", b"")),
    ],
)
def test_a_mode_a_link_and_a_content_make_a_difference(name: str, member: Member, tmp_path: Path) -> None:
    first = entries(package(tmp_path / "first.conda", SAME))
    assert entries(package(tmp_path / "same.conda", SAME)) == first
    other = entries(package(tmp_path / "other.conda", SAME | {name: member}))
    assert [path for path in first if other[path] != first[path]] == [name]
