"""What lies in an output folder and in the cache: found by its place, and measured; links are left alone."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from groundwork import in_use
from megabuild.cleaning.kinds import KINDS, Kind
from megabuild.plan import published, tree_reuse
from megabuild.providers.local.store import MADE_OF, made_of

#: Of a state folder, by kind.
_STATE = {
    "tree": ("tree", "tree.former"),
    "work": ("out", "tests", "tmp", "finished", "pyg", "preflight"),
    "debug": ("debug", "debug-enter"),
}
#: Of the cache: kind, folder, and what its entries are called.
_CACHE = (
    ("engine-packages", "rattler", ".+"),
    ("downloads", "wheels", ".+"),
    ("downloads", "torch-wheels", r".+-(cpu|cuda\d+)"),
    ("downloads", "sdists", ".+"),
    ("downloads", "pyg-wheels", ".+"),
    ("torch-source", "torch-source", "[0-9a-f]{16}"),
    ("channels", "channel/channels", "[0-9a-f]{16}"),
    ("channel-packages", "channel/store", "[0-9a-f]{8,64}"),
    ("planned", "channel/planned", "[0-9a-f]{16}"),
    ("debian", "debian", "[0-9a-f]{16}"),
    ("objects", "objects", ".+"),
    ("environments", "environments", ".+"),
    ("install-pyg", "ccache", ".+"),
    ("install-pyg", "pyg-compiled", ".+"),
    ("audit", "audit", "entries|git"),
)
#: What belongs to one config, whose lock is enough; everything else of the cache is anybody's.
_OWN = frozenset({"engine-packages", "objects"})
_REMOVED = ".removed-*"


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What a file or folder takes."""

    size: int = 0  #: bytes of allocated blocks; what has several names counts once
    used: float = 0.0  #: when a file of it was written or read last, in seconds since 1970
    inodes: dict[
        tuple[int, int], tuple[int, int, int]
    ]  #: of files with several names: names seen, in all, and bytes
    trouble: str = ""  #: why it cannot be removed as a whole


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something that can be removed by itself."""

    kind: Kind
    path: Path
    owner: str  #: the run that it belongs to, or which of several it is
    lock: str  #: what keeps it: ``run``, or the name of a lock of the cache
    measure: Measure
    needed_by: tuple[str, ...] = ()  #: runs whose packages need it
    seconds: float = 0.0  #: what having it again took last time, where that is known

    @property
    def age(self) -> float:
        """Seconds since it was used."""
        return max(0.0, time.time() - self.measure.used)

    @property
    def expired(self) -> bool:
        """Whether nobody is expected to want it."""
        expires = self.kind.expires
        return (
            expires is not None and self.age >= expires and not (self.kind.unneeded_only and self.needed_by)
        )


def survey(output: Path, cache: Path, kinds: Collection[str] = tuple(KINDS)) -> list[Item]:
    """Find and measure everything of these kinds; seconds for gigabytes."""
    return [
        Item(
            kind=KINDS[kind],
            path=path,
            owner=owner,
            lock=lock,
            measure=measure(path),
            needed_by=needed,
            seconds=took,
        )
        for kind, path, owner, lock, needed, took in (*_of_output(output), *_of_cache(output, cache))
        if kind in kinds
    ]


_Found = tuple[str, Path, str, str, tuple[str, ...], float]


def runs(output: Path) -> list[Path]:
    """Return the state folders of runs: by the lock that each has, whatever else is called so."""
    return [path for path in _entries(output) if path.is_dir() and (path / "lock").is_file()]


def _of_output(output: Path) -> Iterator[_Found]:
    for run in runs(output):
        took = _staging_seconds(run)
        for kind, places in _STATE.items():
            for name in places:
                path = run / name
                if _is_own(path) and (kind != "tree" or (path / tree_reuse.STAMP).is_file()):
                    yield kind, path, run.name, "run", (), took if kind == "tree" else 0.0
        latest = (run / "logs" / "latest.log").resolve()
        for path in _entries(run / "logs"):
            if path.suffix == ".log" and path != latest:
                yield "logs", path, run.name, "run", (), 0.0
        for path in _entries(run / "runs"):
            if path.suffix in (".json", ".jsonl", ".html"):
                yield "records", path, run.name, "run", (), 0.0
        for path in run.glob(_REMOVED):
            if _is_own(path):
                yield "leftovers", path, run.name, "run", (), 0.0
    for path in (*_entries(output / "logs"), *output.glob("logs-*.zip")):
        if path.suffix in (".txt", ".log", ".zip") and _is_own(path):
            yield "logs", path, "", "", (), 0.0
    for path in _entries(output / "packages"):
        if (path / published.RECORDS).is_file():
            yield "packages", path, path.name, "run", (), 0.0
    for path in _entries(output / "wheels"):
        if path.is_dir() and (output / path.name / "lock").is_file():
            yield "made-wheels", path, path.name, "run", (), 0.0


def _of_cache(output: Path, cache: Path) -> Iterator[_Found]:
    if not in_use.is_ours(cache):
        return
    needed = _needed_channels([output, *in_use.outputs(cache)])
    made: dict[str, tuple[str, ...]] = {}  # by package of a channel: whose packages need a channel with it
    for kind, folder, form in _CACHE:
        if any(part.is_symlink() for part in (cache / folder, (cache / folder).parent)):
            continue
        for path in _entries(cache / folder):
            if path.name.endswith(".lock") or path.name == "locks" or not re.fullmatch(form, path.name):
                continue
            for one, owner in _owned(kind, path):
                by = needed.get(one, ()) if kind == "channels" else made.get(one.name, ())
                if kind == "channels":
                    for key in made_of(one).values():
                        made[key] = tuple(dict.fromkeys((*made.get(key, ()), *by)))
                yield kind, one, owner, owner if kind in _OWN else in_use.SHARED, by, 0.0
    for path in (*cache.glob(_REMOVED), *cache.glob(f"*/{_REMOVED}"), *cache.glob(f"channel/*/{_REMOVED}")):
        if _is_own(path):
            yield "leftovers", path, "", in_use.SHARED, (), 0.0


def _owned(kind: str, path: Path) -> list[tuple[Path, str]]:
    """Return the parts of an entry with their owners: another feedstock's runs lie one folder deeper."""
    if kind in _OWN and re.fullmatch(r".+-[0-9a-f]{8}", path.name):
        return [(one, f"{path.name}/{one.name}") for one in _entries(path)]
    # objects of trusted runs, and the engine's own, are anybody's
    if kind in _OWN and path.name in ("shared", "pkgs"):
        return [(path, in_use.SHARED)]
    return [(path, path.name)]


def _needed_channels(outputs: list[Path]) -> dict[Path, tuple[str, ...]]:
    """Return by channel the runs with packages that cannot be installed without it."""
    needed: dict[Path, tuple[str, ...]] = {}
    for output in dict.fromkeys(one.absolute() for one in outputs):
        for folder in _entries(output / "packages"):
            for channels in published.channels_beside(folder):
                for channel in channels:
                    if isinstance(channel, Path):
                        needed[channel] = tuple(dict.fromkeys((*needed.get(channel, ()), folder.name)))
    return needed


def _staging_seconds(run: Path) -> float:
    """Return how long libtorch's compile took last time; 0 where nobody knows."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return float(json.loads((run / "run.json").read_bytes()).get("staging_seconds", 0.0))
    return 0.0


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, links left out; nothing where there is none, or it is a link."""
    if not _is_own(folder):
        return []
    with suppress(OSError):
        return sorted(path for path in folder.iterdir() if _is_own(path) and not path.name.startswith("."))
    return []


def _is_own(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def measure(path: Path) -> Measure:
    """Measure a file or folder."""
    size, used, inodes = 0, 0.0, dict[tuple[int, int], tuple[int, int, int]]()
    trouble = f"something is mounted at {mounted}" if (mounted := _mount_below(path)) else ""
    todo = [os.fspath(path)]
    device = path.lstat().st_dev
    while todo:
        here = todo.pop()
        try:
            status = os.lstat(here)
            if stat.S_ISDIR(status.st_mode):
                if status.st_dev != device:
                    trouble = trouble or f"{here} is on another file system"
                    continue
                todo += (entry.path for entry in os.scandir(here))
        except FileNotFoundError:
            continue
        except OSError as error:
            trouble = trouble or f"{here}: {error.strerror}"
            continue
        if not stat.S_ISDIR(status.st_mode):
            read = 0.0 if here.endswith(f"/{MADE_OF}") else status.st_atime  # which every survey reads
            used = max(used, status.st_mtime, read)
            if status.st_nlink > 1:
                key = status.st_dev, status.st_ino
                seen = inodes.get(key, (0, 0, 0))[0]
                inodes[key] = seen + 1, status.st_nlink, status.st_blocks * 512
                size -= status.st_blocks * 512 if seen else 0
        size += status.st_blocks * 512
    return Measure(size=size, used=used or path.lstat().st_mtime, inodes=inodes, trouble=trouble)


def freed(items: Collection[Item]) -> int:
    """Return the bytes that removing all of these gives back: what has a name elsewhere stays."""
    seen: dict[tuple[int, int], tuple[int, int, int]] = {}
    for item in items:
        for key, (names, whole, size) in item.measure.inodes.items():
            seen[key] = seen.get(key, (0, 0, 0))[0] + names, whole, size
    alone = sum(
        item.measure.size - sum(size for _, _, size in item.measure.inodes.values()) for item in items
    )
    return alone + sum(size for names, whole, size in seen.values() if names >= whole)


def _mount_below(path: Path) -> str:
    """Return where something is mounted at or below a path, as a killed run may have left it; nothing elsewhere."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    whole = os.path.realpath(path)
    for line in lines:
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[4])
        if point == whole or point.startswith(f"{whole}/"):
            return point
    return ""
