"""Simulate the wall time of the eight conda-forge configs for linux-64 on 32 and 64 cores, in several orders.

    python3 benchmarks/simulate_walls.py

Nothing is measured: the script adds up the figures in its tables, whose sources are next to them. Rows marked "fitted"
are not measured either: with them, "one by one" gives the figures of an earlier simulation, which the last column of
the printed table shows. Memory is not in the model, nor are the disk and the object cache's server.

A config is a chain of steps. A serial step takes its seconds on one core. A parallel step has CPU seconds, and shares
the free cores with the other parallel steps. Its last object runs alone, in a serial step of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "recipe" / "pyg" / "common")]
from groundwork.python_version import require  # noqa: E402

require("benchmarks/simulate_walls.py", "python3.12 benchmarks/simulate_walls.py")

from benchmarks.matrix import BINDINGS, CONFIGS, CORE, CUDA, GAINS, PYTHON_COUNT  # noqa: E402

from groundwork.exhaustive import assert_never  # noqa: E402

#: Serial seconds of one config, from docs/lab/measurements.md ("Objects that configs share": 10:54 min for four Pythons
#: with all objects in the cache).
PREPARE = 55  # environment, unpacking, configure
INSTALL = 27  # links and install
PACK = 25  # 15 for a CPU, 35 for CUDA
PYTHON = 45  # swap, links and packing of one Python
TEST = 60  # test of the last package
#: CPU seconds of objects that are in the cache, of libtorch and of one Python's bindings (ccache 4.11, PyTorch 2.6).
HITS = 70
PYTHON_HITS = 115
#: Seconds of the longest object, which runs alone at the end. Fitted.
LONGEST = 60
LONGEST_BINDING = 36
LONGEST_BINDING_OF_PROTOBUF = 10
LONGEST_KERNEL = (
    1320  # of seven architectures, with attention; nvcc compiles one architecture after the other
)
#: CPU seconds that six more architectures and the attention kernels add. Fitted.
MORE_ARCHITECTURES = 88_000
#: Configs that share nothing, by their positions in CONFIGS.
GROUPS = (range(2), range(2, 4), range(4, 8))
#: What megabuild does with configs whose objects exist but a few: none of them waits for another.
ALONE = tuple(range(position, position + 1) for position in range(len(CONFIGS)))


class Change(Enum):
    """The reason of a rebuild, which says how many objects are compiled."""

    COLD = "cold, one architecture"
    COLD_SEVEN = "cold, seven architectures"
    PROTOBUF = "protobuf"
    NOTHING = "everything cached"


#: Minutes of the earlier simulation, one config after the other, by change and cores.
KNOWN = {
    (Change.COLD, 32): 123, (Change.COLD, 64): 109,
    (Change.COLD_SEVEN, 32): 320, (Change.COLD_SEVEN, 64): 239,
    (Change.PROTOBUF, 32): 67, (Change.PROTOBUF, 64): 67,
    (Change.NOTHING, 32): 54, (Change.NOTHING, 64): 54,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Order:
    """Which steps wait for which."""

    name: str
    groups: bool = False  #: configs that share nothing run side by side
    early: bool = False  #: a config is prepared while the one before packs, whose last test delays nothing
    during_tests: bool = False  #: a config is prepared while the last packages of the one before are tested
    rebuilds_alone: bool = False  #: configs whose objects exist but a few wait for no other
    pythons: bool = False  #: the Pythons of a config run at once, in copies of the tree


ORDERS = (
    Order(name="one by one"),
    Order(name="groups", groups=True),
    Order(name="early", early=True),
    Order(name="Pythons", pythons=True),
    Order(name="groups, early", groups=True, early=True),
    Order(name="megabuild", groups=True, during_tests=True, rebuilds_alone=True),
    Order(name="early, Pythons", early=True, pythons=True),
    Order(name="all three", groups=True, early=True, pythons=True),
)


@dataclass(kw_only=True, eq=False)
class Step:
    """A step of a config's build."""

    needs: Sequence[Step] = ()
    left: float  #: seconds of one core
    is_parallel: bool = False
    is_done: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether it is to run."""
        return not self.is_done and all(step.is_done for step in self.needs)


@dataclass(frozen=True, kw_only=True)
class Work:
    """The objects of one config: CPU seconds, and seconds of the longest one."""

    libtorch: float
    longest: float
    python: float
    longest_binding: float


def work_of(change: Change, position: int) -> Work:
    """Return the work of a config; those before it in the sequence have filled the cache."""
    cuda, shared = GAINS[position]
    match change:
        case Change.NOTHING:
            return Work(libtorch=HITS, longest=0, python=PYTHON_HITS, longest_binding=0)
        case Change.PROTOBUF:
            return Work(
                libtorch=HITS,
                longest=LONGEST,
                python=PYTHON_HITS,
                longest_binding=LONGEST_BINDING_OF_PROTOBUF,
            )
        case Change.COLD:
            kernels = CUDA if cuda else 0
            longest = LONGEST
        case Change.COLD_SEVEN:
            kernels = CUDA + MORE_ARCHITECTURES if cuda else 0
            longest = LONGEST
            if cuda and (shared is None or shared[2] == 1.0):
                longest = LONGEST_KERNEL
        case _:
            assert_never(change)
    core_share, binding_share, kernel_share = shared or (1.0, 1.0, 1.0)
    return Work(
        libtorch=CORE * core_share + kernels * kernel_share,
        longest=longest,
        python=BINDINGS * binding_share,
        longest_binding=LONGEST_BINDING,
    )


@dataclass(kw_only=True)
class Chain:
    """The steps of some configs, one after the other as far as an order wants it."""

    order: Order
    steps: list[Step] = field(default_factory=list)
    _installed: Sequence[Step] = ()  #: of the last config
    _packed: Sequence[Step] = ()
    _tested: Sequence[Step] = ()

    def add(self, work: Work) -> None:
        """Add a config."""
        if self.order.early:
            prepared = self._serial(PREPARE, self._installed)
            compiled = self._compile(work.libtorch, work.longest, [prepared, *self._packed])
        else:
            before = self._packed if self.order.during_tests else self._tested
            prepared = self._serial(PREPARE, before)
            compiled = self._compile(work.libtorch, work.longest, [prepared])
        installed = self._serial(INSTALL, [compiled])
        last = self._serial(PACK, [installed])
        packed = []
        for _ in range(PYTHON_COUNT):
            swapped = self._serial(PYTHON, [last])
            compiled = self._compile(work.python, work.longest_binding, [swapped])
            packed.append(compiled)
            if not self.order.pythons:
                last = compiled
        self._installed = [installed]
        self._packed = packed
        self._tested = [self._serial(TEST, packed)]

    def _serial(self, seconds: float, needs: Sequence[Step]) -> Step:
        step = Step(left=seconds, needs=needs)
        self.steps.append(step)
        return step

    def _compile(self, cpu_seconds: float, longest: float, needs: Sequence[Step]) -> Step:
        """Add the parallel step, and its last object; return the latter."""
        objects = Step(left=cpu_seconds, needs=needs, is_parallel=True)
        self.steps.append(objects)
        return self._serial(longest, [objects])


def plan(change: Change, order: Order) -> Iterator[Step]:
    """Yield the steps of all configs."""
    for group in _groups(change, order):
        chain = Chain(order=order)
        for position in group:
            chain.add(work_of(change, position))
        yield from chain.steps


def _groups(change: Change, order: Order) -> Iterable[Iterable[int]]:
    """Return the positions of configs that wait for each other, in groups."""
    is_rebuild = change in (Change.PROTOBUF, Change.NOTHING)
    if order.rebuilds_alone and is_rebuild:
        return ALONE
    return GROUPS if order.groups else (range(len(CONFIGS)),)


def simulate(steps: Sequence[Step], cores: int) -> float:
    """Return the seconds until all steps are done."""
    now = 0.0
    while True:
        running = [step for step in steps if step.is_ready]
        if not running:
            return now
        speeds = _speeds(running, cores)
        passed = min(step.left / speed for step, speed in zip(running, speeds, strict=True))
        now += passed
        for step, speed in zip(running, speeds, strict=True):
            step.left -= passed * speed
            step.is_done = step.left <= 1e-6


def _speeds(running: Sequence[Step], cores: int) -> list[float]:
    """Return the cores of each step: one for a serial step, equal parts of the others for parallel steps."""
    parallel = sum(step.is_parallel for step in running)
    free = max(1, cores - (len(running) - parallel))
    return [free / parallel if step.is_parallel else 1.0 for step in running]


def main() -> None:
    """Print the minutes of each change, on each number of cores, in each order."""
    names = " | ".join(order.name for order in ORDERS)
    print(f"| change | cores | {names} | one by one, earlier simulation |")
    print("|---" * (len(ORDERS) + 3) + "|")
    for change, cores in KNOWN:
        minutes = [simulate(list(plan(change, order)), cores) / 60 for order in ORDERS]
        figures = " | ".join(f"{value:.0f}" for value in minutes)
        print(f"| {change.value} | {cores} | {figures} | {KNOWN[change, cores]} |")


if __name__ == "__main__":
    main()
