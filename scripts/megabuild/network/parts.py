"""A file on a server of which only those parts are fetched that are read: of a wheel its end, of 0.5 GB some 100 kB."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from megabuild.network import redact
from megabuild.network.client import Client, NetworkError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_TAIL = 64 << 10  # bytes: the end of a zip's directory, mostly with what is looked for
_STEP = 16 << 10  # bytes, at least, per further request
_MOST = 16 << 20  # bytes of one file: the directory of torch's wheel has one megabyte
_REMEDY = "name a local copy"


class PartialFile(io.RawIOBase):
    """A file on a server, for `zipfile`.

    Parameters
    ----------
    client:
        Asks for the parts.
    url:
        Of the file.

    Raises
    ------
    NetworkError
        The server does not answer, or gives no parts of files.
    """

    def __init__(self, client: Client, url: str) -> None:
        super().__init__()
        self._client, self._url = client, url
        self._position = 0
        try:
            data, start, self._length = self._part(f"bytes=-{_TAIL}", _TAIL)
        except NetworkError as error:
            if error.status != 416:
                raise
            # some servers know only ranges with a beginning, and some refuse more than there is
            _, _, self._length = self._part("bytes=0-0", 1)
            start = max(0, self._length - _TAIL)
            data, _, _ = self._part(f"bytes={start}-{self._length - 1}", _TAIL)
        self._parts = [(start, data)]

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Return the position from the beginning."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; nothing is fetched."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        if base + offset < 0:
            raise OSError("before the beginning of the file")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read into a buffer what is known from here on, or else is fetched; it may be less than fits."""
        view = memoryview(buffer).cast("B")
        here = self._position
        if here >= self._length or not view:
            return 0
        known = (part[here - start :] for start, part in self._parts if start <= here < start + len(part))
        data = (next(known, b"") or self._fetched(len(view)))[: len(view)]
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _fetched(self, wanted: int) -> bytes:
        start = self._position
        following = min((first for first, _ in self._parts if first > start), default=self._length)
        end = min(start + max(wanted, _STEP), following)
        if sum(len(part) for _, part in self._parts) + end - start > _MOST:
            raise NetworkError(f"{redact.address(self._url)}: its directory is unreasonably long", _REMEDY)
        data, first, _ = self._part(f"bytes={start}-{end - 1}", end - start)
        if first != start:
            raise NetworkError(f"{redact.address(self._url)}: another part came than was asked for", _REMEDY)
        self._parts.append((start, data))
        return data

    def _part(self, wanted: str, limit: int) -> tuple[bytes, int, int]:
        """Return a part, where it begins, and how long the whole file is."""
        answer = self._client.get(
            self._url, headers={"Range": wanted, "Accept-Encoding": "identity"}, limit=limit
        )
        match = _RANGE.fullmatch(answer.headers.get("content-range", "").strip())
        if match is None or int(match[2]) - int(match[1]) + 1 != len(answer.body):
            raise NetworkError(f"{redact.address(self._url)}: the answer to a range makes no sense", _REMEDY)
        return answer.body, int(match[1]), int(match[3])
