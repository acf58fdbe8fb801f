"""What happens during a run, as values: the command line shows them, a script reads them, tests look at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class Event:
    """Something that happened."""


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The state folder is locked and the log file is open."""

    config: str
    log: Path
    isolation: str


@dataclass(frozen=True, kw_only=True)
class Checked(Event):
    """One preflight check passed."""

    check: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Healed(Event):
    """Something that a killed run had left was removed."""

    what: str


@dataclass(frozen=True, kw_only=True)
class StagingDecided(Event):
    """What becomes of the former compile of libtorch."""

    #: ``fresh`` (nothing was there), ``reuse`` (finished and unchanged), ``resume`` (the tree stays, what is missing or
    #: changed is compiled), ``recompile`` (the tree goes, objects come from the object cache only)
    decision: str
    reasons: Sequence[str]  #: why, such as ``libprotobuf 6.31.1 -> 7.35.1``
    compiles: bool = True  #: it is compiled, and not taken out of a wheel


@dataclass(frozen=True, kw_only=True)
class PhaseStarted(Event):
    """A phase has begun: a build script announced it, or the engine or the driver is at it."""

    #: ``sync``, ``configure``, ``compile``, ``install``, ``swap``, ``python``, ``package``; ``staging`` and ``test``
    #: come from the engine itself, ``normalise`` from the driver
    phase: str
    package: str  #: what is being built, ``staging`` for libtorch's compile
    python: str = ""  #: the Python version it is for, or an empty string


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """Where ninja stands."""

    #: as in :class:`PhaseStarted`
    phase: str
    package: str
    python: str
    #: ninja's steps
    done: int
    total: int
    seconds: float  #: since ninja was started
    eta_seconds: float | None  #: until it will be done at the present rate, or None while that is unknown


@dataclass(frozen=True, kw_only=True)
class Swapped(Event):
    """The staged tree was re-pointed at another Python: how many steps ninja will run, how many are core objects."""

    from_python: str
    to_python: str
    steps: int
    core: int


@dataclass(frozen=True, kw_only=True)
class Reused(Event):
    """Objects that did not have to be compiled, out of how many; from the ``tree`` or from ``ccache``."""

    objects: int
    of: int
    source: str


@dataclass(frozen=True, kw_only=True)
class PackageStarted(Event):
    """A build script of a package began."""

    name: str
    version: str
    build_string: str
    python: str


@dataclass(frozen=True, kw_only=True)
class PackageBuilt(Event):
    """A package file is there; its test comes next."""

    name: str
    version: str
    build_string: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TestRun(Event):
    """A package's test began."""

    __test__ = False  # no test class, whatever its name makes pytest believe

    name: str


@dataclass(frozen=True, kw_only=True)
class LogLine(Event):
    """A line as it goes into the log, secrets masked."""

    #: ``driver``, ``engine``, ``staging``, or a package's name with its Python, ``test:`` in front for tests
    source: str
    text: str  #: the line


@dataclass(frozen=True, kw_only=True)
class Warned(Event):
    """Something odd that does not stop the run."""

    message: str


@dataclass(frozen=True, kw_only=True)
class TaskStarted(Event):
    """One of several tasks that run at the same time began: an extension for one Python."""

    task: str


@dataclass(frozen=True, kw_only=True)
class TaskEnded(Event):
    """A task is over."""

    task: str
    status: str  #: ``built`` or ``failed``
    message: str = ""  #: what went wrong


@dataclass(frozen=True, kw_only=True)
class InTask(Event):
    """Something happened in one of several tasks."""

    task: str
    event: Event


@dataclass(frozen=True, kw_only=True)
class JobsChanged(Event):
    """From now on another number of compile jobs runs at once, all tasks together."""

    count: int
    reason: str


#: Whoever wants to know; called in the thread that runs :func:`megabuild.build.session.execute`.
Reporter = Callable[[Event], None]
