"""Processes: whether one is still the one it was, and the memory of everything below it, and of our own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

_PROC = Path("/proc")
_SECONDS = 2.0
#: Where the start time stands in /proc/PID/stat, counted from behind the program's name (proc(5), field 22).
_START = 19
#: Of <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def began(pid: int) -> float:
    """Return a number that no other process with this id has before the machine is started anew.

    On Linux it is in seconds from the machine's start: a clock that is set does not change it.

    Raises ProcessLookupError: There is no such process, or this user may not see it.
    """
    if not (_PROC / "self").exists():
        try:
            return psutil.Process(pid).create_time()
        except (psutil.Error, ValueError, OverflowError) as error:
            raise ProcessLookupError(pid) from error
    try:
        words = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return int(words[_START]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError) as error:
        raise ProcessLookupError(pid) from error


def is_running(pid: int, since: float) -> bool:
    """Return whether the process that :func:`began` at ``since`` is there; also where this user may not look at it."""
    try:
        return abs(began(pid) - since) < 1.0
    except ProcessLookupError:
        pass
    try:
        os.kill(pid, 0)
    except PermissionError:  # of somebody else, and /proc is mounted with hidepid
        return True
    except (OSError, OverflowError):
        return False
    return False  # one of ours that cannot be read is ending just now


class TreeMemory:
    """Resident bytes of this process and all below it, at most two seconds old; 0 where there is no /proc."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0
        self._taken = 0

    def __call__(self) -> int:
        """Return them."""
        if self._clock() >= self._next:
            self._next = self._clock() + _SECONDS
            self._taken = _sum_by_lists(os.getpid()) if (_PROC / "self").exists() else 0
        return self._taken


def tree(root: int) -> Iterator[Path]:
    """Give the folders of a process and of all below it, by the kernel's lists of children (proc(5)).

    One list for every thread: a millisecond, where asking every process of a machine takes a hundred times as long.
    """
    queue = [str(root)]
    while queue:
        here = _PROC / queue.pop()
        yield here
        with contextlib.suppress(OSError):  # it ended meanwhile
            for thread in os.listdir(here / "task"):
                with contextlib.suppress(OSError):
                    queue += (here / "task" / thread / "children").read_text().split()


def give_back_memory() -> None:
    """Have freed memory returned to the system from now on, where this C library can be told to; see mallopt(3).

    Packing and indexing packages in threads otherwise leaves hundreds of MB with a driver that waits for hours;
    trimming afterwards gives back a third of it.
    """
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        library = ctypes.CDLL(None)
        for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            library.mallopt(parameter, 128 << 10)
        library.mallopt(_M_ARENA_MAX, 2)


def _sum_by_lists(root: int) -> int:
    pages = 0
    for process in tree(root):
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages += int((process / "statm").read_bytes().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
