"""Steps from lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.names import PackageId
from megabuild.engine.logs import ScriptLine
from megabuild.run.build_output import STATS, BuildStep, Objects, Parser, Totals


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def line(
    text: str, *, kind: str = "build", package: str = "", build: str = "", python: str = ""
) -> ScriptLine:
    return ScriptLine(kind=kind, package=PackageId(package, "1", build), python=python, text=text)


def feed(parser: Parser, *lines: ScriptLine) -> list[BuildStep]:
    return [step for one in lines for step in parser.feed(one)]


def test_a_ninja_line_is_progress_of_the_phase_announced_before() -> None:
    found = feed(
        Parser(), line("::megabuild:: phase compile"), line("[12/1374 34.5s] Building CXX object a.o")
    )
    assert found[-1] == BuildStep(kind="count", phase="compile", done=12, total=1374)


def test_ninjas_side_by_side_are_added_up() -> None:
    found = feed(
        Parser(),
        line("::megabuild:: phase compile"),
        line("[1/2 30.0s _knn_cpu of 5] c++"),
        line("[1/2 31.0s _fps_cpu of 5] c++"),
        line("[2/2 60.0s _knn_cpu of 5] c++"),
    )
    counted = [(step.done, step.total) for step in found if step.kind == "count"]
    assert counted == [(1, 5), (2, 5), (3, 5)]


@pytest.mark.parametrize(
    "text",
    [
        "[12/1374] Building",
        "x [1/2 3s] y",
        "[1/2 3s]",
        "echo '::megabuild:: phase compile'",
        "+ ::megabuild:: phase x",
    ],
)
def test_what_only_looks_like_progress_is_none(text: str) -> None:
    parser = Parser()
    feed(parser, line("begin"))
    assert not feed(parser, line(text))


def test_scripts_are_told_apart_and_timed() -> None:
    clock = Clock()
    parser = Parser(clock)
    package = {"package": "pytorch", "build": "cpu_py312_h0_0", "python": "3.12"}
    found = feed(parser, line("compile"))
    clock.now += 30
    found += feed(parser, line("a", **package))
    clock.now += 5
    found += feed(parser, line("b", **package))
    assert parser.totals.staging_seconds == 30
    assert parser.seconds() == 5
    feed(parser, line("it works", kind="test", package="libtorch"))
    clock.now += 100
    assert parser.seconds() == 0, (
        "the next package has no script of its own, and another one's test is not its time"
    )
    assert found == [
        BuildStep(kind="phase", phase="staging"),
        BuildStep(kind="package", package="pytorch", python="3.12", label="pytorch 1 py3.12"),
    ]


def test_the_scripts_of_one_package_s_test_are_one_test() -> None:
    found = feed(
        Parser(),
        line("import torch", kind="test", package="pytorch"),
        line("python x.py", kind="test", package="pytorch", build="cpu_py312_h0_0"),
    )
    assert found == [BuildStep(kind="test", package="pytorch")]


def test_swaps_and_reused_objects_are_told_and_kept() -> None:
    parser = Parser()
    found = feed(
        parser,
        line("::megabuild:: swap from=3.12 to=3.11 steps=163 core=0"),
        line("::megabuild:: reused objects=100 of=120 source=ccache"),
    )
    assert [step.sentence for step in found[1:]] == [
        "Python 3.12 -> 3.11: 163 steps to run, 0 core objects among them",
        "100 of 120 objects reused from ccache",
    ]
    assert parser.totals.swaps == {"3.11": {"steps": 163, "core": 0}}
    assert parser.totals.reused == {"ccache": 100}


# ---- objects that were there already -----------------------------------------------------------------------------
def make(tree: Path, *names: str) -> None:
    for name in names:
        (tree / "build" / f"{name}.o").parent.mkdir(parents=True, exist_ok=True)
        (tree / "build" / f"{name}.o").touch()


def test_objects_that_the_tree_kept_are_those_that_nobody_compiled(tmp_path: Path) -> None:
    objects, totals = Objects(tmp_path), Totals()
    make(tmp_path / "tree", "a", "b", "c")
    objects.begin()
    objects.feed(line("[1/3 0.1s] Building CXX object d.o"))
    objects.feed(line("[2/3 0.1s] g++ -O2 -MF e.o.d -o e.o -c /x/e.cpp"))
    objects.feed(line("[3/3 0.1s] g++ -shared -o lib.so a.o b.o"))
    make(tmp_path / "tree", "d", "e")
    assert list(objects.reused(totals)) == ["3 of 5 objects reused from tree"]
    assert totals.reused == {"tree": 3}


def test_a_first_compile_has_reused_nothing(tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    objects.begin()
    objects.feed(line("[1/1 0.1s] Building CXX object a.o"))
    make(tmp_path / "tree", "a")
    totals = Totals()
    assert not list(objects.reused(totals))
    assert totals.object_cache == {"hits": 0, "misses": 0, "shared": 0}, "compiled, and no cache asked"


def test_hits_of_the_object_cache_are_counted(tmp_path: Path) -> None:
    objects, totals = Objects(tmp_path), Totals()
    (tmp_path / STATS).parent.mkdir()
    (tmp_path / STATS).write_text("of an earlier run\ndirect_cache_hit\n")
    objects.begin()
    (tmp_path / STATS).write_text(
        "# a.cpp\ndirect_cache_hit\nlocal_storage_hit\n"
        "# b.cpp\npreprocessed_cache_hit\nremote_storage_hit\n# c.cpp\ncache_miss\n"
    )
    assert list(objects.reused(totals)) == ["2 of 3 objects reused from ccache"]
    assert totals.object_cache == {"hits": 2, "misses": 1, "shared": 1}
