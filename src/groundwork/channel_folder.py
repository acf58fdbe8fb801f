"""The package files and the index of a conda channel in a folder.

Build scripts can write to this folder, so links are not followed, pipes do not block, and only regular files are made
readable to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from groundwork import files
from groundwork.errors import IntegrityError

#: File in a channel of packages made on this machine: the key of each (the sha256 of its inputs) by its path below the
#: channel, since two platforms may have packages of one file name.
MADE_OF = "made-of.json"
_SUBDIR = re.compile(r"noarch|(linux|osx|win)-\w+")
_PACKAGE = re.compile(rf"(?:{_SUBDIR.pattern})/(?!\.)[^/]*\.conda")
#: Created at import, because msgspec's first use of a type is not thread-safe.
_TEXTS = msgspec.json.Decoder(dict[str, str])


def is_package(name: str) -> bool:
    """Return whether a path below a channel is a package file: ``linux-64/torch-1-0.conda``."""
    return _PACKAGE.fullmatch(name) is not None


def package_files(folder: Path) -> Iterator[Path]:
    """Yield all package files of a channel folder, except links and files behind links."""
    for subdir in subdirs(folder):
        for path in sorted(subdir.glob("*.conda")):
            if path.is_file() and not path.is_symlink():
                yield path


def subdirs(folder: Path) -> list[Path]:
    """Return the platform folders of a channel, except links."""
    return [path for path in entries(folder) if _SUBDIR.fullmatch(path.name) and not path.is_symlink()]


def entries(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder; none if the path is a link or not a folder."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(folder.iterdir())


def own_folder(path: Path) -> Path:
    """Create a folder if it is missing, and return it; raises IntegrityError for a link."""
    refuse_link(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def refuse_link(path: Path) -> None:
    """Raise IntegrityError for a link: a build may have made it to redirect our writes."""
    if path.is_symlink():
        raise IntegrityError(
            f"{path} is a symbolic link; a build may have made it",
            f"run: rm {path}; to use another disk, pass --output",
        )


def drop_packages(output_dir: Path, keep: frozenset[str]) -> None:
    """Remove all package files except those named in ``keep``."""
    for package in list(package_files(output_dir)):
        if package.name not in keep:
            files.remove(package)


def index(folder: Path, platform: str) -> None:
    """Rewrite a channel's index, and make the channel readable to all users, independent of the umask."""
    write_index(folder, platform)
    make_readable(folder)


def make_readable(folder: Path) -> None:
    """Make packages and index of a channel readable to all users."""
    folders = subdirs(folder)
    for path in (folder, *folders):
        path.chmod(0o755)
    readable = [*package_files(folder)]
    for subdir in folders:
        readable += subdir.glob("repodata*.json")
    for path in readable:
        with files.open_regular(path) as file:
            os.fchmod(file.fileno(), 0o644)


def write_index(folder: Path, platform: str) -> None:
    """Rewrite ``repodata.json`` from the channel's package files; also creates the platform's subdir."""
    from rattler.index import index_fs  # here: `clean` and --help need no channel's index

    for subdir in (platform, "noarch"):
        own_folder(folder / subdir)
    # not parallel: rattler holds each package in memory
    asyncio.run(index_fs(folder, force=True, write_zst=False, write_shards=False, max_parallel=1))
    # rattler's temporary folder, in which a killed process leaves an index
    for leftover in entries(folder / ".tmp"):
        if leftover.name.startswith("repodata.json.") and leftover.is_file():
            leftover.unlink()
    with contextlib.suppress(OSError):  # missing, or not empty
        (folder / ".tmp").rmdir()


def listed_hashes(folder: Path) -> dict[str, str] | None:
    """Return the sha256 of each file in a channel's index, by its path below the channel: ``linux-64/torch-1-0.conda``.

    Returns None if the index of a subdir is unreadable.
    """
    listed: dict[str, str] = {}
    for subdir in folder.iterdir():
        if not subdir.is_dir() or subdir.name.startswith("."):
            continue
        try:
            packages = json.loads((subdir / "repodata.json").read_text())["packages.conda"]
            for name, entry in packages.items():
                listed[f"{subdir.name}/{name}"] = str(entry["sha256"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
    return listed


def package_keys(folder: Path) -> dict[str, str]:
    """Return the keys of packages made on this machine, by path below the channel; empty for other channels.

    Compare keys, not file hashes: packages built twice from the same inputs differ in their time stamps.
    """
    recorded = files.read_record(folder / MADE_OF, _TEXTS) or {}
    return {_path_below(folder, name): key for name, key in recorded.items()}


def _path_below(folder: Path, name: str) -> str:
    """Return the path of a package below its channel; a channel of a former release records the file's name."""
    if "/" in name:
        return name
    return next((f"{subdir.name}/{name}" for subdir in subdirs(folder) if (subdir / name).exists()), name)
