"""The directory and one file of a zip archive on a server, and no more of it: of a wheel of 0.5 GB some 100 kB."""

from __future__ import annotations

import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from megabuild.network import redact
from megabuild.network.client import Client, NetworkError

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
#: Bytes of an archive's end that are tried for its directory; that of torch's wheel has one megabyte.
_TAILS = (64 << 10, 2 << 20, 16 << 20)
_HEAD = 4 << 10  # bytes before a member: its own header, whose length nobody knows before
#: What reading a broken archive raises.
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


@dataclass(frozen=True, kw_only=True)
class Directory:
    """What a zip archive on a server says of itself: its length in bytes, its members, and one member's content."""

    length: int
    members: tuple[zipfile.ZipInfo, ...]
    content: bytes


def directory(client: Client, url: str, choose: Callable[[zipfile.ZipFile], zipfile.ZipInfo]) -> Directory:
    """Return the directory of a zip archive on a server, with the content of one member.

    Parameters
    ----------
    choose:
        Says which one, by the archive's directory. Raises ValueError.

    Raises
    ------
    NetworkError
        The server does not answer, or gives no parts of files.
    zipfile.BadZipFile
        That is no archive, or a broken one.
    """
    # a file with holes: what is not fetched reads as zeros, and is not looked at
    with tempfile.TemporaryFile() as file:
        length = _part(client, url, file, 0, 0)
        for tail in _tails(file, length):
            _part(client, url, file, max(0, length - tail), length - 1)
            try:
                with zipfile.ZipFile(file) as archive:
                    chosen = choose(archive)
                    start = chosen.header_offset
                    if start < length - tail:
                        end = start + _HEAD + chosen.compress_size
                        _part(client, url, file, start, min(end, length) - 1)
                    content = archive.read(chosen)
                    return Directory(length=length, members=tuple(archive.infolist()), content=content)
            except BROKEN as error:
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
        raise NetworkError(
            f"{redact.address(url)}: the answer to a range makes no sense", "name a local copy"
        )
    file.seek(start)
    file.write(answer.body)
    file.truncate(int(match[3]))
    return int(match[3])
