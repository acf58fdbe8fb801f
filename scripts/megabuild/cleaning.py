"""What builds have left on the disk: found by the driver's markers and names, measured, removed while nobody builds.

Only what lies below a folder with the driver's own marker is looked at (:func:`groundwork.in_use.mark`), and there only
names that the driver gives. Links are left alone, and whatever something is mounted in stays.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from groundwork import channel_folder, files, in_use
from megabuild.plan import published
from megabuild.providers.local.store import made_of

#: What the next run that needs it pays.
COSTS = {
    "work": "staging runs again, in minutes",
    "tree": "libtorch is compiled again",
    "logs": "nothing",
    "packages": "what was built is lost",
    "objects": "all is compiled again: hours",
    "downloads": "downloaded again",
    "channels": "packed again, in minutes",
    "debian": "made again, in minutes",
}
_STAMP = r"\d{8}T\d{6}(\.\d+)?Z"
_KEY = "[0-9a-f]{16}"
#: Kind, folder and names of its entries: below a run's folder, below the output folder, and below the cache.
_RUN = (
    ("work", ".", "out|tests|tmp|finished|pyg|preflight|debug|debug-enter"),
    ("tree", ".", "tree|tree.former"),
    ("logs", "logs", rf".+-{_STAMP}\.log"),
    ("logs", "runs", rf"{_STAMP}\.json"),
)
_OUTPUT = (("logs", ".", rf"logs-{_STAMP}\.zip"), ("logs", "logs", rf"crash-{_STAMP}-\d+\.txt"))
_CACHE = (
    ("objects", "objects", r"\w[\w.+-]*"),
    ("objects", ".", "ccache|pyg-compiled"),
    ("downloads", "rattler", r"\w[\w.+-]*"),
    ("downloads", "wheels", f"{_KEY}|locks"),
    ("downloads", ".", "torch-wheels|sdists|pyg-wheels|torch-source|environments"),
    ("channels", "channel/channels", _KEY),
    ("channels", "channel/planned", _KEY),
    ("channels", "channel/store", "[0-9a-f]{8,64}"),
    ("debian", "debian", _KEY),
)
_REMOVED = r"\.removed-[0-9a-f]{8}"


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something that builds have left."""

    kind: str
    path: Path
    run: str  #: whose it is; empty where all share it
    lock: Path | str  #: a run's lock file, or the name that users of the cache lock
    size: int  #: allocated bytes; what has several names counts once
    used: float  #: when a file of it was written or read last
    trouble: str  #: why it stays


def find_items(output: Path, cache: Path) -> Iterator[Item]:
    """Find and measure everything; seconds for gigabytes."""
    output, cache = output.resolve(), cache.resolve()
    for kind, path in _entries(output, _OUTPUT) if in_use.is_marked(output) else ():
        yield _item(kind, path)
    for run in sorted(path for path in output.glob("*") if _is_real(path) and in_use.is_marked(path)):
        lock = run / "lock"
        for kind, path in _entries(run, _RUN):
            if path != (run / "logs" / "latest.log").resolve():
                yield _item(kind, path, run.name, lock)
        for path in (output / "packages" / run.name, output / "wheels" / run.name):
            if _is_real(path, output):
                unknown = {one.name for one in channel_folder.package_files(path)} - published.records(
                    path
                ).keys()
                why = f"no build has published {min(unknown)}" if unknown else ""
                yield _item("packages", path, run.name, lock, why)
    if not in_use.is_marked(cache):
        return
    needed = _find_needed(output, cache)
    for kind, path in _entries(cache, _CACHE):
        folder = path.relative_to(cache).parts[0]
        if folder not in ("objects", "rattler") or path.name in ("shared", "pkgs"):
            why = needed.get(path.name, "") or needed.get("", "") if kind == "channels" else ""
            yield _item(kind, path, trouble=why)
        elif re.fullmatch(r".+-[0-9a-f]{8}", path.name):  # another feedstock's runs
            for one in sorted(path.iterdir()):
                yield _item(kind, one, f"{path.name}/{one.name}", f"{path.name}/{one.name}")
        else:
            yield _item(kind, path, path.name, path.name)


def _entries(root: Path, table: Sequence[tuple[str, str, str]]) -> Iterator[tuple[str, Path]]:
    """Give what is below a folder by the driver's names, and the rest of what was being removed there."""
    for kind, folder, names in table:
        names += "" if folder == "." and kind != "work" else f"|{_REMOVED}"
        for path in sorted((root / folder).iterdir()) if _is_real(root / folder, root) else ():
            if _is_real(path) and re.fullmatch(names, path.name):
                yield kind, path


def _is_real(path: Path, below: Path | None = None) -> bool:
    """Return whether it is a file or folder, and no part of the way to it from ``below`` a link."""
    parts = [
        path,
        *(one for one in path.parents if below is not None and one.is_relative_to(below) and one != below),
    ]
    with suppress(OSError):
        return not any(stat.S_ISLNK(one.lstat().st_mode) for one in parts) and (
            path.is_dir() or path.is_file()
        )
    return False


def _item(kind: str, path: Path, run: str = "", lock: Path | str = in_use.SHARED, trouble: str = "") -> Item:
    size, used, why = measure(path)
    return Item(kind=kind, path=path, run=run, lock=lock, size=size, used=used, trouble=trouble or why)


def _find_needed(output: Path, cache: Path) -> dict[str, str]:
    """Return by channel, and package of one, what needs it; for the empty name, what may need any of them."""
    needed = {}
    for folder, note in {**in_use.outputs(cache), output: None}.items():
        if note and not (folder / "packages").is_dir():
            needed[""] = (
                f"packages in {folder} may need it, which is away; delete {note} if it is gone for good"
            )
        for run in (folder / "packages").glob("*"):
            for channel in (one for beside in published.channels_beside(run) for one in beside):
                if isinstance(channel, Path):
                    names = [channel.name, *made_of(channel).values()]
                    needed |= dict.fromkeys(names, f"needed to install what was built of {run.name}")
    return needed


def measure(path: Path) -> tuple[int, float, str]:
    """Return the bytes of a file or folder, when it was used last, and why it has to stay, if so."""
    sizes, used, device = dict[tuple[int, int], int](), 0.0, path.lstat().st_dev
    trouble = next(
        (f"{point} is mounted" for point in _mount_points() if Path(point).is_relative_to(path.resolve())), ""
    )
    todo = [os.fspath(path)]
    while todo:
        here = todo.pop()
        try:
            status = os.lstat(here)
            if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
                todo += (entry.path for entry in os.scandir(here))
        except OSError as error:
            trouble = trouble or f"{here}: {error.strerror}"
            continue
        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
        if not stat.S_ISDIR(status.st_mode):
            used = max(used, status.st_mtime, status.st_atime)
        elif status.st_dev != device:
            trouble = trouble or f"{here} is on another file system"
    return sum(sizes.values()), used or path.lstat().st_mtime, trouble


def size_of(path: Path) -> int:
    """Return the allocated bytes of a file or folder; 0 where there is none."""
    return measure(path)[0] if os.path.lexists(path) else 0


def _mount_points() -> Iterator[str]:
    with suppress(OSError):  # Linux's list
        for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
            yield re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[4])


def remove(item: Item, cache: Path) -> str:
    """Remove something, unless somebody uses it; return why it stays, or nothing."""
    with ExitStack() as held:
        if isinstance(item.lock, Path):
            try:
                held.enter_context(files.FileLock(item.lock, timeout=0))
            except Timeout:
                return "in use"
        elif not held.enter_context(in_use.alone(cache, item.lock)):
            return "in use"
        if trouble := item.trouble or measure(item.path)[2]:
            return trouble
        files.remove(item.path)
    return ""
