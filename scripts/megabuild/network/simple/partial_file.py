"""A remote file that is read in parts, and the metadata of a wheel read so."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from megabuild.errors import AuditError
from megabuild.network.web import Part

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_TAIL = 64 << 10  # bytes: the end of the zip's directory, mostly with the metadata's entry
_STEP = 16 << 10  # bytes, at least, per further request
_MOST = 16 << 20  # bytes of one wheel: torch's directory has one megabyte
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_LARGEST_METADATA = 4 << 20


class PartialFile(io.RawIOBase):
    """A file of which only those parts are fetched that are read.

    Parameters
    ----------
    tail:
        Returns at most so many bytes from the file's end.
    fetch:
        Returns the bytes from a beginning up to an end.
    """

    def __init__(self, tail: Callable[[int], Part], fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        last = tail(_TAIL)
        self._fetch = fetch
        self.length = last.total
        self._parts = [(last.start, last.data)]
        self._position = 0
        self.received = len(last.data)

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
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.length}[whence]
        if base + offset < 0:
            raise OSError("before the beginning of the file")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read into a buffer what is known from here on, or else is fetched; it may be less than fits.

        Raises
        ------
        AuditError
            The part cannot be fetched, or there are too many of them.
        """
        view = memoryview(buffer).cast("B")
        if self._position >= self.length or not view:
            return 0
        data = (self._known() or self._fetched(len(view)))[: len(view)]
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _known(self) -> bytes:
        for start, part in self._parts:
            if start <= self._position < start + len(part):
                return part[self._position - start :]
        return b""

    def _fetched(self, wanted: int) -> bytes:
        start = self._position
        following = min((first for first, _ in self._parts if first > start), default=self.length)
        end = min(start + max(wanted, _STEP), following)
        if self.received + end - start > _MOST:
            raise AuditError("its zip directory is unreasonably long", "name a local copy: --wheel FILE")
        part = self._fetch(start, end)
        self._parts.append((start, part))
        self.received += len(part)
        return part


def metadata(file: IO[bytes]) -> bytes:
    """Return the METADATA of a wheel.

    Raises
    ------
    AuditError
        It is no wheel, or a broken one.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if _METADATA.fullmatch(member.filename)]
            if len(members) != 1:
                raise AuditError(f"it holds {len(members)} METADATA files in place of one", "check the wheel")
            if members[0].file_size > _LARGEST_METADATA:
                raise AuditError("its METADATA is unreasonably long", "check the wheel")
            with archive.open(members[0]) as stream:
                return stream.read(_LARGEST_METADATA)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
        OSError,
    ) as error:
        raise AuditError(f"it is no wheel, or a broken one: {error}", "check the wheel") from error
