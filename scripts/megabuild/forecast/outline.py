"""What a run is going to do, as a row of stages; what each is called says what it is known to take.

``start`` is everything before the first script; ``staging compile`` a phase of libtorch's, ``pytorch swap`` one of a
package's; ``before pytorch`` is its environment, ``pytorch script`` a script without phases (or what comes before the
first), ``test pytorch`` its test, beside the next package. Pythons share the words: what one took the next will.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from megabuild.forecast.known import Known
from megabuild.forecast.schedule import Stretch, length

START, COMPILE = "start", "staging compile"
#: Seconds of an object that the object cache has.
HIT_SECONDS = 0.2
#: An extension's compiles, as far as a schedule is concerned: those of torch_sparse's size.
_PIECE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package that is to be built."""

    name: str
    label: str  #: as the events of its test name it
    python: str = ""  #: the Python that it is compiled for


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What is to be done."""

    packages: tuple[Package, ...] = ()  #: in the order in which they are built
    staged: bool = False  #: libtorch is compiled first, or whatever several packages are made from
    made: Collection[str] = ()  #: steps that an interrupted run has done
    cached: bool = False  #: the object cache has what is compiled
    extensions: Mapping[str, float] = field(default_factory=dict)  #: CPU seconds by task
    jobs: int = 1
    cores: int = 1

    @property
    def processors(self) -> int:
        """How much can run at once."""
        return max(1, min(self.jobs, self.cores))


@dataclass(kw_only=True)
class Stage:
    """One thing after another: a phase of a script, or what lies between two scripts."""

    key: str
    seconds: float = 0.0  #: of one core, before and after ninja's steps
    steps: dict[str, float] = field(default_factory=dict)  #: ninja's, in order
    label: str = ""  #: the package that is there when this ends
    test: float = 0.0  #: seconds of that package's test

    @property
    def script(self) -> str:
        """Of which package, ``staging``, or nothing."""
        return self.key.rpartition(" ")[0].removeprefix("before ")

    @property
    def work(self) -> float:
        """CPU seconds of it, without the test."""
        return self.seconds + sum(self.steps.values())


def stages(outline: Outline, known: Known) -> list[Stage]:
    """Return the stages of a run in their order."""
    found = [Stage(key=START, seconds=known.phases.get(START, 0.0))]
    if outline.staged:
        found += [_stage(key, known) for key in _keys("staging", known)]
        for stage in found:
            stage.steps = _left(stage.steps, outline.made)
    own = outline.staged  # staging's own Python comes first, and its objects with libtorch's
    for number, package in enumerate(outline.packages):
        if number:
            key = f"before {package.name}"
            found.append(Stage(key=key, seconds=known.phases.get(key, 0.0)))
        keys = _keys(package.name, known) or [f"{package.name} script"]
        made = [_stage(key, known) for key in keys]
        if package.python and own and any(stage.steps for stage in made):
            own = False
            for stage in made:
                stage.steps = {}
        made[-1].label, made[-1].test = package.label, known.phases.get(f"test {package.name}", 0.0)
        found += made
    return found


def _left(steps: Mapping[str, float], made: Collection[str]) -> dict[str, float]:
    """Return the steps that are not made; of those that are shipped with megabuild as many as were made in a folder."""
    done = Counter(name.rpartition("/")[0] for name in made if name not in steps)
    left = {}
    for name, took in steps.items():
        folder, _, number = name.rpartition("/")
        if name in made:
            continue
        if number.startswith("#") and done[folder]:
            done[folder] -= 1
            continue
        left[name] = took
    return left


def _keys(first: str, known: Known) -> list[str]:
    return [
        key for key in known.phases if key.rpartition(" ")[0] == first and first not in ("before", "test")
    ]


def _stage(key: str, known: Known) -> Stage:
    return Stage(key=key, seconds=known.phases.get(key, 0.0), steps=steps_of(key, known))


def steps_of(key: str, known: Known) -> dict[str, float]:
    """Return ninja's steps of a phase, and what they take."""
    return {name: known.steps[name] for name in known.order.get(key, ()) if name in known.steps}


def pieces(cpu_seconds: float) -> list[float]:
    """Return an extension's work in pieces that can be done side by side."""
    count = max(1, round(cpu_seconds / _PIECE_SECONDS))
    return [cpu_seconds / count] * count


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run takes: CPU seconds, and seconds on the clock where nobody else wants the machine."""

    cpu: float
    seconds: float


def cost(outline: Outline, known: Known) -> Cost:
    """Return what a run takes that has not begun."""
    row = []
    for stage in stages(outline, known) if outline.packages else []:
        of = (
            min(took, HIT_SECONDS) if outline.cached and is_object(name) else took
            for name, took in stage.steps.items()
        )
        row += [Stretch(pieces=[stage.seconds]), Stretch(pieces=list(of), beside=[stage.test])]
    row.append(Stretch(pieces=[piece for took in outline.extensions.values() for piece in pieces(took)]))
    cpu = sum(sum(stretch.pieces) + sum(stretch.beside) for stretch in row)
    return Cost(cpu=cpu, seconds=length(row, outline.processors))


def is_object(name: str) -> bool:
    """Return whether a step makes an object, which an object cache may have."""
    return name.endswith((".o", ".obj"))
