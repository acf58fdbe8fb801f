"""Events as sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence

from megabuild import events
from megabuild.cli.root import display
from megabuild.cli.text import Signs, duration
from megabuild.wording import counted

_STAGING = {
    "fresh": "libtorch is made from the start",
    "reuse": "the finished libtorch is reused",
    "resume": "the compile of libtorch goes on where it stopped",
    "recompile": "libtorch is made again, with objects from the object cache",
}
_UNPACKING = {
    "fresh": "libtorch is taken out of its wheel",
    "resume": "libtorch is taken out of its wheel again",
    "recompile": "libtorch is taken out of its wheel again",
}
_PHASES = {
    "staging": "environment",
    "sync": "unpacking the source",
    "python": "Python side",
    "split": "taking the wheel apart",
    "normalise": "writing the package so that it is the same every time",
}


def label(name: str, build_string: str, version: str = "") -> str:
    """Return a short name for a package: ``pytorch 2.13.0 py3.12``, ``libtorch-cuda-linalg 2.13.0 magma``."""
    python = re.search(r"_py(\d)(\d+t?)_", build_string)
    linalg = re.search(r"_((?:no)?magma)_", build_string)
    kind = f"py{python[1]}.{python[2]}" if python else linalg[1] if linalg else ""
    return " ".join(part for part in (name, version, kind) if part)


def decision(decided: str, reasons: Sequence[str], *, compiles: bool = True) -> str:
    """Return what becomes of a former libtorch, which is compiled or else taken out of a wheel, and why."""
    because = f" ({'; '.join(reasons)})" if reasons else ""
    words = _STAGING if compiles else {**_STAGING, **_UNPACKING}
    return words.get(decided, decided) + because


def step(event: events.PhaseStarted | events.Progress) -> str:
    """Return what is going on: ``libtorch: compile``, ``pytorch 3.12: Python side``."""
    package = "libtorch" if event.package == "staging" else event.package
    what = _PHASES.get(event.phase, event.phase)
    return f"{package}{' ' + event.python if event.python else ''}: {what}"


def narrate(event: events.Event, signs: Signs) -> str | None:
    """Return the line an event is worth, or None for what only a live line shows."""
    match event:
        case events.RunStarted():
            return f"log: {display(event.log)}"
        case events.Checked():
            return f"checked {event.check}: {event.detail}"
        case events.Healed():
            return f"removed {event.what}, left by a run that was killed"
        case events.StagingDecided():
            return decision(event.decision, event.reasons, compiles=event.compiles)
        case events.PhaseStarted():
            return step(event)
        case events.Swapped():
            return (
                f"Python {event.from_python} -> {event.to_python}: {counted(event.steps, 'step')} to run, "
                f"{counted(event.core, 'core object')} among them"
            )
        case events.Reused():
            return f"{event.objects} of {event.of} objects reused from {event.source}"
        case events.PackageBuilt():
            name = label(event.name, event.build_string, event.version)
            return f"{signs.done} {name}: built in {duration(event.seconds)}"
        case events.TestRun():
            return f"testing {event.name}"
        case events.Warned():
            return f"{signs.warning} {event.message}"
        case events.JobsChanged():
            return (
                f"{counted(event.count, 'compile job')} at once for all extensions together ({event.reason})"
            )
        case events.TaskStarted():
            return f"{event.task}: started"
        case events.TaskEnded(status="failed"):
            return f"{signs.failed} {event.task}: {event.message}"
        case events.InTask():
            return _in_task(event, signs)
        case _:
            return None


def _in_task(event: events.InTask, signs: Signs) -> str | None:
    """Several tasks run at the same time: their phases are for the moving lines, the rest says whose it is."""
    match event.event:
        case events.PhaseStarted() | events.TestRun():
            return None
        case events.PackageBuilt():
            return narrate(event.event, signs)
        case inner:
            line = narrate(inner, signs)
            return f"{event.task}: {line}" if line else None
