"""Folders of a cache that users share: finds those that only another user can write."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from groundwork.errors import PreflightError


def refuse_foreign(folder: Path, remedy: str, *, levels: int, root_is_limited: bool = False) -> None:
    """Check that this user can write a folder, if it exists, and its subfolders down to ``levels``.

    ``root_is_limited``: programs that root starts will have no right to other users' files, as in bubblewrap.

    Raises PreflightError: Another user made one of them.
    """
    if not folder.is_dir():
        return
    may_write = _may_user_write
    if root_is_limited and os.geteuid() == 0:
        may_write = _may_limited_root_write
    for below in (folder, *_folders(folder, levels)):
        if not may_write(below):
            raise PreflightError(f"{below} belongs to {_owner(below)}: builds cannot write to it", remedy)


def _may_user_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def _may_limited_root_write(folder: Path) -> bool:
    status = folder.stat()
    return status.st_uid == 0 or bool(status.st_mode & stat.S_IWOTH)


def _folders(folder: Path, levels: int) -> Iterator[Path]:
    """Yield a folder's subfolders, before those in them; unreadable ones are yielded, too."""
    if levels == 0:
        return
    with suppress(PermissionError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)
                yield from _folders(Path(entry.path), levels - 1)


def _owner(folder: Path) -> str:
    try:
        return folder.owner()
    except KeyError:  # a user of another machine
        return f"user {folder.stat().st_uid}"
