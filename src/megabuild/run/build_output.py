"""Turns build scripts' output into steps (packages, phases, ninja's counters), and keeps each script's last lines."""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from time import monotonic
from typing import NamedTuple

from groundwork.names import PackageId, is_of_package, package_name
from groundwork.progress import MARKER, Phases, Step
from groundwork.text import counted
from megabuild.engine.job import Outcome, OutcomeKind
from megabuild.engine.logs import ENGINE, STAGING_SCRIPT, UNKNOWN, Script, ScriptKind, ScriptLine
from megabuild.engine.worker import FAILED_TEST, TEST_FAILED
from megabuild.plan.environment_inputs import ObjectCounts
from megabuild.plan.last_run import RunCosts
from megabuild.status.status import logger

STAGING = "staging"
#: The phase of the Python swap, and the mark of the line with its figures.
SWAP = "swap"
#: The mark of the line with the number of objects that a comparison with the environment removed.
INPUTS = "inputs"
#: Many lines, because ninja's other jobs print after the error of a failed one.
_REMEMBERED_LINES = 2000
_LONGEST_LINE = 100_000
_SYNC = "sync"
_CONFIGURE = "configure"
#: The phase in which ninja compiles.
COMPILE = "compile"
#: ninja's line of a finished object: its language and path.
_OBJECT = re.compile(r"^\[\d+/\d+ [^\]]*\] Building (?P<language>\w+) object (?P<path>\S+)")
#: Lines of rattler-build's about each script of a package's test: on its environment, above its output, and below it.
_ENVIRONMENT = re.compile(r"^  Platform: \S+ \[__")
_COMMANDS = "Testing commands:"
_SCRIPT_FAILED = re.compile(r"^Script failed with status \d+$")
#: Targets of a Python; CMake builds _C and _nccl_ep since 2.13.
_BINDINGS = re.compile(r"/(?:torch_python|functorch|nnapi_backend|_C|_nccl_ep)\.dir/")
_OF_CUDA = re.compile(r"cuda|nvrtc")
_REMOVED_OBJECTS = re.compile(r"\bobjects=(\d{1,9})\b")


def kind_of_object(text: str) -> str:
    """Return the kind of the object that a line of ninja's output or log names; empty if it names none.

    The kinds are the fields of :class:`ObjectCounts`.
    """
    found = _OBJECT.match(text)
    path = found["path"] if found is not None else text
    if not path.endswith((".o", ".obj")):
        return ""
    if path.endswith((".cu.o", ".cu.obj")) or (found is not None and found["language"] == "CUDA"):
        return "kernels"
    if _BINDINGS.search(path):
        return "bindings"
    target = path.partition(".dir/")[0]
    return "cuda" if _OF_CUDA.search(target) else "core"


class StepKind(Enum):
    """The events that build scripts announce."""

    PHASE = auto()  #: a phase began
    COUNT = auto()  #: ninja has done some more of its steps
    PACKAGE = auto()  #: a package's build script began
    TEST = auto()  #: a package's test began


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """A step that a build script announced."""

    kind: StepKind
    package: str = ""  #: package being built; empty for staging
    python: str = ""
    phase: str = ""
    done: int = 0
    total: int = 0


class Parser:
    """Turns log lines into steps, collects figures for the run's summary, and logs each Python swap."""

    def __init__(self) -> None:
        #: per Python: ninja's steps after the swap, and core objects among them
        self.swaps: dict[str, dict[str, int]] = {}
        self.staging_seconds = 0.0
        self.built = Counter[str]()  #: objects that staging's ninja built, by kind, from the cache or not
        self._seconds = defaultdict[tuple[bool, str], float](
            float
        )  #: by whether the phase is staging's, and its name
        self._phase: tuple[bool, str] | None = None
        self._phase_began = monotonic()
        self._phases = Phases()
        self._script: Script | None = None
        self._began = monotonic()

    def feed(self, line: ScriptLine) -> Iterator[BuildStep]:
        """Yield the steps of one line."""
        package = line.package.name
        python = line.python
        if line.script != self._script and package != UNKNOWN:
            if self._script == STAGING_SCRIPT:
                self.staging_seconds = self._elapsed()
            self._script = line.script
            self._began = monotonic()
            if line.kind is not ScriptKind.TEST:
                self._begin_phase(line.script == STAGING_SCRIPT, STAGING)
            self._phases = Phases()  # each script announces its own phases
            if line.kind is ScriptKind.TEST:
                yield BuildStep(kind=StepKind.TEST, package=package)
            elif package:
                yield BuildStep(kind=StepKind.PACKAGE, package=package, python=python)
            else:
                yield BuildStep(kind=StepKind.PHASE, phase=STAGING)
        step = self._phases.feed(line.text)
        if step is not None:
            self._note_step(line, step)
            yield BuildStep(
                kind=StepKind.COUNT if step.total else StepKind.PHASE,
                package=package,
                python=python,
                phase=step.phase,
                done=step.done,
                total=step.total,
            )
            return
        marker = MARKER.match(line.text)
        if marker is None:
            return
        if marker[1] == SWAP:
            self._note_swap(marker[2])
        elif marker[1] == INPUTS:
            self._note_inputs(marker[2])

    def _note_step(self, line: ScriptLine, step: Step) -> None:
        """Measure phases, and count objects."""
        is_staging = line.script == STAGING_SCRIPT
        if not step.total:
            self._begin_phase(is_staging, step.phase)
        elif is_staging:
            kind = kind_of_object(line.text)
            if kind:
                self.built[kind] += 1

    def _begin_phase(self, is_staging: bool, phase: str) -> None:
        now = monotonic()
        if self._phase is not None:
            self._seconds[self._phase] += now - self._phase_began
        self._phase = (is_staging, phase)
        self._phase_began = now

    def costs(self, seconds: float, compiled: ObjectCounts) -> RunCosts:
        """Return where a run's seconds went; ``compiled``: the objects that it had to compile."""
        self._begin_phase(False, "")
        pythons = sum(spent for (is_staging, _), spent in self._seconds.items() if not is_staging)
        staging = {phase: spent for (is_staging, phase), spent in self._seconds.items() if is_staging}
        sync_seconds = staging.get(STAGING, 0.0) + staging.get(_SYNC, 0.0)
        configure_seconds = staging.get(_CONFIGURE, 0.0)
        compile_seconds = staging.get(COMPILE, 0.0)
        others = sum(staging.values()) - sync_seconds - configure_seconds - compile_seconds
        return RunCosts(
            seconds=seconds,
            sync=sync_seconds,
            configure=configure_seconds,
            compile=compile_seconds,
            install=max(0.0, others),
            pythons=pythons,
            compiled=compiled,
        )

    def _note_swap(self, text: str) -> None:
        """Keep the figures of a Python swap: ``from=3.12 to=3.13 steps=4 core=0``."""
        words = [word.partition("=") for word in text.split()]
        values = {name: value for name, _, value in words}
        with contextlib.suppress(KeyError, ValueError):  # not a line of the recipe's
            steps = int(values["steps"])
            core = int(values["core"])
            self.swaps[values["to"]] = {"steps": steps, "core": core}
            counts = f"{counted(steps, 'step')} to run, {counted(core, 'core object')} among them"
            logger.info("Python %s -> %s: %s", values.get("from", ""), values["to"], counts)

    def _note_inputs(self, text: str) -> None:
        """Tell how many objects a kept tree lost: ``files=1 objects=8 links=0``."""
        removed = _REMOVED_OBJECTS.search(text)
        if removed is None:  # not a line of the recipe's
            return
        count = int(removed[1])
        if count:
            logger.info(
                "%s removed from the tree: files that they read may have changed", counted(count, "object")
            )

    def seconds_of(self, package: PackageId, *, with_staging: bool) -> float:
        """Return the duration of a new package's build script so far, and of the staging if it counts as its part.

        A package that only takes files of the staging has no script: 0 seconds.
        """
        running = self._elapsed()
        candidates = {Script(ScriptKind.BUILD, package.name, build) for build in ("", package.build_string)}
        own = running if self._script in candidates else 0.0
        if not with_staging:
            return own
        staging = running if self._script == STAGING_SCRIPT else self.staging_seconds
        return own + staging

    def _elapsed(self) -> float:
        """Return the seconds since the start of the last script."""
        return monotonic() - self._began


class Culprit(NamedTuple):
    """The script that failed."""

    package: str  #: empty for staging, or for rattler-build itself
    build_string: str  #: empty if the script does not know it
    what: str  #: for people: ``build of pytorch cuda130_py312_0``
    lines: list[str]  #: its last lines


def _of_last_script(printed: Sequence[str]) -> list[str]:
    """Return what the last script of a package's test printed, without rattler-build's lines about it."""
    began = 0
    ended = len(printed)
    is_environment = False
    for number, line in enumerate(printed):
        if _ENVIRONMENT.match(line):
            began = number
            is_environment = True
        elif is_environment and line == _COMMANDS:
            began = number + 1
            is_environment = False
        elif _SCRIPT_FAILED.match(line):
            ended = number
    return list(printed[began:ended] or printed[began:])


def _of_test(package: str, build_string: str, lines: list[str]) -> Culprit:
    return Culprit(package, build_string, f"test of {package} {build_string}", lines)


class LogTail:
    """Keeps every script's last lines, because rattler-build tests built packages even after a failure."""

    def __init__(self, staged: str = "libtorch") -> None:
        self._staged = staged
        self._scripts: dict[Script, deque[str]] = {}

    def add(self, script: Script, text: str) -> None:
        """Keep a line of a script, or of the worker itself (``ENGINE``)."""
        self._scripts.setdefault(script, deque(maxlen=_REMEMBERED_LINES)).append(text[:_LONGEST_LINE])

    def culprit(self, outcome: Outcome, broken: Collection[str]) -> Culprit:
        """Return the script that failed; ``broken`` names the package files that failed their tests."""
        engine = list(self._scripts.get(ENGINE, ()))
        if outcome.kind is not OutcomeKind.TEST:
            script = self._last(ScriptKind.BUILD)
            return self._of_script(script) if script else Culprit("", "", "rattler-build", engine)
        printed = self._printed_by_test(outcome, broken)
        if printed is not None:
            return printed
        names = {package_name(file_name) for file_name in broken}
        for script in reversed(self._scripts):
            if script.kind is ScriptKind.TEST and script.package in names:
                return self._of_script(script)
        # the check of a package's content prints nothing
        named = sorted(filter(is_of_package, broken))
        if named:
            package = PackageId.of_file(named[0])
            return _of_test(package.name, package.build_string, engine)
        built = self._last(ScriptKind.BUILD, with_package=True)
        if built is not None:
            return _of_test(built.package, built.build_string, engine)
        return Culprit("", "", "rattler-build", engine)

    def _printed_by_test(self, outcome: Outcome, broken: Collection[str]) -> Culprit | None:
        """Return the failed test with its own lines, as the worker prints them; None if it printed none.

        The logs do not tell the scripts of a test apart, nor tests of one name, such as an extension's for each Python.
        """
        failed = [name for name in broken if outcome.message.startswith(f"{TEST_FAILED}{name}: ")]
        if not failed or not is_of_package(failed[0]):
            return None
        engine = list(self._scripts.get(ENGINE, ()))
        begun = [number for number, line in enumerate(engine, 1) if line == FAILED_TEST + failed[0]]
        if not begun and len(engine) < _REMEMBERED_LINES:
            return None
        lines = _of_last_script(engine[max(begun, default=0) :])
        package = PackageId.of_file(failed[0])
        return _of_test(package.name, package.build_string, lines)

    def _last(self, kind: ScriptKind, *, with_package: bool = False) -> Script | None:
        """Return the script of a kind that began last; ``with_package``: except the staging."""
        for script in reversed(self._scripts):
            if script.kind is kind and (script.package or not with_package):
                return script
        return None

    def _of_script(self, script: Script) -> Culprit:
        what = f"{script.kind.value} of {script.package} {script.build_string}".rstrip()
        if not script.package:
            what = f"staging of {self._staged}"
        lines = [*self._scripts[script], *self._scripts.get(ENGINE, ())]
        return Culprit(script.package, script.build_string, what, lines)
