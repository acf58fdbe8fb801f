"""When a run waits for room on the disk, and for how long."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tiny import wait_for

from groundwork import events
from groundwork.errors import OutOfSpaceError, ProviderError
from megabuild.plan.plan import Plan
from megabuild.run import room
from megabuild.run.preparation import with_room
from megabuild.run.room import Room

GB = 1_000_000_000


@dataclass
class World:
    """A disk, a clock, and who is told."""

    folder: Path
    expected: int = 40 * GB
    free: int = 50 * GB
    free_cache: int = 50 * GB
    now: float = 0.0
    held: threading.Event = field(default_factory=threading.Event)
    told: list[events.Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = SimpleNamespace(
            state=self.folder, output=self.folder, cache=self.folder / "cache", run_name="x"
        )
        plan = SimpleNamespace(options=options, estimate=SimpleNamespace(disk=self.expected))
        self.room = Room(cast(Plan, plan), self.held, self.told.append, free=self.of, clock=lambda: self.now)

    def of(self, place: Path) -> int:
        return self.free_cache if place.name == "cache" else self.free

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


def test_a_cache_on_another_disk_is_looked_at_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no more than what counts as full, however much the plan reckons with elsewhere."""
    monkeypatch.setattr(room, "disk_of", lambda folder: int(folder.name == "cache"))
    world = World(tmp_path)

    def look(free_cache: float) -> bool:
        world.free_cache = int(free_cache * GB)
        return world.look(50)

    assert [look(0.5), look(0.09)] == [False, True]
    assert wait_for(lambda: world.told)
    assert [look(0.19), look(0.21)] == [True, False]
    paused = world.told[0]
    assert isinstance(paused, events.Paused)
    assert f"90.0 MB are free in {tmp_path / 'cache'}, it goes on with 200 MB" in paused.note


def test_a_preparation_waits_in_all_its_threads_until_there_is_room(tmp_path: Path) -> None:
    world, told, begun = World(tmp_path, free=GB), list[object](), list[int]()
    world.now = 10.0
    with world.room.waiting(told.append) as notes:

        def pack(number: int) -> None:
            notes(f"{number}")
            begun.append(number)

        threads = [threading.Thread(target=pack, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        assert wait_for(lambda: len(told) == 3 and bool(world.told))
        assert not begun
        world.free, world.now = 10 * GB, 20.0
        for thread in threads:
            thread.join(10)
        assert sorted(begun) == [0, 1, 2]
    assert [type(event) for event in world.told] == [events.Paused, events.WentOn]


def test_what_was_interrupted_while_it_waited_does_not_wait_on(tmp_path: Path) -> None:
    world = World(tmp_path, free=GB)
    world.now = 10.0
    with world.room.waiting(lambda _: None) as notes:
        thread = threading.Thread(target=notes, args=("packing",))
        thread.start()
        assert wait_for(world.held.is_set)
    thread.join(10)
    assert not thread.is_alive()


def test_what_a_preparation_could_not_write_is_tried_again_when_there_is_room(tmp_path: Path) -> None:
    world, made, tries = World(tmp_path), cast(Plan, object()), list[int]()

    def prepare(notes: events.Notes) -> Plan:
        tries.append(len(tries))
        if len(tries) == 1:
            notes(events.Preparing(what="downloading 25 wheels", total=25))
            world.free = 0
            threading.Timer(0.5, make_room).start()
            raise OSError(errno.ENOSPC, "No space left on device")
        return made

    def make_room() -> None:
        world.free, world.now = 50 * GB, world.now + 10

    assert with_room(world.room, prepare, world.told.append) is made
    assert len(tries) == 2
    assert world.told[-2:] == [
        events.Warned(message="[Errno 28] No space left on device: once more, now that there is room"),
        events.Idle(task="downloading 25 wheels"),
    ]


def test_what_room_does_not_help_ends_a_preparation(tmp_path: Path) -> None:
    world, tries = World(tmp_path), list[int]()

    def prepare(error: Exception) -> Callable[[events.Notes], Plan]:
        def fail(notes: events.Notes) -> Plan:
            tries.append(len(tries))
            raise error

        return fail

    with pytest.raises(OSError, match="No space"):  # a quota that nobody sees
        with_room(world.room, prepare(OSError(errno.ENOSPC, "No space left")), world.told.append)
    assert len(tries) == 2
    with pytest.raises(ProviderError):
        with_room(world.room, prepare(ProviderError("no mirror")), world.told.append)
    assert len(tries) == 3


def test_what_fails_in_a_pause_is_tried_again_whatever_it_says(tmp_path: Path) -> None:
    world, made, tries = World(tmp_path), cast(Plan, object()), list[int]()

    def prepare(notes: events.Notes) -> Plan:
        tries.append(len(tries))
        if len(tries) == 1:
            world.look(0.01)
            world.free, world.now = 50 * GB, world.now + 10
            raise ProviderError("packaging python failed:\n  Could not open or create, or write to file")
        if len(tries) == 2:
            raise ProviderError("no mirror")
        return made

    with pytest.raises(ProviderError, match="no mirror"):
        with_room(world.room, prepare, world.told.append)
    assert len(tries) == 2
