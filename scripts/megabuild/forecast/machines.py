"""What several machines make of a run: the steps of :mod:`megabuild.forecast.outline`, scheduled on more than one.

Every machine has the same cores, as fast as those that the weights are for, and memory for a compile on each of them.
Where heavy objects wait for memory, a run takes longer ("Memory by object" in docs/lab/measurements.md).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from megabuild.forecast.known import Known
from megabuild.forecast.outline import Outline, cost, is_object, pieces, stages
from megabuild.forecast.schedule import Stretch, length

#: Of an object's CPU seconds, what preprocessing takes, which stays on the client. Measured with g++ 12 and four files
#: of PyTorch 2.6: 0.03 to 0.05 at -O0, 0.02 to 0.03 at -O2. Nobody has measured nvcc, which preprocesses for each
#: architecture.
CLIENT_SHARE = 0.05
#: Bytes of an object's preprocessed source (0.5 to 1 MB with zstd) and of the object itself (0.3 to 0.8 MB), of the
#: same files.
OBJECT_BYTES = 1_500_000
#: Of the network, as an assumption: a gigabit.
BITS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Some machines that are alike."""

    count: int
    cores: int  #: of each


@dataclass(frozen=True, kw_only=True)
class Work:
    """One config's run."""

    outline: Outline
    known: Known
    tree: int = 0  #: bytes of libtorch's compiled tree, which a store hands from machine to machine


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way of using the machines, and what it takes."""

    name: str
    seconds: float  #: on the clock
    machine_seconds: float  #: of all machines for as long as they are held


def predict(
    steps: Sequence[float],
    *,
    workers: int,
    client_share: float,
    client: int = 1,
    transfer: float = 0.0,
    local: bool = True,
) -> float:
    """Return how many seconds a distributed compile of objects takes; ``steps`` has the seconds of one core for each.

    An object is preprocessed on one of ``client`` cores (``client_share`` of its seconds), goes over the client's one
    link (``transfer`` seconds, one after the other) and is compiled on one of ``workers`` cores, if that begins before
    the client would have compiled it itself; else the client does, unless it must not (not ``local``). Without workers
    this is list scheduling on the client's cores, as :func:`megabuild.forecast.schedule.length` does it.
    """
    here, there = [0.0] * max(1, client), [0.0] * workers
    link = end = 0.0
    for seconds in steps:
        preprocessed = here[0] + client_share * seconds
        sent = max(link, preprocessed) + transfer
        if there and (not local or max(there[0], sent) <= here[0] + seconds):
            link = sent
            heapq.heapreplace(here, preprocessed)
            ends = max(there[0], sent) + (1 - client_share) * seconds
            heapq.heapreplace(there, ends)
        else:
            ends = here[0] + seconds
            heapq.heapreplace(here, ends)
        end = max(end, ends)
    return end


def ways(works: Sequence[Work], machines: Machines) -> list[Way]:
    """Return the ways of using the machines for one config or several, one machine first."""
    cores = machines.cores
    one = sum(alone(work, cores) for work in works)
    found = [Way(name="one machine", seconds=one, machine_seconds=one)]
    if machines.count > 1:
        spread = sum(distributed(work, machines) for work in works)
        found.append(
            Way(name="compiles distributed", seconds=spread, machine_seconds=machines.count * spread)
        )
        if len(works) > 1:
            whole = [(alone(work, cores), list[float]()) for work in works]
            found.append(_scheduled("a machine for each config", whole, machines.count))
        apart = [chain(work, cores) for work in works]
        if any(after for _, after in apart):
            found.append(_scheduled("libtorch once, then Pythons side by side", apart, machines.count))
    if any(work.outline.staged and not work.outline.cached for work in works):
        again = sum(alone(replace(work, outline=replace(work.outline, cached=True)), cores) for work in works)
        found.append(
            Way(name="one machine, all objects in a shared cache", seconds=again, machine_seconds=again)
        )
    return found


def alone(work: Work, cores: int) -> float:
    """Return the seconds that one machine takes: the plan's own estimate, where it is this one."""
    return cost(replace(work.outline, jobs=cores, cores=cores), work.known).seconds


def distributed(work: Work, machines: Machines) -> float:
    """Return the seconds with objects on all machines, and everything else on one: links, scripts, packing, tests."""
    if machines.count == 1 or work.outline.cached:
        return alone(work, machines.cores)

    def spread(steps: Sequence[float]) -> float:
        return predict(
            steps,
            workers=(machines.count - 1) * machines.cores,
            client=machines.cores,
            client_share=CLIENT_SHARE,
            transfer=_transfer(OBJECT_BYTES),
        )

    row = []
    for stage in stages(work.outline, work.known) if work.outline.packages else []:
        objects = [took for name, took in stage.steps.items() if is_object(name)]
        others = sum(took for name, took in stage.steps.items() if not is_object(name))
        row.append(Stretch(pieces=[stage.seconds + others]))
        row.append(Stretch(pieces=[spread(objects)], beside=[stage.test]))
    row.append(
        Stretch(pieces=[spread([one for took in work.outline.extensions.values() for one in pieces(took)])])
    )
    return length(row, machines.cores)


def chain(work: Work, cores: int) -> tuple[float, list[float]]:
    """Return the seconds of the first job, with libtorch and one Python, and of one for each other Python after it.

    What the first has compiled goes through a store, which takes the tree once and gives it to each of the others.
    Each has an equal part of the extensions.
    """
    todo = work.outline
    pythons = [package for package in todo.packages if package.python]
    if not todo.staged or len(pythons) < 2:
        return alone(work, cores), []
    moved = _transfer(work.tree)
    part = {name: took / len(pythons) for name, took in todo.extensions.items()}
    kept = tuple(package for package in todo.packages if package not in pythons[1:])
    first = replace(work, outline=replace(todo, packages=kept, extensions=part))
    after = [
        replace(work, outline=replace(todo, packages=(package,), staged=False, extensions=part))
        for package in pythons[1:]
    ]
    return alone(first, cores) + moved, [moved + alone(one, cores) for one in after]


def _transfer(size: int) -> float:
    return 8 * size / BITS_PER_SECOND


def _scheduled(name: str, chains: Sequence[tuple[float, Sequence[float]]], count: int) -> Way:
    """Give jobs to machines that are free: the longest config first, Pythons when their libtorch is there."""
    jobs = list(_begun(sorted(chains, key=lambda one: one[0] + sum(one[1]), reverse=True), count))
    return Way(
        name=name,
        seconds=max((ends for _, ends in jobs), default=0.0),
        machine_seconds=sum(ends - begins for begins, ends in jobs),
    )


def _begun(chains: Sequence[tuple[float, Sequence[float]]], count: int) -> Iterator[tuple[float, float]]:
    """Yield when each job begins and ends."""
    free = [0.0] * count
    ready: list[tuple[float, float]] = []  # since when, and how long: Pythons
    for seconds, after in chains:
        begins = free[0]
        ends = begins + seconds
        heapq.heapreplace(free, ends)
        ready += [(ends, one) for one in after]
        yield begins, ends
    for since, seconds in sorted(ready):
        begins = max(since, free[0])
        heapq.heapreplace(free, begins + seconds)
        yield begins, begins + seconds
