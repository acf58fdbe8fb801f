"""A file that a build appends to, read while it does, whatever that is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from megabuild.run.build_output import STATS, Objects
from megabuild.run.growing_file import GrowingFile


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "tmp" / "notes"
    path.parent.mkdir()
    return path


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_file_that_is_begun_anew_is_read_from_its_start(tmp_path: Path, notes: Path) -> None:
    tail = GrowingFile(notes, tmp_path)
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
    assert GrowingFile(notes, tmp_path).lines() == []


def test_a_line_without_an_end_is_skipped_in_pieces(tmp_path: Path, notes: Path) -> None:
    tail = GrowingFile(notes, tmp_path)
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
