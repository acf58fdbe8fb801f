"""What a build notes of its compilers, read while it writes, whatever it writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from megabuild.engine.compiler_gate import NOTES
from megabuild.run.build_output import STATS, Objects
from megabuild.run.compiling import InFlightObjects, Tail


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "tmp" / NOTES
    path.parent.mkdir()
    return path


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_what_has_begun_and_not_ended_is_in_flight_the_oldest_first(tmp_path: Path, notes: Path) -> None:
    clock = Clock()
    objects = InFlightObjects(tmp_path, clock)
    assert objects.look() == ()
    add(notes, "> 0 a.o\n> 0 b.o\n")
    assert [one.name for one in objects.look()] == ["a.o", "b.o"]
    clock.now = 105
    add(notes, "> 0 c.o\n+ 1000 a.o\n= 0 b.o\n> 0 d")
    assert [(one.name, one.since) for one in objects.look()] == [("c.o", 105.0)]
    add(notes, ".o\n- 10 c.o\n")
    assert [one.name for one in objects.look()] == ["d.o"]
    objects.clear()
    assert objects.look() == ()


def test_what_is_no_note_is_left_out_and_nothing_grows_without_end(tmp_path: Path, notes: Path) -> None:
    objects = InFlightObjects(tmp_path)
    add(notes, "> 0 \x1b[31m.o\n> x a.o\nhello\n> 0 two words\n" + "x" * 400_000 + "\n")
    for number in range(2000):
        add(notes, f"> 0 {number}.o\n")
    for _ in range(5):
        found = objects.look()
    assert len(found) == 512
    assert found[-1].name == "1999.o"


def test_a_file_that_is_begun_anew_is_read_from_its_start(tmp_path: Path, notes: Path) -> None:
    tail = Tail(notes, tmp_path)
    add(notes, "one\ntwo\n")
    assert tail.lines() == [b"one", b"two"]
    assert tail.lines() == []
    notes.write_text("new\n")
    assert tail.lines() == [b"new"]
    notes.unlink()
    assert tail.lines() == []
    add(notes, "other\n")
    assert tail.lines() == [b"other"]


@pytest.mark.parametrize("how", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_read(tmp_path: Path, notes: Path, how: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("> 0 secret.o\n")
    if how == "link":
        notes.symlink_to(secret)
    elif how == "pipe":
        os.mkfifo(notes)
    else:
        notes.mkdir()
    assert InFlightObjects(tmp_path).look() == ()


def test_a_line_without_an_end_is_skipped_in_pieces(tmp_path: Path, notes: Path) -> None:
    tail = Tail(notes, tmp_path)
    add(notes, "x" * 600_000)
    for _ in range(4):
        assert tail.lines() == []
    add(notes, "\nlast\n")
    assert tail.lines()[-1] == b"last"


def test_the_object_cache_is_counted_while_it_answers(tmp_path: Path) -> None:
    stats = tmp_path / STATS
    stats.parent.mkdir()
    objects = Objects(tmp_path)
    objects.begin()
    add(stats, "# a.cpp\ndirect_cache_hit\n# b.cpp\ncache_miss\ndirect_cache_miss\n")
    objects.look()
    assert (objects.hits, objects.misses) == (1, 1)
    add(stats, "preprocessed_cache_hit\n")
    objects.look()
    assert (objects.hits, objects.misses) == (2, 1)
