"""Finds and removes files of builds: only in folders with megabuild's marker, only by known names, never via links."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import psutil
from filelock import Timeout

from groundwork import channel_folder, files, in_use
from megabuild.plan.options import objects_lock
from megabuild.store import published

#: Kinds of files, and the cost of removing each.
COSTS = {
    "work": "staging is repeated: minutes",
    "tree": "libtorch is recompiled",
    "logs": "nothing",
    "packages": "built packages are lost",
    "objects": "everything is recompiled: hours",
    "downloads": "downloaded again",
    "channels": "repacked: minutes",
    "debian": "made again: minutes",
}
_STAMP, _KEY = r"\d{8}T\d{6}(\.\d+)?Z", "[0-9a-f]{16}"
#: Kind, folder and name pattern of the files: `_RUN` below a run's folder, `_CACHE` below the cache.
_RUN = (
    ("work", ".", "out|tests|tmp|finished|pyg|preflight|debug|debug-enter"),
    ("tree", ".", "tree"),
    ("logs", "logs", rf".+-{_STAMP}\.log"),
)
_CACHE = (
    ("objects", "objects", r"\w[\w.+-]*"),
    ("objects", ".", "ccache|pyg-compiled"),
    ("downloads", "rattler", r"\w[\w.+-]*"),
    ("downloads", "wheels", f"{_KEY}|locks"),
    ("downloads", ".", "torch-wheels|sdists|pyg-wheels|torch-source|environments|repodata"),
    ("channels", "channel/channels", _KEY),
    ("channels", "channel/planned", _KEY),
    ("channels", "channel/store", "[0-9a-f]{8,64}"),
    ("debian", "debian", _KEY),
)
#: Kinds of half removed folders without a name: of those at the top of a run's folder, and of the cache.
_UNNAMED = frozenset({"work", "downloads"})


@dataclass(frozen=True, kw_only=True)
class Item:
    """A file or folder that builds left."""

    kind: str
    path: Path
    run: str = ""  #: name of the run that owns it; empty if runs share it
    lock: Path | str = in_use.SHARED  #: a run's lock file, or the name of a lock in the cache
    needed: str = ""  #: reason to keep it, even if it is not in use


def find_items(output: Path, cache: Path) -> Iterator[Item]:
    """Find all files that builds left below an output folder and in the cache."""
    output, cache = output.resolve(), cache.resolve()
    for run in sorted(path for path in output.glob("*") if _is_real(path) and in_use.is_marked(path)):
        for kind, path in _entries(run, _RUN):
            if path != (run / "logs" / "latest.log").resolve():
                yield Item(kind=kind, path=path, run=run.name, lock=run / "lock")
        for path in (output / "packages" / run.name, output / "wheels" / run.name):
            for leftover in sorted(path.parent.glob(".removed-*")):
                if files.former_name(leftover.name) == run.name and _is_real(leftover, output):
                    yield Item(kind="packages", path=leftover, run=run.name, lock=run / "lock")
            if _is_real(path, output):
                records = published.records(path)
                foreign = [
                    file.name for file in channel_folder.package_files(path) if file.name not in records
                ]
                why = f"it contains {foreign[0]}, which no build published" if foreign else ""
                yield Item(kind="packages", path=path, run=run.name, lock=run / "lock", needed=why)
    if not in_use.is_marked(cache):
        return
    needed = _find_needed(output, cache)
    for kind, path in _entries(cache, _CACHE):
        folder = path.relative_to(cache).parts[0]
        if files.former_name(path.name) is not None:
            yield Item(kind=kind, path=path)
        elif folder == "objects":
            yield Item(kind=kind, path=path, lock=objects_lock(path.name))
        elif folder != "rattler" or path.name == "pkgs":
            why = needed.get(path.name, needed.get("", "")) if kind == "channels" else ""
            yield Item(kind=kind, path=path, needed=why)
        elif re.fullmatch(r".+-[0-9a-f]{8}", path.name):  # another feedstock's runs
            for below in sorted(path.iterdir()):
                run_name = f"{path.name}/{below.name}"
                yield Item(kind=kind, path=below, run=run_name, lock=run_name)
        else:
            yield Item(kind=kind, path=path, run=path.name, lock=path.name)


def _entries(root: Path, table: tuple[tuple[str, str, str], ...]) -> Iterator[tuple[str, Path]]:
    for kind, folder, names in table:
        for path in sorted((root / folder).iterdir()) if _is_real(root / folder, root) else ():
            former = files.former_name(path.name)
            name = path.name if former is None else former
            # a removal that kept no name belongs to any row of its folder
            is_unnamed = name == "" and (kind in _UNNAMED or folder != ".")
            if (is_unnamed or re.fullmatch(names, name)) and _is_real(path):
                yield kind, path


def _is_real(path: Path, below: Path | None = None) -> bool:
    """Return whether a path is a file or folder, and none of its parts below ``below`` is a link."""
    parts = [path]
    if below is not None:
        parts += [above for above in path.parents if above.is_relative_to(below) and above != below]
    return not any(part.is_symlink() for part in parts) and (path.is_dir() or path.is_file())


def _find_needed(output: Path, cache: Path) -> dict[str, str]:
    """Return the reasons to keep channels and their packages, by name; the reason under "" is for all of them."""
    needed = {}
    for folder, note in {**in_use.outputs(cache), output: None}.items():
        if note and not (folder / "packages").is_dir():
            needed[""] = (
                f"packages in {folder}, which is missing, may need it; if {folder} is gone for good, delete {note}"
            )
        for run in (folder / "packages").glob("*"):
            for channel in (channel for channels in published.channels_beside(run) for channel in channels):
                if isinstance(channel, Path):
                    names = [channel.name, *channel_folder.package_keys(channel).values()]
                    needed |= dict.fromkeys(names, f"needed to install the packages of {run.name}")
    return needed


def size_of(path: Path) -> int:
    """Return the allocated bytes of a file or folder, hard links counted once; 0 if it does not exist."""
    sizes: dict[tuple[int, int], int] = {}
    below = (Path(here, name) for here, folders, names in os.walk(path) for name in (*folders, *names))
    for entry in chain([path], below):
        with suppress(OSError):
            status = entry.lstat()
            sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def remove(item: Item, cache: Path) -> str:
    """Remove an item, unless it is in use, needed, or contains a mount point; return the reason it stays, or ""."""
    with ExitStack() as held:
        if isinstance(item.lock, Path):
            try:
                held.enter_context(files.FileLock(item.lock, timeout=0))
            except Timeout:
                return "in use"
        elif not held.enter_context(in_use.exclusive_lock(cache, item.lock)):
            return "in use"
        points = [disk.mountpoint for disk in psutil.disk_partitions(all=True)]
        mounted = [point for point in points if Path(point).is_relative_to(item.path.resolve())]
        if item.needed or mounted:
            return item.needed or f"{mounted[0]} is mounted"
        files.remove(item.path)
    return ""
