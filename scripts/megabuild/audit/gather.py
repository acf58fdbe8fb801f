"""Asks all sources at once, in bounded time; whatever becomes of one of them, its outcome is a value."""

from __future__ import annotations

import importlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from megabuild.audit.facts import Outcome
from megabuild.audit.request import Request
from megabuild.errors import MegabuildError

#: Modules of `megabuild.audit.sources`, each with ``read(request)``; those that wait for the network begin first.
SOURCES = (
    "submodules",
    "upstream_commit",
    "channel",
    "wheel_metadata",
    "pinning",
    "ci_pins",
    "upstream_archs",
    "recipe_pins",
    "recipe_commits",
    "recipe_archs",
)
#: Those that need nothing but this repository.
OWN = ("recipe_pins", "recipe_commits", "recipe_archs")
_AT_ONCE = 8
_LATE = "no end within the time limit (--timeout)"
_GRACE = 3.0  # seconds after the time limit, in which sources notice it themselves

Read = Callable[[Request], Outcome]


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something that began, or ended with an outcome."""

    package: str
    source: str
    outcome: Outcome | None = None


def sources(wanted: Sequence[str] = SOURCES) -> Mapping[str, Read]:
    """Return the functions of some sources by name."""
    return {name: importlib.import_module(f"megabuild.audit.sources.{name}").read for name in wanted}


def gather(
    requests: Sequence[Request],
    reads: Mapping[str, Read],
    report: Callable[[Step], None] = lambda _: None,
) -> dict[str, tuple[Outcome, ...]]:
    """Ask every source for every package.

    Parameters
    ----------
    requests:
        One per package; their services end the whole in time.
    reads:
        From `sources`.
    report:
        Is told from this thread what began and what ended.

    Returns
    -------
    The outcomes by package, in the order of ``reads``.
    """
    tasks: queue.SimpleQueue[tuple[Request, str] | None] = queue.SimpleQueue()
    steps: queue.SimpleQueue[Step] = queue.SimpleQueue()
    for name in reads:
        for request in requests:
            tasks.put((request, name))

    def work() -> None:
        while (task := tasks.get()) is not None:
            request, name = task
            steps.put(Step(package=request.target.package, source=name))
            outcome = _outcome(request, name, reads[name])
            steps.put(Step(package=request.target.package, source=name, outcome=outcome))

    # Daemons, not a pool: a name server that never answers must not keep the program from ending.
    workers = min(_AT_ONCE, len(requests) * len(reads))
    for _ in range(workers):
        tasks.put(None)
        threading.Thread(target=work, daemon=True).start()
    found: dict[tuple[str, str], Outcome] = {}
    waiting = len(requests) * len(reads)
    end: float | None = None
    while len(found) < waiting and (end is None or time.monotonic() < end):
        if end is None and requests[0].services.remaining() <= 0:
            end = time.monotonic() + _GRACE
        try:
            step = steps.get(timeout=0.2)  # short, so that Ctrl-C is heard
        except queue.Empty:
            continue
        if step.outcome is not None:
            found[step.package, step.source] = step.outcome
        report(step)
    return {
        request.target.package: tuple(
            found.get((request.target.package, name), Outcome(source=name, trouble=_LATE)) for name in reads
        )
        for request in requests
    }


def _outcome(request: Request, name: str, read: Read) -> Outcome:
    try:
        return read(request)
    except MegabuildError as error:
        return Outcome(source=name, trouble=error.message)
    except Exception as error:  # a fault of ours in one source must not cost the whole table
        return Outcome(source=name, trouble=f"unexpected {type(error).__name__}: {error}")
