"""What the time left is made of: schedules, ninja's log, the pace, the share of the machine."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from megabuild.forecast import shipped
from megabuild.forecast.known import Known
from megabuild.forecast.outline import COMPILE, Outline, Package, cost
from megabuild.forecast.pace import Hits, Pace
from megabuild.forecast.schedule import Stretch, length
from megabuild.forecast.share import Share, cpu_seconds

KINDS = (
    "rehearsal", "debian-0", "debian-2", "debian-cuda-0", "debian-cuda-2", "official-cpu", "official-cuda",
    "wheel-cpu", "wheel-cuda",
)  # fmt: skip
TODO = Outline(
    packages=(
        Package(name="libtorch", label="libtorch 2.13.0"),
        Package(name="pytorch", label="pytorch 2.13.0 py3.12", python="3.12"),
        Package(name="pytorch-cpu", label="pytorch-cpu 2.13.0"),
        Package(name="pytorch", label="pytorch 2.13.0 py3.11", python="3.11"),
    ),
    staged=True,
)


def test_a_long_last_object_counts() -> None:
    assert length([Stretch(pieces=[1.0, 1.0, 10.0])], 2) == 11.0
    assert length([Stretch(pieces=[10.0, 1.0, 1.0])], 2) == 10.0


def test_a_test_runs_beside_what_follows_and_takes_a_core_meanwhile() -> None:
    work = [Stretch(pieces=[2.0], beside=[3.0]), Stretch(pieces=[4.0])]
    assert length(work, 1) == 9.0
    assert length(work, 2) == 6.0
    assert length([Stretch(pieces=[1.0], beside=[5.0])], 2) == 6.0
    assert length([], 2, beside=[7.0, 2.0, 2.0]) == 7.0


@pytest.mark.parametrize("kind", KINDS)
def test_more_jobs_never_take_longer_and_never_less_than_the_work_on_so_many_cores(kind: str) -> None:
    known = shipped.known(kind)
    found = []
    for jobs, cores in itertools.product((1, 2, 10, 192), (1, 2, 8)):
        todo = Outline(packages=TODO.packages, staged=True, jobs=jobs, cores=cores)
        took = cost(todo, known)
        assert took.seconds >= took.cpu / min(jobs, cores) - 1e-6
        found.append((cores, jobs, took.seconds))
    for cores in (1, 2, 8):
        times = [seconds for of, _, seconds in found if of == cores]
        assert times == sorted(times, reverse=True)
    assert found[0][2] > 0


def test_ten_jobs_on_two_cores_are_two() -> None:
    known = shipped.known("rehearsal")
    two, ten = (
        cost(Outline(packages=TODO.packages, staged=True, jobs=jobs, cores=2), known) for jobs in (2, 10)
    )
    assert two == ten


def test_a_slower_machine_takes_longer_by_what_is_shipped() -> None:
    assert cost(TODO, shipped.known("debian-0", 2.0)).cpu == pytest.approx(
        2 * cost(TODO, shipped.known("debian-0")).cpu
    )


def test_what_the_object_cache_has_costs_next_to_nothing() -> None:
    known = Known(
        phases={COMPILE: 0.0}, steps={"a.o": 100.0, "lib.so": 7.0}, order={COMPILE: ["a.o", "lib.so"]}
    )
    cached = Outline(packages=TODO.packages, staged=True, cached=True)
    assert cost(TODO, known).cpu == 107.0
    assert 7.0 < cost(cached, known).cpu < 8.0


def test_what_an_interrupted_compile_has_made_is_not_expected_again_by_a_shipped_table_either() -> None:
    known = shipped.known("debian-0")
    folder = "c10/CMakeFiles/c10.dir/core"
    todo = Outline(packages=TODO.packages, staged=True)
    whole = cost(todo, known).cpu
    some = cost(replace(todo, made=[f"{folder}/Allocator.cpp.o", f"{folder}/Device.cpp.o"]), known).cpu
    (usual,) = {took for name, took in known.steps.items() if name.startswith(f"{folder}/#")}
    assert whole - some == pytest.approx(2 * usual)
    every = [name.replace("#", "object") for name in known.order[COMPILE]]
    assert whole - cost(replace(todo, made=every), known).cpu == pytest.approx(
        sum(known.steps[name] for name in known.order[COMPILE])
    )


def test_the_pace_follows_what_was_finished_last() -> None:
    pace = Pace(1000.0)
    assert pace.factor == 1.0
    for _ in range(20):
        pace.add(60.0, 30.0)
    assert pace.factor == pytest.approx(2.0, rel=0.05)
    for _ in range(20):
        pace.add(30.0, 30.0)
    assert pace.factor == pytest.approx(1.0, rel=0.1)
    pace.add(1000.0, 0.0)  # nothing was expected: it says nothing
    assert pace.factor == pytest.approx(1.0, rel=0.1)


def test_objects_that_the_cache_has_are_seen_by_their_time() -> None:
    hits = Hits(likely=False)
    assert hits.expected(30.0) == 30.0
    assert not hits.was_one(25.0, 30.0)
    assert not hits.was_one(0.1, 30.0)  # a single one
    for _ in range(60):
        assert hits.was_one(0.1, 30.0)
    assert hits.expected(30.0) < 3.0
    assert not hits.was_one(0.1, 0.5)  # such a one is as quick without a cache


def test_the_share_is_of_what_could_have_been_had() -> None:
    ours, idle = iter([100.0, 106.2, 116.2]), iter([50.0, 50.0, 60.0])
    share = Share(2, ours=lambda: next(ours), idle=lambda: next(idle))
    share.sample(0.0, 2)
    assert not share.known
    share.sample(10.0, 2)
    assert share.now == pytest.approx(0.31)
    share.sample(11.0, 2)  # just now
    assert share.now == pytest.approx(0.31)
    share.sample(100.0, 1)  # 90 s of one core were wanted: 10 were had, and 10 nobody had
    assert 0.22 < share.now < 0.31


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_cpu_seconds_are_those_of_children_and_of_what_they_started() -> None:
    before = cpu_seconds()
    code = "import subprocess, sys, time\nwhile time.process_time() < 0.3: pass\n"
    inner = f"{code}subprocess.run([sys.executable, '-c', {code!r}])"
    subprocess.run([sys.executable, "-c", inner], check=True)
    assert 0.55 < cpu_seconds() - before < 5
    assert os.times().children_user > 0
