"""Memory decides how many compilers run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from megabuild.run.pyg.compilers import Compilers, Seen
from megabuild.run.pyg.governor import BYTES_PER_GXX, Governor, Limit

GB = 1_000_000_000


class World:
    """A machine that a test sets."""

    def __init__(self, free: float, **options: int) -> None:
        self.now = 0.0
        self.free = free * GB
        self.seen = Seen()
        self.governor = Governor(
            ceiling=options.get("ceiling", 16),
            per_job=BYTES_PER_GXX,
            free=lambda: int(self.free),
            look=lambda: self.seen,
            budget=options.get("budget"),
            clock=lambda: self.now,
        )

    def after(self, seconds: float) -> Limit | None:
        """The last change within some seconds."""
        changed = None
        for _ in range(int(seconds)):
            self.now += 1.01
            changed = self.governor.tick() or changed
        return changed


def seen(peak: float, *, finished: int = 0, running: int = 0) -> Seen:
    return Seen(running=running, resident=int(running * peak * GB), peak=int(peak * GB), finished=finished)


def test_memory_for_five_compiles_makes_five_jobs() -> None:
    limit = World(14.0).governor.limit
    assert limit.count == 5
    assert "13.5 GB of memory, 2.6 GB expected per compile" in limit.reason


def test_with_memory_enough_cores_decide() -> None:
    assert World(100.0, ceiling=8).governor.limit == Limit(count=8, reason="cores")


def test_a_budget_counts_where_more_is_free() -> None:
    assert World(100.0, budget=6 * GB).governor.limit.count == 2


def test_there_is_always_one_job() -> None:
    assert World(0.1).governor.limit.count == 1


def test_memory_that_our_own_compilers_use_is_not_lost_to_them() -> None:
    world = World(14.0)
    world.free, world.seen = 14.0 * GB - 4 * 2.2 * GB, seen(2.2, running=4)
    assert world.after(10) is None


def test_a_larger_compile_than_expected_takes_jobs_back_at_once() -> None:
    world = World(14.0)
    world.seen = seen(4.0, running=1)
    world.free -= 4.0 * GB
    changed = world.after(1)
    assert changed is not None
    assert changed.count == 2
    assert "seen per compile" in changed.reason


def test_smaller_compiles_give_more_jobs_but_only_after_several_and_some_time() -> None:
    world = World(14.0)
    world.seen = seen(1.5, finished=2)
    assert world.after(20) is None
    world.seen = seen(1.5, finished=4)
    assert world.after(3) is None
    changed = world.after(4)
    assert changed is not None
    assert changed.count == 7


def test_when_something_else_takes_memory_jobs_are_taken_back() -> None:
    world = World(14.0)
    world.free = 6.0 * GB
    changed = world.after(1)
    assert changed is not None
    assert changed.count == 2


def test_after_a_killed_compile_the_next_ones_get_twice_the_room() -> None:
    world = World(14.0)
    world.seen = seen(2.0, finished=10)
    world.after(10)
    before = world.governor.limit.count
    world.governor.killed()
    assert world.governor.limit.count == before // 2
    assert world.after(20) is None


def test_the_memory_of_compilers_below_is_seen(tmp_path: Path) -> None:
    program = tmp_path / "cc1plus"
    program.symlink_to(sys.executable)
    code = "x = bytearray(60_000_000); import time; print(flush=True); time.sleep(30)"
    compilers = Compilers()
    with subprocess.Popen([program, "-S", "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            found = compilers.look()
        finally:
            process.kill()
    if found.running == 0:
        pytest.skip("this system names a process after the file behind a link")
    assert found.running == 1
    assert 60_000_000 < found.peak < 200_000_000
    time.sleep(0.05)
    after = compilers.look()
    assert (after.running, after.finished, after.peak) == (0, 1, found.peak)
