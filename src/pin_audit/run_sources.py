"""Find all sources, and read them in parallel, with a time limit.

A source that fails gives an outcome, not an exception.
"""

from __future__ import annotations

import math
import pkgutil
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import product
from pathlib import Path

from msgspec import structs

from groundwork.errors import Interrupted, MegabuildError
from pin_audit import git_command
from pin_audit.facts import SourceOutcome
from pin_audit.request import About, AuditRequest, Read, Source

_AT_ONCE = 8
_GRACE = 3.0  # seconds after the time limit, for sources to end by themselves


def _find_sources() -> dict[str, Source]:
    """Return the sources that the modules in ``sources`` name in `SOURCES`; those without a network come last."""
    sources: dict[str, Source] = {}
    folder = Path(__file__).with_name("sources")
    for module in pkgutil.iter_modules([str(folder)], f"{__package__}.sources."):
        sources |= import_module(module.name).SOURCES
    return dict(sorted(sources.items(), key=lambda item: item[1].about is About.REPOSITORY))


SOURCES = _find_sources()
READERS = {name: source.read for name, source in SOURCES.items()}


def sources_about(about: About) -> tuple[str, ...]:
    """Return the names of the sources with facts about a release, the channel or the repository."""
    return tuple(name for name, source in SOURCES.items() if source.about is about)


def is_stale(outcome: SourceOutcome) -> bool:
    """Whether a source outside the audited repository gave no facts, or old ones of a kind that changes daily."""
    about = SOURCES[outcome.source].about
    if about is About.REPOSITORY:
        return False
    if about is About.CHANNEL and outcome.snapshot:
        return True
    return outcome.unread


def gather(requests: Sequence[AuditRequest], readers: Mapping[str, Read]) -> list[tuple[SourceOutcome, ...]]:
    """Read every source for every request; return the outcomes of each request. Raises Interrupted."""
    numbers = range(len(requests))
    jobs = [(number, name) for name, number in product(readers, numbers)]
    waiting = iter(jobs)  # next() on it is atomic
    outcomes: dict[tuple[int, str], SourceOutcome] = {}

    def work() -> None:
        for number, name in waiting:
            request = requests[number]
            request.services.report(f"{request.target.package}: {name}")
            outcomes[number, name] = outcome_of(request, name, readers[name])

    # Daemon threads, not a pool: a name server that never answers must not stop the program from ending.
    for _ in range(min(_AT_ONCE, len(jobs))):
        threading.Thread(target=work, daemon=True).start()
    end = math.inf
    try:
        while len(outcomes) < len(jobs) and time.monotonic() < end:
            time.sleep(0.02)
            if requests[0].services.remaining() <= 0:
                end = min(end, time.monotonic() + _GRACE)
    except KeyboardInterrupt:
        raise Interrupted("interrupted", "run the command again; it reuses cached downloads") from None
    finally:
        git_command.stop()
    for number, name in jobs:
        late = SourceOutcome(source=name, trouble="not finished within the time limit (--timeout)")
        outcomes.setdefault((number, name), late)
    all_outcomes = []
    for number in numbers:
        all_outcomes.append(tuple(outcomes[number, name] for name in readers))
    return all_outcomes


def outcome_of(request: AuditRequest, name: str, read: Read) -> SourceOutcome:
    """Read one source, and name the outcome after it; an exception becomes the outcome's trouble."""
    try:
        return structs.replace(read(request), source=name)
    except MegabuildError as error:
        return SourceOutcome(source=name, trouble=error.message)
    except Exception as error:  # a bug in one source must not cost the whole table
        return SourceOutcome(source=name, trouble=f"unexpected {type(error).__name__}: {error}")
