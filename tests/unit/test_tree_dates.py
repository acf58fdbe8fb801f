"""Trees from a clock that was ahead, with the real ninja."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import future
import pytest
from small_files import write
from stop_at_write import every_stop

import sync_tree
import tree_dates

DAY = 86400
#: A program of a source and a header that ninja learns of from the compiler; a file that is written only if it differs.
GRAPH = """\
rule compile
  command = echo "$out: header" > $out.d && cat $in header > $out
  depfile = $out.d
  deps = gcc
rule generate
  command = head -n 1 $in > $out.new; cmp -s $out.new $out || cp $out.new $out
  restat = 1
build object: compile source
build generated: generate template
build program: compile generated
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("source", "header", "template"):
        (folder / name).write_text(f"first {name}\n")
    (folder / "build.ninja").write_text(GRAPH)
    return folder


@pytest.fixture
def tree(source: Path, tmp_path: Path) -> Path:
    """A tree that is built, in the future."""
    if shutil.which("ninja") is None:
        pytest.skip("needs ninja")
    tree = tmp_path / "tree"
    sync_tree.sync(source, tree)
    assert sorted(made(tree)) == ["generated", "object", "program"]
    time.sleep(0.02)
    (tree / "template").write_text("first template\nand a line that makes no difference\n")
    (source / "template").write_text((tree / "template").read_text())
    assert made(tree) == ["generated"], "which stays older than what it is made from"
    assert made(tree) == []
    future.send(tree, DAY)
    return tree


def made(tree: Path) -> list[str]:
    """What ninja makes now."""
    said = subprocess.run(["ninja", "-C", tree, "-v"], capture_output=True, text=True, check=True).stdout
    return [line.rpartition(" ")[2] for line in said.splitlines() if line.startswith("[")]


def test_a_tree_of_tomorrow_has_nothing_to_be_made_again(source: Path, tree: Path) -> None:
    synced = sync_tree.sync(source, tree)
    assert (synced.written, DAY - 60 < synced.set_back <= DAY) == (0, True)
    assert made(tree) == []
    assert max(path.lstat().st_mtime for path in tree.rglob("*")) <= time.time()
    assert sync_tree.sync(source, tree).set_back == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [("source", {"object"}), ("header", {"object", "program"}), ("template", {"generated", "program"})],
)
def test_no_object_of_tomorrow_stands_for_a_source_of_today(
    source: Path, tree: Path, name: str, expected: set[str]
) -> None:
    (source / name).write_text(f"second {name}\n")
    assert sync_tree.sync(source, tree).written == 1
    assert set(made(tree)) == expected
    outcome = (tree / "object").read_text() + (tree / "program").read_text()
    assert f"second {name}" in outcome
    assert made(tree) == []


def test_what_was_to_be_made_when_the_clock_was_ahead_is_still_to_be_made(source: Path, tree: Path) -> None:
    for name in ("source", "template"):
        (tree / name).write_text(f"second {name}\n")
        (source / name).write_text(f"second {name}\n")
        later = time.time() + DAY + 5
        os.utime(tree / name, (later, later))
    assert sync_tree.sync(source, tree).written == 0
    assert set(made(tree)) == {"object", "generated", "program"}
    assert (tree / "program").read_text() == "second template\nfirst header\n"


def test_what_was_to_be_made_is_still_to_be_made_after_a_kill_anywhere(source: Path, tree: Path) -> None:
    for name in ("source", "template"):
        (tree / name).write_text(f"second {name}\n")
        (source / name).write_text(f"second {name}\n")
        later = time.time() + DAY + 5
        os.utime(tree / name, (later, later))
    for stopped in every_stop(tree, tree_dates.mend):
        assert sync_tree.sync(source, stopped).written == 0
        assert set(made(stopped)) == {"object", "generated", "program"}


def test_a_kill_in_between_never_makes_an_output_newer_than_what_it_is_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, real = tmp_path / "tree", os.utime
    names = [f"file{number}" for number in range(6)]
    for kill in range(len(names)):
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir()
        for number, name in enumerate(names):
            (tree / name).touch()
            date = time.time() + DAY - 1000 * (number % 3) + number
            real(tree / name, (date, date))
        before = sorted(names, key=lambda name: (tree / name).stat().st_mtime)
        left = [kill]

        def killed(*arguments: object, left: list[int] = left, **more: object) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            real(*arguments, **more)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(os, "utime", killed)
            with pytest.raises(KeyboardInterrupt):
                tree_dates.mend(tree)
        assert sorted(names, key=lambda name: (tree / name).stat().st_mtime) == before
        assert tree_dates.mend(tree).seconds > 0
        assert sorted(names, key=lambda name: (tree / name).stat().st_mtime) == before
        assert tree_dates.mend(tree).seconds == 0


def test_each_log_of_ninja_is_set_back_with_the_tree_by_its_latest_date(tmp_path: Path) -> None:
    now = time.time_ns()
    tomorrow = now + DAY * 10**9
    head = "# ninja log v5\n1\t2\tx\ta.o\tf\n"
    latest = {"one": tomorrow - 100 * 10**9, "two/below": tomorrow}
    for place, date in latest.items():
        log = write(tmp_path / place / ".ninja_log", f"{head}1\t2\t{now}\tb.o\tf\n1\t2\t{date}\tc.o\tf\n")
        log.chmod(0o640)
    write(tmp_path / "two/source")
    for path in tmp_path.rglob("*"):
        os.utime(path, ns=(now, now))
    mended = tree_dates.mend(tmp_path)
    by = mended.seconds * 10**9
    assert 0 <= mended.seconds - DAY <= 60
    assert mended.newest == now - by
    for place, date in latest.items():
        log = tmp_path / place / ".ninja_log"
        lines = f"1\t2\t{now - by}\tb.o\tf\n1\t2\t{date - by}\tc.o\tf\n"
        assert log.read_text() == head + lines
        assert log.stat().st_mode & 0o777 == 0o640
    for seconds in (mended.seconds, 0):  # the second time, no date is in the future
        assert {path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == {now - by}
        assert seconds == 0 or tree_dates.mend(tmp_path).seconds == 0


def test_links_are_not_followed_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    mine, tree = tmp_path / "mine", tmp_path / "tree"
    tree.mkdir()
    mine.mkdir()
    (mine / ".ninja_log").write_text("# ninja log v5\n")
    tomorrow = time.time() + DAY
    os.utime(mine / ".ninja_log", (tomorrow, tomorrow))
    (tree / "folder").symlink_to(mine)
    (tree / "link").symlink_to(mine / ".ninja_log")
    (tree / "nowhere").symlink_to("none")
    os.mkfifo(tree / ".ninja_log")
    os.utime(tree / "link", (tomorrow, tomorrow), follow_symlinks=False)
    assert tree_dates.mend(tree).seconds > DAY - 60
    assert (mine / ".ninja_log").stat().st_mtime == pytest.approx(tomorrow)
    assert (tree / "link").lstat().st_mtime <= time.time()


@pytest.mark.parametrize("left", ["", '["a.cpp", "b.c', "{}", '[1, ["x"]]', "\0\0"])
def test_a_list_that_a_power_cut_has_damaged_is_as_none(left: str, tmp_path: Path) -> None:
    source, tree = tmp_path / "source", tmp_path / "tree"
    source.mkdir()
    (source / "a.cpp").write_text("int a;")
    sync_tree.sync(source, tree)
    (tree / sync_tree.MANIFEST).write_text(left)
    assert sync_tree.sync(source, tree).written == 0
    assert json.loads((tree / sync_tree.MANIFEST).read_text()) == ["a.cpp"]


def test_a_tree_without_a_date_in_the_future_stays_as_it_is(tmp_path: Path) -> None:
    for name, date in {"old": 10**9, "older": 10**8}.items():
        os.utime(write(tmp_path / name), (date, date))
    assert tree_dates.mend(tmp_path) == tree_dates.Mended(10**18, 0)
    assert {path.name: path.stat().st_mtime for path in tmp_path.iterdir()} == {"old": 10**9, "older": 10**8}
    assert tree_dates.mend(tmp_path / "none") == tree_dates.Mended(0, 0)
