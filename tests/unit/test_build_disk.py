"""Bytes on disk."""

from __future__ import annotations

import os
from pathlib import Path

from megabuild.run.disk import DiskWatch, size_of


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))


def test_hard_links_are_counted_once_in_blocks_and_each_time_in_sizes(tmp_path: Path) -> None:
    write(tmp_path / "a", 1_000_000)
    os.link(tmp_path / "a", tmp_path / "b")
    size = size_of(tmp_path)
    assert 1_000_000 <= size.allocated < 1_100_000
    assert 2_000_000 <= size.apparent < 2_100_000


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert size_of(tmp_path / "none").allocated == 0


def test_the_peak_stays_when_the_files_are_gone(tmp_path: Path) -> None:
    now = [0.0]
    watch = DiskWatch(tmp_path, lambda: now[0])
    write(tmp_path / "tree" / "a.o", 300_000)
    write(tmp_path / "out" / "build_cache" / "staging_1" / "b", 200_000)
    write(tmp_path / "out" / "bld" / "c", 500_000)
    watch.tick()
    (tmp_path / "out" / "bld" / "c").unlink()
    now[0] += 3600
    watch.tick()
    use = watch.result(inheriting=4)
    assert 1_000_000 <= use.peak < 1_100_000
    assert 300_000 <= use.tree < 350_000
    assert 200_000 <= use.staged < 250_000
    assert use.copied == 5 * use.staged


def test_it_is_measured_seldom_but_at_every_occasion(tmp_path: Path) -> None:
    now = [0.0]
    watch = DiskWatch(tmp_path, lambda: now[0])
    watch.tick()
    write(tmp_path / "tree" / "a", 100_000)
    now[0] += 5
    watch.tick()
    assert watch.result(0).tree == 0
    watch.tick(occasion=True)
    assert watch.result(0).tree >= 100_000
