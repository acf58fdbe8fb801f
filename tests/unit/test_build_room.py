"""When a run waits for room on the disk, and for how long."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tiny import wait_for

from groundwork import events
from groundwork.errors import OutOfSpaceError
from megabuild.plan.plan import Plan
from megabuild.run.room import Room

GB = 1_000_000_000


@dataclass
class World:
    """A disk, a clock, and who is told."""

    folder: Path
    expected: int = 40 * GB
    free: int = 50 * GB
    now: float = 0.0
    held: threading.Event = field(default_factory=threading.Event)
    told: list[events.Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = SimpleNamespace(
            state=self.folder, output=self.folder, cache=self.folder / "cache", run_name="x"
        )
        plan = SimpleNamespace(options=options, estimate=SimpleNamespace(disk=self.expected))
        self.room = Room(
            cast(Plan, plan), self.held, self.told.append, free=lambda _: self.free, clock=lambda: self.now
        )

    def look(self, free: float, *, seconds: float = 2.0) -> bool:
        self.free, self.now = int(free * GB), self.now + seconds
        self.room.look()
        return self.held.is_set()


def test_the_floor_is_a_twentieth_of_what_the_run_takes_and_twice_that_is_enough(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert [world.look(free) for free in (50, 2.1, 1.9, 2.1, 3.9, 4.0, 2.1)] == [
        False, False, True, True, True, False, False,
    ]  # fmt: skip


def test_a_small_run_leaves_more_than_what_counts_as_full(tmp_path: Path) -> None:
    world = World(tmp_path, expected=1000)
    assert [world.look(free) for free in (0.11, 0.09, 0.19, 0.21)] == [False, True, True, False]


def test_a_pause_and_its_end_are_told_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.look(1)
    assert wait_for(lambda: world.told)
    world.look(1)
    world.look(10)
    world.look(10)
    paused, went_on = world.told
    assert isinstance(paused, events.Paused)
    assert "1.0 GB are free" in paused.note
    assert "it goes on with 4.0 GB" in paused.note
    assert went_on == events.WentOn(free=10 * GB)


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.look(1)
    world.look(1, seconds=7000)
    with pytest.raises(OutOfSpaceError, match=r"4\.0 GB are needed"):
        world.look(1, seconds=300)
