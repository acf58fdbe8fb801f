"""Lists the contents of remote and local wheels; from a remote wheel of 0.5 GB, it fetches and caches about 100 kB."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast
from urllib.parse import urlsplit

import msgspec

from groundwork import files, redact
from groundwork.errors import FULL, ProviderError
from groundwork.network.client import NO_PARTS, Client, NetworkError, NotFound, Timeouts
from groundwork.network.index import Configured, File, local_path
from groundwork.zip_archive import open_zip, read_member

_TIMEOUTS = Timeouts(connect=5.0, read=20.0, total=60.0)
_DOWNLOAD_TIMEOUTS = Timeouts(read=60.0, total=7200.0)
#: Exceptions raised by reading a broken wheel.
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
_LARGEST = 4 << 20  # bytes of metadata
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
#: Bytes fetched per request.
_BLOCK = 64 << 10
#: Bytes fetched in total; the directory of torch's wheel has 1 MB.
_MOST = 32 << 20


@dataclass(frozen=True, kw_only=True)
class Content:
    """A wheel's metadata and members, known without downloading it."""

    sha256: str  #: empty if unknown
    size: int  #: bytes
    metadata: str  #: text of METADATA
    #: unpacked bytes by file name; of two entries with one name the later one, which installers keep
    members: Mapping[str, int]


_CONTENTS = msgspec.json.Decoder(Content)


class RemoteFile(io.RawIOBase):
    """A file on a server, read by range requests; the last block is kept."""

    def __init__(self, client: Client, url: str) -> None:
        super().__init__()
        self._client = client
        self._url = url
        self._at = 0
        self._fetched = 0
        self.length = 1
        self._fetch(0, 1)
        self._start = max(0, self.length - _BLOCK)
        self._block = self._fetch(self._start, self.length)

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = (0, self._at, self.length)[whence] + offset
        if self._at < 0:
            raise ValueError("negative offset")
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        end = self.length
        if size is not None and size >= 0:
            end = min(self._at + size, self.length)
        if not self._start <= self._at <= end <= self._start + len(self._block):
            following = min(max(end, self._at + _BLOCK), self.length)
            self._block = self._fetch(self._at, following)
            self._start = self._at
        data = self._block[self._at - self._start : end - self._start]
        self._at += len(data)
        return data

    def _fetch(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        self._fetched += end - start
        if self._fetched > _MOST:
            raise ValueError(f"needs more than {_MOST} bytes of range requests")
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        answer = self._client.get(self._url, headers=headers, limit=max(end - start, _BLOCK))
        match = _RANGE.fullmatch(answer.headers.get("content-range", "").strip())
        if match is None or not _is_part(match, start, len(answer.body)):
            reason = f"{redact.address(self._url)}: invalid response to a range request"
            raise NetworkError(reason, "download the file, and name the local copy")
        self.length = int(match[3])
        return answer.body


def _is_part(content_range: re.Match[str], start: int, length: int) -> bool:
    """Return whether a ``Content-Range`` names ``length`` bytes from ``start`` on."""
    first = int(content_range[1])
    last = int(content_range[2])
    return first == start and last - first + 1 == length


def metadata_beside(client: Client, file: File) -> bytes:
    """Return the METADATA that an index has next to a wheel (PEP 658); raises NetworkError, also for a wrong hash."""
    address = urlsplit(file.url)
    content = client.get(address._replace(path=f"{address.path}.metadata").geturl(), limit=_LARGEST).body
    digest = hashlib.sha256(content).hexdigest()
    if file.metadata_sha256 not in ("", digest):
        reason = f"sha256 is {digest[:12]}…, the index says {file.metadata_sha256[:12]}…"
        raise NetworkError(f"{file.name}.metadata: {reason}", "report this to the index, or check your proxy")
    return content


def read_remote(client: Client, file: File) -> Content:
    """Read a remote wheel's METADATA and directory by range requests; raises NetworkError, also for a broken wheel."""
    try:
        remote = RemoteFile(client, file.url)
        return _read(cast("IO[bytes]", remote), remote.length, file.sha256)
    except BROKEN as error:
        raise NetworkError(f"{file.name}: broken wheel: {error}", "check the file on the index") from error


def read_local(path: Path, sha256: str = "") -> Content:
    """Read a local wheel's METADATA and directory; raises OSError or one of `BROKEN`."""
    with path.open("rb") as file:
        return _read(file, path.stat().st_size, sha256)


def _read(file: IO[bytes], size: int, sha256: str) -> Content:
    with open_zip(file) as archive:
        infos = archive.infolist()
        metadata = [info for info in infos if _METADATA.fullmatch(info.filename)]
        if len(metadata) != 1 or metadata[0].file_size > _LARGEST:
            raise ValueError(f"not exactly one METADATA of at most {_LARGEST} bytes")
        text = read_member(archive, metadata[0].filename, most=_LARGEST).decode(errors="replace")
        members = {info.filename: info.file_size for info in infos if not info.is_dir()}
        return Content(sha256=sha256, size=size, metadata=text, members=members)


class Contents:
    """Contents of the wheels of some indexes, cached in a folder."""

    def __init__(self, where: Configured, folder: Path) -> None:
        self._client = where.client(_TIMEOUTS)
        self._for_files = where.client(_DOWNLOAD_TIMEOUTS)
        self._folder = folder

    def of(self, file: File) -> Content:
        """Return a wheel's content, from the cache if possible; raises ProviderError."""
        if file.sha256:
            note = noted(self._folder, file.sha256)
            if note is not None:
                return note
        remedy = "check the file on pip's index (pip config list)"
        try:
            content = self._read(file)
        except NotFound as error:
            raise NotFound(
                f"{file.name}: listed by pip's index, but {error.message}", remedy, error.status
            ) from error
        except (*BROKEN, OSError) as error:
            if getattr(error, "errno", None) in FULL:
                raise
            raise ProviderError(f"{file.name}: broken wheel: {error}", remedy) from error
        files.write(_note_file(self._folder, content.sha256), msgspec.json.encode(content))
        return content

    def _read(self, file: File) -> Content:
        if file.url.startswith("file:"):
            return _verified(local_path(file.url), file.sha256)
        if file.sha256:  # some indexes have other hashes only
            try:
                return read_remote(self._client, file)
            except NetworkError as error:
                if error.status not in NO_PARTS:
                    raise
        with files.scratch(self._folder) as temporary:
            self._for_files.save(file.url, temporary / file.name)
            return _verified(temporary / file.name, file.sha256)


def _verified(path: Path, sha256: str) -> Content:
    digest = files.sha256(path)
    if sha256 not in ("", digest):
        raise ValueError(f"sha256 is {digest}, the index says {sha256}")
    return read_local(path, digest)


def noted(folder: Path, sha256: str) -> Content | None:
    """Return a wheel's cached content, or None."""
    return files.read_record(_note_file(folder, sha256), _CONTENTS)


def _note_file(folder: Path, sha256: str) -> Path:
    return folder / "contents" / f"{sha256}.json"
