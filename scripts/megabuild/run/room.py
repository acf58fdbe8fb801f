"""Room on the disk while a run goes on: where it gets scarce, nothing new begins until there is more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from groundwork import events
from groundwork.errors import FULL, MegabuildError, OutOfSpaceError
from groundwork.resources.machine import disk_free, disk_of
from groundwork.text import size
from megabuild.cleaning.survey import Item, survey
from megabuild.plan.plan import Plan

#: What compilers and packers that are at it may still write: a twentieth of what the plan reckons with, and at least
#: twice what counts as a full disk.
_SHARE, _LEAST_BYTES = 0.05, 100_000_000
#: So many times the floor must be free before it goes on, or it would stop again at once.
_ENOUGH = 2
_SECONDS = 1.0
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 2 * 3600.0
_SUGGESTIONS = 3
#: Kinds of which other runs' can go while this one waits, those first that cost least to have again.
_SUGGESTED = ("leftovers", "logs", "debug", "work", "engine-packages", "tree", "objects")


class Room:
    """Looks once a second; ``held`` is set while nothing may begin, events of it go to ``tell``, from any thread.

    It looks at the output folder, and at the cache where that lies on another disk, which has to have no more than what
    counts as full: what the plan reckons with is not written there.
    """

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
        self._floors = {plan.options.state: max(_LEAST_BYTES, int(plan.estimate.disk * _SHARE))}
        if disk_of(plan.options.cache) != disk_of(plan.options.state):
            self._floors[plan.options.cache] = _LEAST_BYTES
        self._held = held
        self._tell = tell
        self._free, self._clock = free, clock
        self._next = self._since = 0.0
        self._told = self._tried = self._waited = False
        self._lock = threading.Lock()  # nobody is told of a pause that is over
        self._looking = threading.Lock()

    def look(self) -> None:
        """Hold what is to begin, or let it go on.

        Raises OutOfSpaceError: There was no room for hours.
        """
        if self._clock() < self._next or not self._looking.acquire(blocking=False):
            return
        try:
            self._next = self._clock() + _SECONDS
            self._look()
        finally:
            self._looking.release()

    def _look(self) -> None:
        free = {place: self._free(place) for place in self._floors}
        place = min(free, key=lambda one: free[one] / self._floors[one])
        if not self._held.is_set():
            if free[place] < self._floors[place]:
                self._held.set()
                self._waited = True
                self._since, self._told = self._clock(), False
                threading.Thread(target=self._explain, args=(place, free[place]), daemon=True).start()
        elif free[place] >= _ENOUGH * self._floors[place]:
            with self._lock:
                self._held.clear()
                if self._told:
                    self._tell(events.WentOn(free=free[place]))
        elif self._clock() - self._since > _PATIENCE_SECONDS:
            raise OutOfSpaceError(
                f"{place}: {size(free[place])} are free, {size(_ENOUGH * self._floors[place])} are needed, and were "
                f"not for {_PATIENCE_SECONDS / 3600:.0f} hours",
                "free some space (`megabuild clean` says what may go) and run again: what is finished is kept",
            )

    @contextmanager
    def waiting(self, notes: events.Notes) -> Iterator[events.Notes]:
        """Give what takes a preparation's notes, and has each of its threads wait in there while there is no room."""
        over = threading.Event()  # nobody waits any more for what has failed, or was interrupted

        def noted(what: str | events.Preparing) -> None:
            notes(what)
            self.look()
            while self._held.is_set() and not over.wait(_POLL_SECONDS):
                self.look()

        try:
            yield noted
        finally:
            over.set()

    def came(self, error: Exception) -> bool:
        """Wait for room where that was what something failed of; say whether it is worth another attempt.

        The engine, say, tells of a file that it could not write, and not why: whatever failed while there was no room
        is tried again.
        """
        lacking = isinstance(error, OutOfSpaceError) or (isinstance(error, OSError) and error.errno in FULL)
        self._next = 0.0  # it may have got full since the last look
        self.look()
        while self._held.is_set():
            time.sleep(_POLL_SECONDS)
            self.look()
        waited, self._waited = self._waited, False
        first, self._tried = not self._tried, self._tried or lacking
        return waited or (lacking and first)

    def _explain(self, place: Path, free: int) -> None:
        """Say why nothing begins any more, and what may go: finding that takes seconds."""
        note = f"{size(free)} are free in {place}, it goes on with {size(_ENOUGH * self._floors[place])}"
        found: list[Item] = []
        with suppress(OSError, ValueError, MegabuildError):  # advice, and the run is what matters
            found = suggestions(self._options.output, self._options.cache, self._options.run_name, place)
        ways = ", ".join(f"{item.kind.name} of {item.owner} ({size(item.measure.size)})" for item in found)
        note += f"; `megabuild clean` may remove {ways}" if found else "; nothing else of this program can go"
        with self._lock:
            if self._held.is_set() and not self._told:
                self._told = True
                self._tell(events.Paused(note=note))


def suggestions(output: Path, cache: Path, run: str, place: Path) -> list[Item]:
    """Return what gives most room on the file system of a place and is not the run's, by what it costs."""
    device = disk_of(place)
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
