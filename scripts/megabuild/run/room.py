"""Room on the disk while a run goes on: where it gets scarce, nothing new begins until there is more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from groundwork import events
from groundwork.errors import MegabuildError, OutOfSpaceError
from groundwork.resources.machine import disk_free
from groundwork.text import size
from megabuild.cleaning.survey import Item, survey
from megabuild.plan.plan import Plan

#: What compilers and packers that are at it may still write: a twentieth of what the plan reckons with, and at least
#: twice what counts as a full disk.
_SHARE, _LEAST_BYTES = 0.05, 100_000_000
#: So many times the floor must be free before it goes on, or it would stop again at once.
_ENOUGH = 2
_SECONDS = 1.0
_PATIENCE_SECONDS = 2 * 3600.0
_SUGGESTIONS = 3
#: Kinds of which other runs' can go while this one waits, those first that cost least to have again.
_SUGGESTED = ("leftovers", "logs", "debug", "work", "engine-packages", "tree", "objects")


class Room:
    """Looks once a second; ``held`` is set while nothing may begin, events of it go to ``tell``, from any thread."""

    def __init__(
        self,
        plan: Plan,
        held: threading.Event,
        tell: Callable[[events.Event], None],
        *,
        free: Callable[[Path], int] = disk_free,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = plan.options
        self._floor = max(_LEAST_BYTES, int(plan.estimate.disk * _SHARE))
        self._held = held
        self._tell = tell
        self._free, self._clock = free, clock
        self._next = self._since = 0.0
        self._told = False
        self._lock = threading.Lock()  # nobody is told of a pause that is over

    def look(self) -> None:
        """Hold what is to begin, or let it go on.

        Raises OutOfSpaceError: There was no room for hours.
        """
        if self._clock() < self._next:
            return
        self._next = self._clock() + _SECONDS
        free, enough = self._free(self._options.state), _ENOUGH * self._floor
        if not self._held.is_set():
            if free < self._floor:
                self._held.set()
                self._since, self._told = self._clock(), False
                threading.Thread(target=self._explain, args=(free,), daemon=True).start()
        elif free >= enough:
            with self._lock:
                self._held.clear()
                if self._told:
                    self._tell(events.WentOn(free=free))
        elif self._clock() - self._since > _PATIENCE_SECONDS:
            raise OutOfSpaceError(
                f"{self._options.state}: {size(free)} are free, {size(enough)} are needed, and were not for "
                f"{_PATIENCE_SECONDS / 3600:.0f} hours",
                "free some space (`megabuild clean` says what may go) and run again: what is finished is kept",
            )

    def _explain(self, free: int) -> None:
        """Say why nothing begins any more, and what may go: finding that takes seconds."""
        note = (
            f"{size(free)} are free in {self._options.state}, it goes on with {size(_ENOUGH * self._floor)}"
        )
        found: list[Item] = []
        with suppress(OSError, ValueError, MegabuildError):  # advice, and the run is what matters
            found = suggestions(
                self._options.output, self._options.cache, self._options.run_name, self._options.state
            )
        ways = ", ".join(f"{item.kind.name} of {item.owner} ({size(item.measure.size)})" for item in found)
        note += f"; `megabuild clean` may remove {ways}" if found else "; nothing else of this program can go"
        with self._lock:
            if self._held.is_set() and not self._told:
                self._told = True
                self._tell(events.Paused(note=note))


def suggestions(output: Path, cache: Path, run: str, state: Path) -> list[Item]:
    """Return what gives most room on the file system of a run's state and is not the run's, by what it costs."""
    device = state.stat().st_dev
    found = [
        item
        for item in survey(output, cache, _SUGGESTED)
        if item.owner not in ("", run)
        and not item.owner.endswith(f"/{run}")
        and item.lock in ("run", item.owner)
        and item.path.lstat().st_dev == device
    ]
    largest = sorted(found, key=lambda item: -item.measure.size)[:_SUGGESTIONS]
    return sorted(largest, key=lambda item: _SUGGESTED.index(item.kind.name))
