"""Finds and removes files of builds: only in folders with megabuild's marker, only by known names, never via links."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import psutil
from filelock import Timeout

from groundwork import channel_folder, files, in_use
from groundwork.errors import IntegrityError
from megabuild.plan.options import objects_lock
from megabuild.store import published


class Kind(str, Enum):
    """The kinds of files that builds leave."""

    WORK = "work"
    TREE = "tree"
    LOGS = "logs"
    PACKAGES = "packages"
    OBJECTS = "objects"
    DOWNLOADS = "downloads"
    CHANNELS = "channels"
    DEBIAN = "debian"


#: The cost of removing each kind.
COSTS = {
    Kind.WORK: "staging is repeated: minutes",
    Kind.TREE: "libtorch is recompiled",
    Kind.LOGS: "nothing",
    Kind.PACKAGES: "built packages are lost",
    Kind.OBJECTS: "everything is recompiled: hours",
    Kind.DOWNLOADS: "downloaded again",
    Kind.CHANNELS: "repacked: minutes",
    Kind.DEBIAN: "made again: minutes",
}


class _Row(NamedTuple):
    """Files that builds leave."""

    kind: Kind
    folder: str  #: below a run's folder or the cache
    names: str  #: pattern


_STAMP = r"\d{8}T\d{6}(\.\d+)?Z"
_KEY = "[0-9a-f]{16}"
_OBJECTS = "objects"
_RATTLER = "rattler"
#: Below a run's folder.
_RUN = (
    _Row(Kind.WORK, ".", "out|tests|tmp|finished|pyg|preflight|debug|debug-enter"),
    _Row(Kind.TREE, ".", "tree"),
    _Row(Kind.LOGS, "logs", rf".+-{_STAMP}\.log"),
)
#: Below the cache.
_CACHE = (
    _Row(Kind.OBJECTS, _OBJECTS, r"\w[\w.+-]*"),
    _Row(Kind.OBJECTS, ".", "ccache|pyg-compiled"),
    _Row(Kind.DOWNLOADS, _RATTLER, r"\w[\w.+-]*"),
    _Row(Kind.DOWNLOADS, "wheels", f"{_KEY}|locks"),
    _Row(Kind.DOWNLOADS, ".", "torch-wheels|sdists|pyg-wheels|torch-source|environments|repodata"),
    _Row(Kind.CHANNELS, "channel/channels", _KEY),
    _Row(Kind.CHANNELS, "channel/planned", _KEY),
    _Row(Kind.CHANNELS, "channel/store", "[0-9a-f]{8,64}"),
    _Row(Kind.DEBIAN, "debian", _KEY),
)
#: Kinds of half removed folders without a name: of those at the top of a run's folder, and of the cache.
_UNNAMED = frozenset({Kind.WORK, Kind.DOWNLOADS})


@dataclass(frozen=True, kw_only=True)
class Item:
    """A file or folder that builds left."""

    kind: Kind
    path: Path
    run: str = ""  #: name of the run that owns it; empty if runs share it
    lock: Path | str = in_use.SHARED  #: a run's lock file, or the name of a lock in the cache
    needed: str = ""  #: reason to keep it, even if it is not in use


def find_items(output: Path, cache: Path) -> Iterator[Item]:
    """Find all files that builds left below an output folder and in the cache."""
    output = output.resolve()
    cache = cache.resolve()
    for run in sorted(output.glob("*")):
        if _is_real(run) and in_use.is_marked(run):
            yield from _items_of_run(run, output)
    if in_use.is_marked(cache):
        yield from _items_of_cache(cache, _find_needed(output, cache))


def _items_of_run(run: Path, output: Path) -> Iterator[Item]:
    lock = run / "lock"
    latest = (run / "logs" / "latest.log").resolve()
    for kind, path in _entries(run, _RUN):
        if path != latest:
            yield Item(kind=kind, path=path, run=run.name, lock=lock)
    for path in (output / "packages" / run.name, output / "wheels" / run.name):
        for leftover in sorted(path.parent.glob(".removed-*")):
            if files.former_name(leftover.name) == run.name and _is_real(leftover, output):
                yield Item(kind=Kind.PACKAGES, path=leftover, run=run.name, lock=lock)
        if _is_real(path, output):
            needed = _foreign_package(path)
            yield Item(kind=Kind.PACKAGES, path=path, run=run.name, lock=lock, needed=needed)


def _foreign_package(channel: Path) -> str:
    """Return the reason to keep a channel with a package that no build published, or an empty string."""
    records = published.records(channel)
    for file in channel_folder.package_files(channel):
        if file.name not in records:
            return f"it contains {file.name}, which no build published"
    return ""


def _items_of_cache(cache: Path, needed: Mapping[str, str]) -> Iterator[Item]:
    """Find the files in the cache; ``needed`` has the reasons to keep channels, as of :func:`_find_needed`."""
    for kind, path in _entries(cache, _CACHE):
        folder = path.relative_to(cache).parts[0]
        if files.former_name(path.name) is not None:
            yield Item(kind=kind, path=path)
        elif folder == _OBJECTS:
            yield Item(kind=kind, path=path, lock=objects_lock(path.name))
        elif folder == _RATTLER and path.name != "pkgs":
            yield from _unpacked_packages(kind, path)
        elif kind is Kind.CHANNELS:
            yield Item(kind=kind, path=path, needed=needed.get(path.name, needed.get("", "")))
        else:
            yield Item(kind=kind, path=path)


def _unpacked_packages(kind: Kind, folder: Path) -> Iterator[Item]:
    """Find the unpacked packages of a run, or of another feedstock's runs."""
    if not re.fullmatch(r".+-[0-9a-f]{8}", folder.name):
        yield Item(kind=kind, path=folder, run=folder.name, lock=folder.name)
        return
    for below in sorted(folder.iterdir()):
        run_name = f"{folder.name}/{below.name}"
        yield Item(kind=kind, path=below, run=run_name, lock=run_name)


def _entries(root: Path, table: Iterable[_Row]) -> Iterator[tuple[Kind, Path]]:
    for row in table:
        folder = root / row.folder
        if _is_real(folder, root):
            for path in sorted(folder.iterdir()):
                if _fits(path, row) and _is_real(path):
                    yield row.kind, path


def _fits(path: Path, row: _Row) -> bool:
    """Return whether a path, or a half removed one's former name, belongs to a row."""
    former = files.former_name(path.name)
    name = path.name if former is None else former
    if not name:  # a removal that kept no name belongs to any row of its folder
        return row.kind in _UNNAMED or row.folder != "."
    return bool(re.fullmatch(row.names, name))


def _is_real(path: Path, below: Path | None = None) -> bool:
    """Return whether a path is a file or folder, and none of its parts below ``below`` is a link."""
    part = path
    while below is not None and part != below and part.is_relative_to(below):
        if part.is_symlink():
            return False
        part = part.parent
    return not path.is_symlink() and (path.is_dir() or path.is_file())


def _find_needed(output: Path, cache: Path) -> dict[str, str]:
    """Return the reasons to keep channels and their packages, by name; the reason under "" is for all of them."""
    needed: dict[str, str] = {}
    for folder, note in {**in_use.outputs(cache), output: None}.items():
        try:
            runs = sorted((folder / "packages").iterdir())
        except (FileNotFoundError, NotADirectoryError):
            runs = []
            if note:
                needed[""] = (
                    f"packages in {folder}, which is missing, may need it; if {folder} is gone for good, delete {note}"
                )
        except OSError as error:
            runs = []
            needed[""] = f"packages in {folder} may need it, but cannot be listed: {error.strerror}"
        for run in runs:
            try:
                names = _channels_of(run)
            except IntegrityError as error:
                needed[""] = f"packages of {run.name} may need it, but {error.message}; {error.remedy}"
            else:
                needed |= dict.fromkeys(names, f"needed to install the packages of {run.name}")
    return needed


def _channels_of(run: Path) -> list[str]:
    """Return the names of the channels that a run's packages need, and the keys of the packages in them.

    Raises IntegrityError: The record of these channels is damaged.
    """
    names: list[str] = []
    for channels in published.needed_channels(run):
        for channel in channels:
            if channel.folder:
                names += [channel.folder.name, *channel_folder.package_keys(channel.folder).values()]
    return names


def size_of(path: Path) -> int:
    """Return the allocated bytes of a file or folder, hard links counted once; 0 if it does not exist."""
    sizes: dict[tuple[int, int], int] = {}
    for entry in _walk(path):
        with suppress(OSError):
            status = entry.lstat()
            sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def _walk(path: Path) -> Iterator[Path]:
    yield path
    for here, folders, names in os.walk(path):
        for name in (*folders, *names):
            yield Path(here, name)


def remove(item: Item, cache: Path) -> str:
    """Remove an item, unless it is in use, needed, or contains a mount point; return the reason it stays, or ""."""
    with ExitStack() as held:
        if not _lock(item, cache, held):
            return "in use"
        reason = item.needed or _mount_below(item.path)
        if not reason and (rest := files.remove(item.path)):
            reason = f"removed in part; the rest is in {rest}, where some files cannot be removed"
        return reason


def _lock(item: Item, cache: Path, held: ExitStack) -> bool:
    """Take an item's lock until ``held`` ends; return whether no other process has it."""
    if not isinstance(item.lock, Path):
        return held.enter_context(in_use.exclusive_lock(cache, item.lock))
    try:
        held.enter_context(files.FileLock(item.lock, timeout=0))
    except Timeout:
        return False
    return True


def _mount_below(path: Path) -> str:
    """Return that a path contains a mount point, or an empty string."""
    folder = path.resolve()
    for disk in psutil.disk_partitions(all=True):
        if Path(disk.mountpoint).is_relative_to(folder):
            return f"{disk.mountpoint} is mounted"
    return ""
