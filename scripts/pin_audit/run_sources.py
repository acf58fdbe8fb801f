"""Read all sources in parallel, with a time limit; a source that fails gives an outcome, not an exception."""

from __future__ import annotations

import math
import pkgutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from msgspec import structs

from groundwork.errors import Interrupted, MegabuildError
from pin_audit import repositories
from pin_audit.facts import MOVING, SourceOutcome
from pin_audit.request import AuditRequest

#: A source: its outcome needs no name.
Read = Callable[[AuditRequest], SourceOutcome]
_AT_ONCE = 8
_GRACE = 3.0  # seconds after the time limit, for sources to end by themselves


def _find_readers(attribute: str) -> dict[str, Read]:
    modules = pkgutil.iter_modules([str(Path(__file__).with_name("sources"))], f"{__package__}.sources.")
    tables = (getattr(import_module(module.name), attribute, {}) for module in modules)
    return {name: read for table in tables for name, read in table.items()}


#: Sources that read only the audited repository.
OWN = _find_readers("OWN_READERS")
READERS = _find_readers("READERS") | OWN
SOURCES = tuple(READERS)
#: Sources whose facts about a release never change.
OF_RELEASE = tuple(name for name in READERS if name not in OWN and name not in MOVING)


def gather(requests: Sequence[AuditRequest], readers: Mapping[str, Read]) -> list[tuple[SourceOutcome, ...]]:
    """Read every source for every request; return the outcomes of each request. Raises Interrupted."""
    jobs = [(number, name) for name in readers for number in range(len(requests))]
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
        repositories.stop()
    late = "not finished within the time limit (--timeout)"
    return [
        tuple(outcomes.get((number, name), SourceOutcome(source=name, trouble=late)) for name in readers)
        for number in range(len(requests))
    ]


def outcome_of(request: AuditRequest, name: str, read: Read) -> SourceOutcome:
    """Read one source, and name the outcome after it; an exception becomes the outcome's trouble."""
    try:
        return structs.replace(read(request), source=name)
    except MegabuildError as error:
        return SourceOutcome(source=name, trouble=error.message)
    except Exception as error:  # a bug in one source must not cost the whole table
        return SourceOutcome(source=name, trouble=f"unexpected {type(error).__name__}: {error}")
