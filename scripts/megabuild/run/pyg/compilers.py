"""Compilers that run below this process: how many, and how much memory each has taken at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import psutil

#: Programs that do the work behind g++ and nvcc, whose own processes only wait for them.
PROGRAMS = frozenset(
    {"cc1", "cc1plus", "lto1", "clang", "clang++", "cicc", "ptxas", "cudafe++", "nvlink", "fatbinary"}
)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one look found, and what all looks together did.

    Parameters
    ----------
    running:
        Compilers at work.
    resident:
        Bytes that they use together.
    peak:
        Most that one compiler was ever seen to use.
    finished:
        Compilers that were seen and have ended.
    """

    running: int = 0
    resident: int = 0
    peak: int = 0
    finished: int = 0


class Compilers:
    """Looks at the compilers below a process. In containers they are out of sight, and nothing is learned.

    Parameters
    ----------
    root:
        The process; this one by default.
    """

    def __init__(self, root: int | None = None) -> None:
        self._root = psutil.Process(root)
        self._known: set[tuple[int, float]] = set()
        self._peak = 0
        self._finished = 0

    def look(self) -> Seen:
        """Look once."""
        current: set[tuple[int, float]] = set()
        resident = 0
        for process in self._below():
            try:
                if process.name() in PROGRAMS:
                    size = int(process.memory_info().rss)
                    current.add((process.pid, process.create_time()))
                    resident += size
                    self._peak = max(self._peak, size)
            except psutil.Error:  # it ended meanwhile
                continue
        self._finished += len(self._known - current)
        self._known = current
        return Seen(running=len(current), resident=resident, peak=self._peak, finished=self._finished)

    def _below(self) -> Iterable[psutil.Process]:
        try:
            return self._root.children(recursive=True)
        except psutil.Error:
            return ()
