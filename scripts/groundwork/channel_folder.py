"""A channel in a folder: its package files and its index.

Build scripts may write there too, so nothing in it is followed, waited for or made readable to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from rattler.index import index_fs

from groundwork import files
from groundwork.errors import IntegrityError

_SUBDIR = re.compile(r"noarch|(linux|osx|win)-\w+")


def is_package(name: str) -> bool:
    """Say whether a path is that of a package file below a channel: ``linux-64/torch-1-0.conda``."""
    subdir, _, file = name.partition("/")
    return bool(_SUBDIR.fullmatch(subdir)) and "/" not in file and file.endswith(".conda") and file[0] != "."


def package_files(folder: Path) -> Iterator[Path]:
    """Give all package files of a channel folder: no links, and none behind a link."""
    for subdir in subdirs(folder):
        yield from sorted(filter(_is_file, subdir.glob("*.conda")))


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:  # a running engine has moved it
        return False


def subdirs(folder: Path) -> list[Path]:
    """Return the folders of platforms in a channel folder; no links."""
    return [path for path in entries(folder) if _SUBDIR.fullmatch(path.name) and not path.is_symlink()]


def entries(folder: Path) -> list[Path]:
    """Return what a folder holds; nothing where it is none, or a link to one."""
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def own_folder(path: Path) -> Path:
    """Make a folder of ours where there is none, and return it; raises what :func:`refuse_link` does."""
    refuse_link(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def refuse_link(path: Path) -> None:
    """Raise IntegrityError for a link in place of a folder: a build may want us to write somewhere else."""
    if path.is_symlink():
        raise IntegrityError(
            f"{path} is a symbolic link, which a build may have made",
            "delete it; --output says on which disk everything lies",
        )


def drop_packages(output_dir: Path, keep: frozenset[str]) -> None:
    """Remove package files but those named in ``keep``."""
    for package in list(package_files(output_dir)):
        if package.name not in keep:
            files.remove(package)


def index(folder: Path, platform: str) -> None:
    """Write a channel's index anew, and let everybody read what belongs to the channel, whatever the umask."""
    write_index(folder, platform)
    make_readable(folder)


def make_readable(folder: Path) -> None:
    """Let everybody read a channel."""
    folders = subdirs(folder)
    for path in (folder, *folders):
        path.chmod(0o755)
    indexes = (file for subdir in folders for file in subdir.glob("repodata*.json"))
    for path in (*package_files(folder), *indexes):
        with files.open_regular(path) as file:
            os.fchmod(file.fileno(), 0o644)


def write_index(folder: Path, platform: str) -> None:
    """Write a channel's ``repodata.json`` anew from what is there; the platform's subdir exists even when empty."""
    for subdir in (platform, "noarch"):
        own_folder(folder / subdir)
    # one after the other: it holds a whole package in memory
    asyncio.run(index_fs(folder, force=True, write_zst=False, write_shards=False, max_parallel=1))
    with contextlib.suppress(OSError):
        (folder / ".tmp").rmdir()  # in which rattler writes what it then renames
