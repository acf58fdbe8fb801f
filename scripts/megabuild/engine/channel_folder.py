"""Healing the engine's output folder: what a killed run left half-done would break the next one.

Measured with rattler-build 0.73: a staging cache without ``metadata.json`` makes the engine build everything again and
then fail; a package appears by rename, but stands there before its test has run; what was unpacked for a test stays in
the temporary folder.

Build scripts may write there too, so nothing in it is followed, waited for or made readable to others: links and pipes
where the driver looks are removed first.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from rattler.index import index_fs

from megabuild import files
from megabuild.engine import archive
from megabuild.errors import IntegrityError

#: Folders that only a running engine needs.
_TRANSIENT = ("bld", "test", "broken")
_STAGINGS, _METADATA = "build_cache", "metadata.json"
_SUBDIR = re.compile(r"noarch|(linux|osx|win)-\w+")


def remove(path: Path) -> None:
    """Remove a folder or file; out of the way first, so that a kill in between leaves nothing that looks whole."""
    if path.is_dir() and not path.is_symlink():
        aside = path.with_name(f".removed-{uuid.uuid4().hex[:8]}")
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def is_package(name: str) -> bool:
    """Say whether a path is that of a package file below a channel: ``linux-64/torch-1-0.conda``."""
    subdir, _, file = name.partition("/")
    return bool(_SUBDIR.fullmatch(subdir)) and "/" not in file and file.endswith(".conda") and file[0] != "."


def package_files(folder: Path) -> Iterator[Path]:
    """Give all package files of a channel folder: no links, and none behind a link."""
    for subdir in _subdirs(folder):
        yield from sorted(filter(_is_file, subdir.glob("*.conda")))


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:  # a running engine has moved it
        return False


def _subdirs(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if _SUBDIR.fullmatch(path.name) and not path.is_symlink()]


def _entries(folder: Path) -> list[Path]:
    """Return what a folder holds; nothing where it is none, or a link to one."""
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def own_folder(path: Path) -> Path:
    """Make a folder of ours where there is none, and return it; raises what :func:`refuse_link` does."""
    refuse_link(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def refuse_link(path: Path) -> None:
    """Refuse a link in place of a folder: a build may have made it, to have us write somewhere else.

    Raises
    ------
    IntegrityError
        It is one.
    """
    if path.is_symlink():
        raise IntegrityError(
            f"{path} is a symbolic link, which a build may have made",
            "delete it; --output says on which disk everything lies",
        )


def _remove_foreign(folder: Path) -> Iterator[str]:
    """Remove what is neither file nor folder from where the driver looks; give what that was, in words."""
    for place in (folder, *_subdirs(folder), folder / _STAGINGS):
        for path in _entries(place):
            mode = path.lstat().st_mode
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                path.unlink()
                yield f"{path.relative_to(folder)}, neither a file nor a folder"


def heal(output_dir: Path) -> list[str]:
    """Bring the engine's output folder, in which nothing may be running, into a state from which it can go on.

    Returns
    -------
    What was removed, in words; work folders and the like, which every run leaves, are not mentioned.
    """
    told = list(_remove_foreign(output_dir))
    for place in (output_dir, *_subdirs(output_dir), output_dir / _STAGINGS):
        for rest in _entries(place):
            if rest.name.startswith(".removed-"):
                shutil.rmtree(rest, ignore_errors=True)
            elif rest.name.startswith(".tmp") or (place == output_dir and rest.name in _TRANSIENT):
                remove(rest)
    for staging in _stagings(output_dir):
        if not _whole(staging):
            remove(staging)
            told.append(f"half-written staging cache {staging.name[:20]}")
    for package in list(package_files(output_dir)):
        try:
            archive.read(package)
        except IntegrityError:
            remove(package)
            told.append(f"damaged package {package.name}")
    return told


def _stagings(output_dir: Path) -> list[Path]:
    return [path for path in _entries(output_dir / _STAGINGS) if path.name.startswith("staging_")]


def _whole(staging: Path) -> bool:
    try:
        with files.open_regular(staging / _METADATA) as file:
            return not staging.is_symlink() and isinstance(json.loads(file.read()), dict)
    except (OSError, ValueError, IntegrityError):
        return False


def staging_caches(output_dir: Path) -> list[Path]:
    """Return the finished stagings that the engine would find."""
    return [path for path in _stagings(output_dir) if _whole(path)]


def drop_stagings(output_dir: Path) -> None:
    """Remove all finished stagings."""
    for staging in staging_caches(output_dir):
        remove(staging)


def drop_packages(output_dir: Path, keep: frozenset[str]) -> None:
    """Remove package files but those named in ``keep``."""
    for package in list(package_files(output_dir)):
        if package.name not in keep:
            remove(package)


def link(source: Path, target: Path) -> None:
    """Put a file into place in one step, sharing its blocks where the file system can."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{target.name}")
    try:
        os.link(source, beside)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        shutil.copy2(source, beside)
    os.replace(beside, target)
    beside.unlink(
        missing_ok=True
    )  # still there where both were the same file already: then a rename does nothing


def move(source: Path, target: Path) -> None:
    """Put a file into another folder in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        files.copy(source, target)


def index(folder: Path, platform: str) -> None:
    """Write a channel's index anew, and let everybody read the channel, whatever the umask.

    Only what belongs to a channel becomes readable: what else lies beside it keeps its mode.
    """
    write_index(folder, platform)
    subdirs = _subdirs(folder)
    for path in (folder, *subdirs):
        path.chmod(0o755)
    for path in (
        *package_files(folder),
        *(file for subdir in subdirs for file in subdir.glob("repodata*.json")),
    ):
        with files.open_regular(path) as file:
            os.fchmod(file.fileno(), 0o644)


def write_index(folder: Path, platform: str) -> None:
    """Write a channel's ``repodata.json`` anew from what is there; the platform's subdir exists even when empty."""
    for subdir in (platform, "noarch"):
        own_folder(folder / subdir)
    asyncio.run(index_fs(folder, force=True, write_zst=False, write_shards=False))
    with contextlib.suppress(OSError):
        (folder / ".tmp").rmdir()  # in which rattler writes what it then renames
