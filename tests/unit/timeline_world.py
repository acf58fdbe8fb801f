"""Invented runs for the picture of time: a config's state folder with its record, history, ninja's log and notes."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from small_files import write

from megabuild.engine.compile_notes import NOTES
from megabuild.status import history as history_file
from megabuild.status import record as state_file
from megabuild.status.history import History, Sample, Span
from megabuild.status.record import PackageState, RunRecord, RunStatus
from megabuild.timeline.ninja_log import LOG

#: Saturday, 28 November 2026, 10:00 UTC.
TEN = 1795860000.0
CORES = 16
_PYTHONS = ("3.11", "3.12", "3.13")


@dataclass(frozen=True, kw_only=True)
class Made:
    """A step of an invented ninja, in seconds since 1970."""

    output: str
    began: float
    ended: float
    compiled: bool = True


def log_of(steps: Sequence[Made], ninja_began: float, *, version: int = 7) -> str:
    """Return ninja's log of one ninja, with its dates as that version has them."""
    lines = [f"# ninja log v{version}\n"]
    for step in sorted(steps, key=lambda step: step.ended):
        start = round((step.began - ninja_began) * 1000)
        end = round((step.ended - ninja_began) * 1000)
        date = round((step.began if version > 5 else step.ended) * 1e9)
        lines.append(f"{start}\t{end}\t{date}\t{step.output}\t{abs(hash(step.output)):x}\n")
    return "".join(lines)


def notes_of(steps: Sequence[Made], since: float) -> str:
    """Return the launcher's notes on the compiled ones of some steps."""
    lines = [f"{int(since)}\n"]
    lines += [f"{int(step.began)} {step.output}\n" for step in steps if step.compiled]
    return "".join(lines)


def record_of(name: str, began: float, ended: float, **changes: object) -> RunRecord:
    """Return the record of a finished run."""
    values: dict[str, object] = {
        "config": name, "status": RunStatus.DONE, "began": began, "updated": ended, "host": "builder", "pid": 7,
        "process_began": began, "exit_code": 0, "log": f"/x/logs/{name}.log",
        "packages": {"libtorch-2.13.0-h0_0.conda": PackageState.PUBLISHED},
    }  # fmt: skip
    return RunRecord(**(values | changes))  # type: ignore[arg-type]


@dataclass
class InventedRun:
    """A run that is invented phase by phase."""

    name: str
    began: float
    seed: int = 0
    now: float = 0.0
    steps: list[Made] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    busy: list[tuple[float, float, float]] = field(default_factory=list)  #: began, ended, cores

    def __post_init__(self) -> None:
        self.now = self.began
        self._random = random.Random(self.seed)

    def phase(self, what: str, seconds: float, cores: float, task: str = "pytorch") -> None:
        """Let a phase pass."""
        self.spans.append(Span(task=task, what=what, began=self.now, ended=self.now + seconds))
        self.busy.append((self.now, self.now + seconds, cores))
        self.now += seconds

    def compile(self, what: str, count: int, *, cached: float, longest: float, folder: str) -> None:
        """Let ninja run: some steps are from the cache, and the longest one begins late."""
        began = self.now
        free = [began] * CORES
        for number in range(count):
            is_cached = self._random.random() < cached
            seconds = 0.1 if is_cached else self._random.expovariate(1 / 9) + 1
            if number == int(count * 0.97):
                seconds = longest
            start = heapq.heappop(free)
            output = f"{folder}/CMakeFiles/{folder}.dir/aten/src/ATen/native/Kernel{number}.cpp.o"
            self.steps.append(Made(output=output, began=start, ended=start + seconds, compiled=not is_cached))
            self.busy.append((start, start + seconds, 0.95))
            heapq.heappush(free, start + seconds)
        ended = max(free)
        link = Made(output=f"lib/lib{folder}.so", began=ended, ended=ended + 12, compiled=False)
        self.steps.append(link)
        self.busy.append((ended, ended + 12, 1.0))
        self.now = ended + 12
        self.spans.append(Span(task="pytorch", what=what, began=began, ended=self.now))

    def samples(self, seconds: float = 4.0) -> list[Sample]:
        """Return samples of the cores in use."""
        length = int((self.now - self.began) / seconds) + 1
        used = [0.0] * length
        for began, ended, cores in self.busy:
            for number in range(int((began - self.began) / seconds), length):
                left = self.began + number * seconds
                share = (min(ended, left + seconds) - max(began, left)) / seconds
                if share <= 0:
                    break
                used[number] += cores * share
        samples: list[Sample] = []
        for number, cores in enumerate(used):
            at = self.began + (number + 1) * seconds
            memory = int(1e9 + cores * 1.1e9)
            noise = self._random.random() * 0.3
            samples.append(
                Sample(
                    at=at,
                    seconds=seconds,
                    cores=round(min(CORES, cores), 2),
                    other_cores=round(noise, 2),
                    memory=memory,
                )
            )
        return samples

    def write(self, output: Path, **changes: object) -> Path:
        """Write the run's files below an output folder; return its state folder."""
        state = output / self.name
        state.mkdir(parents=True)
        record = record_of(self.name, self.began, self.now, **changes)
        state_file.write(state, record)
        history = History(
            began=self.began, cores=CORES, memory=64_000_000_000, spans=self.spans, samples=self.samples()
        )
        history_file.write(state, history)
        write(state / LOG, log_of(self.steps, self.began))
        write(state / NOTES, notes_of(self.steps, self.began))
        return state


def megabuild(
    name: str, began: float, *, compiles: int = 600, cached: float = 0.0, seed: int = 0
) -> InventedRun:
    """Return a megabuild: libtorch, three Pythons, and their tests in parallel."""
    run = InventedRun(name, began, seed)
    run.phase("libtorch: environment", 40, 0.8)
    run.phase("libtorch: unpacking the source", 12, 1.0)
    run.phase("libtorch: configure", 24, 1.0)
    run.compile("libtorch: compile", compiles, cached=cached, longest=95, folder="torch_cpu")
    run.phase("libtorch: install", 15, 1.0)
    for python in _PYTHONS:
        run.phase(f"pytorch {python}: environment", 30, 0.7)
        run.compile(
            f"pytorch {python}: Python side", compiles // 10, cached=cached, longest=30, folder=f"py{python}"
        )
        run.phase(f"pytorch {python}: package", 18, 1.3)
    tests = run.now
    run.phase("testing pytorch-cpu 2.13.0", 45, 1.0, task="test of pytorch-cpu")
    run.spans.append(
        Span(task="test of pytorch", what="testing pytorch 2.13.0 py3.13", began=tests - 40, ended=tests)
    )
    return run
