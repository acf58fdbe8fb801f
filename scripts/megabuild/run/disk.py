"""Measures the disk usage of a run while it goes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from megabuild.run.summary import DiskUse

_INTERVAL_SECONDS = 30.0
_LEAST_SECONDS = 1.0
#: A measurement may take this share of the time: large trees are measured less often.
_SHARE = 0.002


@dataclass(frozen=True, kw_only=True)
class Size:
    """Bytes below a folder: allocated blocks (hard links counted once) and the sum of all file sizes."""

    allocated: int = 0
    apparent: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(allocated=self.allocated + other.allocated, apparent=self.apparent + other.apparent)


def size_of(folder: Path, seen: set[tuple[int, int]] | None = None) -> Size:
    """Measure a folder; what vanishes while we look counts nothing."""
    seen = set() if seen is None else seen
    allocated = apparent = 0
    folders = [os.fspath(folder)]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
            except OSError:
                continue
            apparent += status.st_size
            if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                key = (status.st_dev, status.st_ino)
                if key in seen:
                    continue
                seen.add(key)
            allocated += status.st_blocks * 512
    return Size(allocated=allocated, apparent=apparent)


class DiskWatch:
    """Samples a state folder now and then and keeps the highest figures."""

    def __init__(self, state: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock
        self._next = 0.0
        self._earliest = 0.0
        self._peak = Size()
        self._tree = 0
        self._staged = 0
        self.taken = 0  #: bytes, allocated, when it was measured last

    def tick(self, *, occasion: bool = False) -> None:
        """Measure if it is time to.

        `occasion`: Something has changed, such as the phase: measure unless it was done just now.
        """
        now = self._clock()
        if now < (self._earliest if occasion else self._next):
            return
        seen: set[tuple[int, int]] = set()
        tree = size_of(self._state / "tree", seen)
        staged = size_of(self._state / "out" / "build_cache", seen)
        whole = tree + staged
        out = self._state / "out"
        parts = [part for part in (out.iterdir() if out.is_dir() else ()) if part.name != "build_cache"]
        for part in (*parts, self._state / "tmp"):
            whole += size_of(part, seen)
        self.taken = whole.allocated
        self._tree = max(self._tree, tree.allocated)
        self._staged = max(self._staged, staged.apparent)
        self._peak = Size(
            allocated=max(self._peak.allocated, whole.allocated),
            apparent=max(self._peak.apparent, whole.apparent),
        )
        took = self._clock() - now
        self._next = now + max(_INTERVAL_SECONDS, took / _SHARE)
        self._earliest = now + max(_LEAST_SECONDS, took / _SHARE)

    def result(self, inheriting: int) -> DiskUse:
        """Return the figures."""
        return DiskUse(
            peak=self._peak.allocated,
            peak_apparent=self._peak.apparent,
            tree=self._tree,
            staged=self._staged,
            copied=self._staged * (1 + inheriting) if inheriting else 0,
        )
