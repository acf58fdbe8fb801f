"""Archives that unpack to far more than they claim are refused at once, in little memory, by every reader."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard

from conda_wheels.simple_index import index_entry
from gpu_tools.unpacked_package import unpack_package
from groundwork import archives, wheel_file
from groundwork.errors import IntegrityError, OutOfSpaceError
from groundwork.network.wheel_contents import BROKEN, read_local
from groundwork.zip_archive import open_zip, read_member
from megabuild.engine import archive
from megabuild.providers.pypi import unpack

HEAD = b"Metadata-Version: 2.1\nName: bomb\nVersion: 1\n\n"
METADATA = "bomb-1.dist-info/METADATA"
LARGE = 48 << 20  # bytes of a bomb
LIMIT = 16 << 20  # bytes of memory


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def lzma_member(data: bytes) -> bytes:
    """LZMA as in a zip file: version, length and properties before the stream."""
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16, "lc": 3, "lp": 0, "pb": 2}]
    properties = struct.pack("<BI", 3 + 9 * (0 + 5 * 2), 1 << 16)
    return struct.pack("<BBH", 9, 4, 5) + properties + lzma.compress(data, lzma.FORMAT_RAW, filters=filters)


PACKERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "deflate": (zipfile.ZIP_DEFLATED, deflated),
    "bzip2": (zipfile.ZIP_BZIP2, bz2.compress),
    "lzma": (zipfile.ZIP_LZMA, lzma_member),
}


@cache
def bomb(how: str) -> bytes:
    return PACKERS[how][1](HEAD + bytes(LARGE))


def lying_wheel(folder: Path, how: str, *, claimed: int = 60) -> Path:
    """A wheel whose METADATA claims few bytes and unpacks to many."""
    method, _ = PACKERS[how]
    name, data = METADATA.encode(), bomb(how)
    sizes = struct.pack("<HHIII", 0, 33, zlib.crc32(b""), len(data), claimed)
    local = struct.pack("<4sHHH", b"PK\3\4", 63, 0, method) + sizes + struct.pack("<HH", len(name), 0) + name
    central = struct.pack("<4sHHHH", b"PK\1\2", 63, 63, 0, method) + sizes
    central += struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local) + len(data), 0)
    wheel = folder / "bomb-1-py3-none-any.whl"
    wheel.write_bytes(local + data + central + end)
    return wheel


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < LIMIT
    finally:
        tracemalloc.stop()


def unpacked(package: Path) -> None:
    with unpack_package(package):
        pass


def why_broken(wheel: Path) -> None:
    raise ValueError(wheel_file.why_broken(wheel))


READERS: dict[str, Callable[[Path], Any]] = {
    "contents": read_local,
    "index": lambda wheel: index_entry(wheel, project="bomb", python=None, package="", inputs=""),
    "check": why_broken,
    "unpack": lambda wheel: wheel_file.unpack(wheel, wheel.parent / "tree"),
    "slim": unpacked,
    "provider": lambda wheel: unpack.library(wheel, wheel.parent / "prefix", "site-packages"),
    "conda": archive.read,
}


@pytest.mark.parametrize("how", PACKERS)
@pytest.mark.parametrize("reader", READERS)
def test_a_member_that_unpacks_to_more_than_it_claims_is_refused(
    reader: str, how: str, tmp_path: Path
) -> None:
    wheel = lying_wheel(tmp_path, how)
    with little_memory(), pytest.raises((*BROKEN, IntegrityError)) as raised:
        READERS[reader](wheel)
    assert ("neither stored" in str(raised.value) or "only stored and deflated" in str(raised.value)) == (
        how != "deflate"
    )


def test_a_member_that_claims_what_it_unpacks_to_is_read_up_to_a_limit(tmp_path: Path) -> None:
    wheel = lying_wheel(tmp_path, "deflate", claimed=len(HEAD) + LARGE)
    with little_memory(), open_zip(wheel) as opened, pytest.raises(zipfile.BadZipFile, match="longer than"):
        read_member(opened, METADATA, most=1 << 20)


def packed_tar(*members: tuple[bytes, int]) -> bytes:
    """A tar archive with a header of a type and size for each member, followed by so many zeros."""
    text = io.BytesIO()
    for kind, size in members:
        entry = tarfile.TarInfo("x")
        entry.type, entry.size = kind, size
        text.write(entry.tobuf(tarfile.GNU_FORMAT) + bytes(size + -size % 512))
    return text.getvalue() + bytes(1024)


@pytest.fixture
def little_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10 << 20))


TARS: dict[str, Callable[[bytes], bytes]] = {
    "bz2": bz2.compress, "gz": gzip.compress, "xz": lzma.compress
}  # fmt: skip


def conda(path: Path, content: bytes, *, part: str = "pkg") -> Path:
    with zipfile.ZipFile(path, "w") as outer:
        outer.writestr("metadata.json", "{}")
        outer.writestr(f"{part}-bomb-1-0.tar.zst", zstandard.compress(content))
    return path


@pytest.mark.parametrize("how", TARS)
def test_a_tar_archive_larger_than_the_disk_is_refused(how: str, tmp_path: Path, little_disk: None) -> None:
    tarball = tmp_path / f"bomb.tar.{how}"
    tarball.write_bytes(TARS[how](packed_tar((tarfile.REGTYPE, LARGE))))
    with little_memory(), pytest.raises(OutOfSpaceError, match="unpacks to more than"):
        archives.unpack(tarball, tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()


@pytest.mark.parametrize("how", TARS)
@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_name_of_megabytes_is_not_read(kind: bytes, how: str, tmp_path: Path) -> None:
    tarball = tmp_path / f"bomb.tar.{how}"
    tarball.write_bytes(TARS[how](packed_tar((kind, LARGE), (tarfile.REGTYPE, 0))))
    with little_memory(), pytest.raises(IntegrityError, match="a name of 50331648 bytes"):
        archives.unpack(tarball, tmp_path / "unpacked")


def test_a_conda_package_larger_than_the_disk_is_refused(tmp_path: Path, little_disk: None) -> None:
    package = conda(tmp_path / "bomb-1-0.conda", packed_tar((tarfile.REGTYPE, LARGE)))
    with little_memory(), pytest.raises(OutOfSpaceError, match="unpacks to more than"):
        unpacked(package)


def test_metadata_of_a_built_package_larger_than_any_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_LARGEST_INFO", 1 << 20)
    package = conda(tmp_path / "bomb-1-0.conda", packed_tar((tarfile.REGTYPE, 2 << 20)), part="info")
    with pytest.raises(IntegrityError, match="larger than any"):
        archive.read(package)


def test_an_archive_of_too_many_entries_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_ENTRIES", 3)
    tarball = tmp_path / "bomb.tar.gz"
    for count in (3, 4):
        tarball.write_bytes(gzip.compress(packed_tar(*[(tarfile.REGTYPE, 0)] * count)))
        with nullcontext() if count == 3 else pytest.raises(IntegrityError, match="more than 3 entries"):
            archives.unpack(tarball, tmp_path / "unpacked")


@pytest.mark.parametrize("how", TARS)
def test_a_tar_archive_with_damaged_content_is_to_be_downloaded_again(how: str, tmp_path: Path) -> None:
    content = bytearray(TARS[how](packed_tar(*[(tarfile.REGTYPE, 1 << 12)] * 9)))
    tarball = tmp_path / f"damaged.tar.{how}"
    for damaged in (content[: len(content) // 2], content[:20] + b"\xff" * (len(content) - 20)):
        tarball.write_bytes(damaged)
        with pytest.raises(IntegrityError, match="cannot be unpacked") as told:
            archives.unpack(tarball, tmp_path / "unpacked")
        assert told.value.remedy == "download the archive again"
