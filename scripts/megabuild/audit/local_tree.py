"""Upstream's files in a folder of this machine, such as an unpacked source archive."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from megabuild.errors import AuditError

_LARGEST = 16 << 20  # bytes of one file


class LocalTree:
    """A folder's files; implements :class:`megabuild.audit.model.Tree`.

    Links are not followed: a folder from elsewhere must not make other files of this machine appear.

    Parameters
    ----------
    folder:
        Its top.

    Raises
    ------
    AuditError
        There is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise AuditError(f"{folder} is no folder", "name one with upstream's files: --tree FOLDER")
        self._folder = folder.absolute()

    @property
    def commit(self) -> str:
        """Nothing: a folder's files need not be those of a commit."""
        return ""

    def names(self) -> Sequence[str]:
        """Return the paths of all regular files, sorted, without git's own."""
        found = []
        for top, folders, files in os.walk(self._folder):
            folders[:] = [name for name in folders if name != ".git"]
            base = Path(top)
            found += [
                (base / name).relative_to(self._folder).as_posix()
                for name in files
                if name != ".git" and not (base / name).is_symlink() and (base / name).is_file()
            ]
        return sorted(found)

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those files that exist and have at most 16 MB.

        Raises
        ------
        AuditError
            One of them cannot be read.
        """
        found = {}
        for path in paths:
            place = self._place(path)
            if place is not None:
                try:
                    found[path] = place.read_bytes()
                except OSError as error:
                    raise AuditError(
                        f"cannot read {place}: {error.strerror}", "check its permissions"
                    ) from error
        return found

    def url(self, path: str, line: int | None = None) -> str:
        """Return an empty string: nobody else can open a folder of this machine."""
        return ""

    def _place(self, path: str) -> Path | None:
        parts = path.split("/")
        if not path or path.startswith("/") or {"..", ".git", ""} & set(parts):
            return None
        place = self._folder
        for part in parts:
            place = place / part
            if place.is_symlink():
                return None
        return place if place.is_file() and place.stat().st_size <= _LARGEST else None
