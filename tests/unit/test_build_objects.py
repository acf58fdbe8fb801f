"""How many compiles were saved."""

from __future__ import annotations

from pathlib import Path

from megabuild.build import events
from megabuild.build.progress import STATS, Objects, Totals
from megabuild.engine.logs import LogLine


def staging(text: str) -> LogLine:
    return LogLine(kind="build", package="", version="", build_string="", python="", text=text)


def make(tree: Path, *names: str) -> None:
    for name in names:
        (tree / "build" / f"{name}.o").parent.mkdir(parents=True, exist_ok=True)
        (tree / "build" / f"{name}.o").touch()


def test_objects_that_the_tree_kept_are_those_that_nobody_compiled(tmp_path: Path) -> None:
    objects, totals = Objects(tmp_path), Totals()
    make(tmp_path / "tree", "a", "b", "c")
    objects.begin()
    objects.feed(staging("[1/3 0.1s] Building CXX object d.o"))
    objects.feed(staging("[2/3 0.1s] g++ -O2 -MF e.o.d -o e.o -c /x/e.cpp"))
    objects.feed(staging("[3/3 0.1s] g++ -shared -o lib.so a.o b.o"))
    make(tmp_path / "tree", "d", "e")
    assert list(objects.reused(totals)) == [events.Reused(objects=3, of=5, source="tree")]
    assert totals.reused == {"tree": 3}


def test_a_first_compile_has_reused_nothing(tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    objects.begin()
    objects.feed(staging("[1/1 0.1s] Building CXX object a.o"))
    make(tmp_path / "tree", "a")
    assert not list(objects.reused(Totals()))


def test_hits_of_the_object_cache_are_counted(tmp_path: Path) -> None:
    objects, totals = Objects(tmp_path), Totals()
    (tmp_path / STATS).write_text("of an earlier run\ndirect_cache_hit\n")
    objects.begin()
    (tmp_path / STATS).write_text(
        "# a.cpp\ndirect_cache_hit\nlocal_storage_hit\n# b.cpp\npreprocessed_cache_hit\n# c.cpp\ncache_miss\n"
    )
    assert list(objects.reused(totals)) == [events.Reused(objects=2, of=3, source="ccache")]
