"""A file that a build appends to, read while it does; the build is not trusted."""

from __future__ import annotations

import os
from pathlib import Path

from groundwork import files
from groundwork.errors import IntegrityError

#: No build writes that much between two looks; more of one is read at the next.
_MOST_BYTES = 256 << 10


class GrowingFile:
    """The lines that are new in a file below a folder, the file and the folders in between being a build's."""

    def __init__(self, path: Path, below: Path) -> None:
        self._path, self._below = path, below
        self._file: tuple[int, int] | None = None
        self._at = 0

    def remove(self) -> None:
        """Begin with no file."""
        self._path.unlink(missing_ok=True)

    def lines(self) -> list[bytes]:
        """Return whole lines since the last call; some of them, where there are very many."""
        try:
            with files.open_regular(self._path, below=self._below) as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._file or status.st_size < self._at:
                    self._file, self._at = (status.st_dev, status.st_ino), 0
                if status.st_size == self._at:
                    return []
                file.seek(self._at)
                data = file.read(_MOST_BYTES)
        except (OSError, IntegrityError):
            self._file = None  # the next one may have its number
            return []
        whole, end, _ = data.rpartition(b"\n")
        if end:
            self._at += len(whole) + 1
            return whole.split(b"\n")
        self._at += len(data) if len(data) == _MOST_BYTES else 0  # no line of ours is that long
        return []
