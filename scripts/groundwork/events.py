"""The events of a run, as values and as sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from groundwork.package_id import PackageId
from groundwork.run_state import InFlight, RunState
from groundwork.text import UNICODE, display, duration, size
from groundwork.wording import counted

_STAGING = {
    "fresh": "{what} is built from scratch",
    "reuse": "the finished {what} is reused",
    "resume": "the compile of {what} goes on where it stopped",
    "recompile": "{what} is rebuilt, with objects from the object cache",
}
_UNPACKING = {
    "fresh": "{what} is taken out of its wheel",
    "resume": "{what} is taken out of its wheel again",
    "recompile": "{what} is taken out of its wheel again",
}
_PHASES = {
    "toolchain": "trying the compiler",
    "staging": "environment",
    "sync": "unpacking the source",
    "python": "Python side",
    "split": "taking the wheel apart",
    "normalise": "making the package reproducible",
}


class Event:
    """Something that happened."""

    def sentence(self) -> str | None:
        """Return the line for it, or None for what only the progress line shows."""
        return None

    def logged(self) -> str | None:
        """Return its line in the log file, where more is kept than people are shown meanwhile."""
        return self.sentence()


@dataclass(frozen=True, kw_only=True)
class Preparing(Event):
    """How far the preparation of a build has got in one thing: it begins with nothing done, and is over with all."""

    what: str  #: ``downloading 3 wheels``
    done: int = 0
    total: int = 0  #: 0 where nobody knows
    unit: str = ""  #: ``bytes``, ``packages``

    @property
    def over(self) -> bool:
        """Whether it is done."""
        return 0 < self.total <= self.done

    def sentence(self) -> str | None:
        if self.done:
            return None
        return f"{self.what} ({size(self.total)})" if self.total and self.unit == "bytes" else self.what

    def logged(self) -> str | None:
        return f"{self.what}: done" if self.over else self.sentence()


@dataclass(frozen=True, kw_only=True)
class Noted(Event):
    """A step of the preparation, one of many."""

    text: str

    def logged(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class Replanned(Event):
    """What was planned before the preparation is to be done otherwise now."""

    changes: Sequence[str]

    def sentence(self) -> str:
        return f"after the preparation: {'; '.join(self.changes)}"


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The state folder is locked and the log file is open."""

    config: str
    log: Path
    isolation: str

    def sentence(self) -> str:
        return f"log: {display(self.log)}"

    def logged(self) -> str:
        return f"run of {self.config}, isolation: {self.isolation}"


@dataclass(frozen=True, kw_only=True)
class Checked(Event):
    """One preflight check passed."""

    check: str
    detail: str

    def sentence(self) -> str:
        return f"checked {self.check}: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class Healed(Event):
    """Something that a killed run had left was removed."""

    what: str

    def sentence(self) -> str:
        return f"removed {self.what}, left by a run that was killed"


@dataclass(frozen=True, kw_only=True)
class StagingDecided(Event):
    """What becomes of the former compile of libtorch."""

    #: ``fresh`` (nothing was there), ``reuse`` (finished and unchanged), ``resume`` (the tree stays, what is missing or
    #: changed is compiled), ``recompile`` (the tree goes, objects come from the object cache only)
    decision: str
    reasons: Sequence[str]  #: why, such as ``libprotobuf 6.31.1 -> 7.35.1``
    compiles: bool = True  #: it is compiled, and not taken out of a wheel
    what: str = "libtorch"  #: what is staged

    def logged(self) -> str:  # the plan shows it
        because = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        words = _STAGING if self.compiles else {**_STAGING, **_UNPACKING}
        return words.get(self.decision, self.decision).format(what=self.what) + because


@dataclass(frozen=True, kw_only=True)
class InPhase(Event):
    """What happens in a phase."""

    #: ``sync``, ``configure``, ``compile``, ``install``, ``swap``, ``python``, ``package``; ``staging`` and ``test``
    #: come from the engine itself, ``normalise`` from the driver
    phase: str
    package: str  #: what is being built, ``staging`` for libtorch's compile
    python: str = ""  #: the Python version it is for, or an empty string

    @property
    def step(self) -> str:
        """What is going on: ``libtorch: compile``, ``pytorch 3.12: Python side``."""
        package = "libtorch" if self.package == "staging" else self.package
        what = _PHASES.get(self.phase, self.phase)
        return f"{package}{' ' + self.python if self.python else ''}: {what}"


class PhaseStarted(InPhase):
    """A phase has begun: a build script announced it, or the engine or the driver is at it."""

    def sentence(self) -> str:
        return self.step


@dataclass(frozen=True, kw_only=True)
class Progress(InPhase):
    """Where ninja stands."""

    #: ninja's steps
    done: int
    total: int
    seconds: float  #: since ninja was started
    eta_seconds: float | None  #: until it will be done at the present rate, or None while that is unknown
    step_name: str = ""  #: what the step has made that ended, or its description


@dataclass(frozen=True, kw_only=True)
class Swapped(Event):
    """The staged tree was re-pointed at another Python: how many steps ninja will run, how many are core objects."""

    from_python: str
    to_python: str
    steps: int
    core: int

    def sentence(self) -> str:
        return (
            f"Python {self.from_python} -> {self.to_python}: {counted(self.steps, 'step')} to run, "
            f"{counted(self.core, 'core object')} among them"
        )


@dataclass(frozen=True, kw_only=True)
class Reused(Event):
    """Objects that did not have to be compiled, out of how many; from the ``tree`` or from ``ccache``."""

    objects: int
    of: int
    source: str

    def sentence(self) -> str:
        return f"{self.objects} of {self.of} objects reused from {self.source}"


@dataclass(frozen=True, kw_only=True)
class PackageStarted(Event):
    """A build script of a package began."""

    package: PackageId
    python: str

    def logged(self) -> str:
        return f"{self.package.label}: build script began"


@dataclass(frozen=True, kw_only=True)
class PackageBuilt(Event):
    """A package file is there; its test comes next."""

    package: PackageId
    seconds: float

    def sentence(self) -> str:
        # one that only takes its files out of a compile has no script of its own
        took = f" in {duration(self.seconds)}" if round(self.seconds) else ""
        return f"{UNICODE.done} {self.package.label}: built{took}"


@dataclass(frozen=True, kw_only=True)
class TestRun(Event):
    """A package's test began."""

    __test__ = False  # no test class, whatever its name makes pytest believe

    name: str

    def sentence(self) -> str:
        return f"testing {self.name}"


@dataclass(frozen=True, kw_only=True)
class TestEnded(Event):
    """A package's test is over; it ran beside the build of others."""

    __test__ = False

    name: str
    seconds: float
    passed: bool

    def sentence(self) -> str | None:
        return f"{UNICODE.done} {self.name}: tested in {duration(self.seconds)}" if self.passed else None

    def logged(self) -> str:
        return self.sentence() or f"{UNICODE.failed} {self.name}: test failed after {duration(self.seconds)}"


@dataclass(frozen=True, kw_only=True)
class LogLine(Event):
    """A line as it goes into the log, secrets masked."""

    #: ``driver``, ``engine``, ``staging``, or a package's name with its Python, ``test:`` in front for tests
    source: str
    text: str  #: the line


@dataclass(frozen=True, kw_only=True)
class Warned(Event):
    """A warning: the run goes on."""

    message: str

    def sentence(self) -> str:
        return f"{UNICODE.warning} {self.message}"


@dataclass(frozen=True, kw_only=True)
class TaskStarted(Event):
    """One of several tasks that run at the same time began: an extension for one Python."""

    task: str

    def sentence(self) -> str:
        return f"{self.task}: started"


@dataclass(frozen=True, kw_only=True)
class TaskEnded(Event):
    """A task is over."""

    task: str
    status: str  #: ``built`` or ``failed``
    message: str = ""  #: what went wrong

    def sentence(self) -> str | None:
        return f"{UNICODE.failed} {self.task}: {self.message}" if self.status == "failed" else None

    def logged(self) -> str:
        return self.sentence() or f"{self.task}: {self.status}"


@dataclass(frozen=True, kw_only=True)
class InTask(Event):
    """Something happened in one of several tasks."""

    task: str
    event: Event

    def sentence(self) -> str | None:
        """Return its line, labelled with the task; phases of concurrent tasks are left to the progress lines."""
        if isinstance(self.event, (PhaseStarted, TestRun)):
            return None
        line = self.event.sentence()
        return f"{self.task}: {line}" if line and not isinstance(self.event, PackageBuilt) else line


@dataclass(frozen=True, kw_only=True)
class JobsChanged(Event):
    """From now on another number of compile jobs runs at once, all tasks together."""

    count: int
    reason: str

    def sentence(self) -> str:
        return f"{counted(self.count, 'compile job')} at once for all extensions together ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class Published(Event):
    """Packages are in the published channel."""

    packages: Sequence[PackageId]


@dataclass(frozen=True, kw_only=True)
class Idle(Event):
    """Nothing of a task runs any more: it has ended, well or not, or is to be tried again."""

    task: str


@dataclass(frozen=True, kw_only=True)
class Measured(Event):
    """What a task's compilers are at, what they asked the object cache for, and the bytes of the task's folder."""

    objects: Sequence[InFlight] = ()
    hits: int = 0
    misses: int = 0
    disk: int = 0


@dataclass(frozen=True, kw_only=True)
class Stands(Event):
    """Where the run stands, told once a second and whenever something has happened."""

    state: RunState


#: Whoever wants to know of a run; of one call after the other.
Reporter = Callable[[Event], None]
#: Takes what is being prepared: a line (one that begins with :data:`WARNING` must not be missed), or how far it is.
Notes = Callable[["str | Preparing"], None]
WARNING = "! "
