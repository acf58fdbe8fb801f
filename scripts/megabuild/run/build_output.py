"""From the output of a run's build scripts to steps: packages, phases, ninja's counters, what was reused."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from groundwork.progress import MARKER, Phases
from groundwork.text import counted
from megabuild.engine.logs import UNKNOWN, ScriptLine
from megabuild.run.growing_file import GrowingFile

_STAGING_SCRIPT = ("build", "", "")
STAGING = "staging"

#: A compile behind ninja's counter: in CMake's words, or as the command itself where ninja is told to be verbose.
_COMPILE = re.compile(r"^\[\d+/\d+ [\d.]+s\] (?:Building \w+ object (\S+)|.* -o (\S+\.o) -c )")
#: What ccache writes its results into, below the state folder.
STATS = "tmp/ccache-stats.log"
_HITS = frozenset({b"direct_cache_hit", b"preprocessed_cache_hit"})
_MISSES = frozenset({b"cache_miss"})
_SHARED = b"remote_storage_hit"


@dataclass
class Totals:
    """What a run's summary needs of its log."""

    swaps: dict[str, dict[str, int]] = field(default_factory=dict)
    reused: Counter[str] = field(default_factory=Counter)
    #: what the object cache was asked for: ``hits``, of them ``shared`` by other configs or machines, and ``misses``;
    #: all 0 where there is none, empty before a compile
    object_cache: dict[str, int] = field(default_factory=dict)
    staging_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """What the build scripts have announced."""

    #: ``phase``, ``count`` (ninja's), ``package`` (its build script began), ``test`` (its test began) or ``sentence``
    kind: str
    package: str = ""  #: what is being built, none for staging
    python: str = ""
    label: str = ""  #: the package's, with its version
    phase: str = ""
    done: int = 0
    total: int = 0
    sentence: str = ""


class Parser:
    """Turns log lines into steps, and keeps the totals."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.totals = Totals()
        self._clock = clock
        self._phases = Phases()
        self._script: tuple[str, str, str] = ("", "", "")
        self._began = clock()

    def feed(self, line: ScriptLine) -> Iterator[BuildStep]:
        """Give the steps of one line."""
        yield from self._script_changed(line)
        package, python = line.package.name, line.python
        if step := self._phases.feed(line.text):
            kind = "count" if step.total else "phase"
            yield BuildStep(
                kind=kind, package=package, python=python, phase=step.phase, done=step.done, total=step.total
            )
        elif (marker := MARKER.match(line.text)) and (sentence := self._marker(marker[1], marker[2])):
            yield BuildStep(kind="sentence", sentence=sentence)

    def seconds(self) -> float:
        """Seconds since the build script that is running, or was the last to run, began; none where that was a test."""
        # a package without a script of its own comes right after the test of another one
        return 0.0 if self._script[0] == "test" else self._clock() - self._began

    def _script_changed(self, line: ScriptLine) -> Iterator[BuildStep]:
        if line.script == self._script or line.package.name == UNKNOWN:
            return
        if self._script == _STAGING_SCRIPT:
            self.totals.staging_seconds = self.seconds()
        self._script, self._began = line.script, self._clock()
        self._phases.script_began()
        if line.kind == "test":
            yield BuildStep(kind="test", package=line.package.name)
        elif line.package.name:
            label = line.package.label
            yield BuildStep(kind="package", package=line.package.name, python=line.python, label=label)
        else:
            yield BuildStep(kind="phase", phase=STAGING)

    def _marker(self, kind: str, rest: str) -> str:
        values = dict(word.split("=", 1) for word in rest.split() if "=" in word)
        if kind == "swap" and {"to", "steps", "core"} <= values.keys():
            steps, core = _number(values["steps"]), _number(values["core"])
            self.totals.swaps[values["to"]] = {"steps": steps, "core": core}
            return (
                f"Python {values.get('from', '')} -> {values['to']}: {counted(steps, 'step')} to run, "
                f"{counted(core, 'core object')} among them"
            )
        if kind == "reused" and {"objects", "of"} <= values.keys():
            source = values.get("source", "tree")
            self.totals.reused[source] += _number(values["objects"])
            return reuse_sentence(_number(values["objects"]), _number(values["of"]), source)
        return ""


def reuse_sentence(objects: int, of: int, source: str) -> str:
    """Return how many objects did not have to be compiled."""
    return f"{objects} of {of} objects reused from {source}"


class Objects:
    """Counts objects that did not have to be compiled: those that the tree kept, those that the object cache had."""

    def __init__(self, state: Path) -> None:
        self._stats = GrowingFile(state / STATS, state)
        #: compiles that the object cache answered so far, those that it did not, and of the former what others shared
        self.hits = self.misses = self.shared = 0
        self._tree = state / "tree"
        self._compiled: set[str] = set()
        self._compiles = False
        self._before = 0

    def begin(self) -> None:
        """Note what is there before anything is compiled."""
        self._stats.remove()
        self._before = _count(self._tree)

    def feed(self, line: ScriptLine) -> None:
        """Note what is compiled, and what of it by staging."""
        if match := _COMPILE.match(line.text):
            self._compiles = True
            if not line.package.name:
                self._compiled.add(match[1] or match[2])

    def reused(self, totals: Totals) -> Iterator[str]:
        """Give a sentence per source that saved compiles, and add them to the totals."""
        if self._before and self._compiled:
            of = max(_count(self._tree), self._before)
            kept = max(0, min(self._before, of - len(self._compiled)))
            totals.reused["tree"] += kept
            yield reuse_sentence(kept, of, "tree")
        while self.look():
            pass
        if self._compiles or self.hits or self.misses:
            totals.object_cache = {"hits": self.hits, "misses": self.misses, "shared": self.shared}
        if self.hits:
            totals.reused["ccache"] += self.hits
            yield reuse_sentence(self.hits, self.hits + self.misses, "ccache")

    def look(self) -> bool:
        """Count what the object cache has noted since the last look; False where there was nothing."""
        lines = self._stats.lines()
        words = [word for line in lines for word in line.split()]
        self.hits += sum(word in _HITS for word in words)
        self.misses += sum(word in _MISSES for word in words)
        self.shared += words.count(_SHARED)
        return bool(lines)


def _count(tree: Path) -> int:
    """Number of object files in a tree."""
    return sum(1 for _ in tree.glob("build/**/*.o")) if tree.is_dir() else 0


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
