"""METADATA and directory of a wheel, on a server or on this machine: of 0.5 GB some 100 kB are fetched."""

from __future__ import annotations

import hashlib
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from groundwork import redact
from groundwork.network.client import Client, NetworkError
from groundwork.network.index import File

_CUT_OFF = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
#: What reading a broken wheel raises.
BROKEN = (*_CUT_OFF, ValueError)
_LARGEST = 4 << 20  # bytes of metadata
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
#: Bytes of a wheel's end that are tried for its directory; that of torch's wheel has one megabyte.
_TAILS = (64 << 10, 2 << 20, 16 << 20)
_HEAD = 4 << 10  # bytes before a member: its own header, whose length nobody knows before


@dataclass(frozen=True, kw_only=True)
class Directory:
    """A wheel's length in bytes, its members, and the content of its METADATA and of those that were asked for."""

    length: int
    members: tuple[zipfile.ZipInfo, ...]
    content: bytes
    more: Mapping[str, bytes] = field(default_factory=dict)


def beside(client: Client, file: File) -> bytes:
    """Return the METADATA that an index has beside a wheel (PEP 658).

    Raises NetworkError: No answer, or another hash than the index says.
    """
    address = urlsplit(file.url)
    content = client.get(address._replace(path=f"{address.path}.metadata").geturl(), limit=_LARGEST).body
    digest = hashlib.sha256(content).hexdigest()
    if file.metadata_sha256 not in ("", digest):
        reason = f"sha256 is {digest[:12]}…, the index says {file.metadata_sha256[:12]}…"
        raise NetworkError(f"{file.name}.metadata: {reason}", "the index or a proxy in between is at fault")
    return content


def inside(client: Client, file: File, more: str = "(?!)") -> Directory:
    """Read METADATA, directory and other small members whose names match `more` of a remote wheel by range requests.

    Raises NetworkError: No answer, a server without range requests, or a broken wheel.
    """
    try:
        return _directory(client, file.url, more)
    except BROKEN as error:
        raise NetworkError(
            f"{file.name} is not a wheel, or a broken one: {error}", "check the wheel"
        ) from error


def of_file(path: Path, more: str = "(?!)") -> Directory:
    """Read METADATA, directory and other small members of a local wheel; raises OSError or one of `BROKEN`."""
    with zipfile.ZipFile(path) as archive:
        members = tuple(archive.infolist())
        return Directory(
            length=path.stat().st_size,
            members=members,
            content=archive.read(member(archive)),
            more={info.filename: archive.read(info) for info in _named(members, more)},
        )


def member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Return the METADATA of a wheel; raises ValueError."""
    members = [info for info in archive.infolist() if _METADATA.fullmatch(info.filename)]
    if len(members) != 1 or members[0].file_size > _LARGEST:
        raise ValueError("it has no METADATA, several, or an unreasonably long one")
    return members[0]


def _named(members: Iterable[zipfile.ZipInfo], pattern: str) -> list[zipfile.ZipInfo]:
    return [info for info in members if re.fullmatch(pattern, info.filename) and info.file_size <= _LARGEST]


def _directory(client: Client, url: str, more: str) -> Directory:
    # a file with holes: what is not fetched reads as zeros, and is not looked at
    with tempfile.TemporaryFile() as file:
        length = _part(client, url, file, 0, 0)
        for tail in _tails(file, length):
            _part(client, url, file, max(0, length - tail), length - 1)
            try:
                with zipfile.ZipFile(file) as archive:
                    chosen, members = member(archive), tuple(archive.infolist())
                    contents = {}
                    for info in (chosen, *_named(members, more)):
                        start = info.header_offset
                        if start < length - tail:
                            end = start + _HEAD + info.compress_size
                            _part(client, url, file, start, min(end, length) - 1)
                        contents[info.filename] = archive.read(info)
                    content = contents.pop(chosen.filename)
                    return Directory(length=length, members=members, content=content, more=contents)
            except _CUT_OFF as error:
                if length <= tail or tail == _TAILS[-1]:
                    raise zipfile.BadZipFile(str(error)) from error
    raise AssertionError("not reached")


def _tails(file: IO[bytes], length: int) -> Iterator[int]:
    """Return lengths of ends to fetch; after the first one its last record tells where the directory begins."""
    yield _TAILS[0]
    file.seek(max(0, length - _TAILS[0]))
    _, mark, record = file.read().rpartition(b"PK\x05\x06")
    if mark and len(record) >= 16:
        exact = length - int.from_bytes(record[12:16], "little")
        if _TAILS[0] < exact < _TAILS[-1]:
            yield exact
    yield from _TAILS[1:]


def _part(client: Client, url: str, file: IO[bytes], start: int, end: int) -> int:
    """Fetch a part into its place of the file; returns how long the whole is."""
    headers = {"Range": f"bytes={start}-{end}", "Accept-Encoding": "identity"}
    answer = client.get(url, headers=headers, limit=_TAILS[-1])
    match = _RANGE.fullmatch(answer.headers.get("content-range", "").strip())
    if match is None or int(match[1]) != start or int(match[2]) - start + 1 != len(answer.body):
        raise NetworkError(f"{redact.address(url)}: invalid response to a range request", "name a local copy")
    file.seek(start)
    file.write(answer.body)
    file.truncate(int(match[3]))
    return int(match[3])
