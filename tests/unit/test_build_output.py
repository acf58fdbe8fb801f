"""Steps from lines."""

from __future__ import annotations

import re

import pytest
from tiny import Clock, kept_sentences

from groundwork.names import PackageId
from megabuild.engine.logs import ScriptKind, ScriptLine
from megabuild.run import build_output
from megabuild.run.build_output import BuildStep, Parser, StepKind


def line(
    text: str, *, kind: ScriptKind = ScriptKind.BUILD, package: str = "", build: str = "", python: str = ""
) -> ScriptLine:
    return ScriptLine(kind=kind, package=PackageId(package, "1", build), python=python, text=text)


def feed(parser: Parser, *lines: ScriptLine) -> list[BuildStep]:
    return [step for one in lines for step in parser.feed(one)]


def test_a_ninja_line_is_progress_of_the_phase_before_and_what_only_looks_like_one_is_none() -> None:
    parser = Parser()
    feed(parser, line("::megabuild:: phase compile"))
    found = feed(parser, line("[12/1374 34.5s] Building CXX object a.o"))
    assert found == [BuildStep(kind=StepKind.COUNT, phase="compile", done=12, total=1374)]
    alike = (
        "[12/1374] Building",
        "x [1/2 3s] y",
        "[1/2 3s]",
        "echo '::megabuild:: phase x'",
        "+ ::megabuild:: phase x",
    )
    assert not feed(parser, *map(line, alike))


def test_scripts_are_told_apart_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(build_output, "monotonic", clock)
    parser = Parser()
    build = "cpu_py312_h0_0"
    library = PackageId("libtorch", "1", "cpu_h0_0")
    pytorch, other = PackageId("pytorch", "1", build), PackageId("pytorch", "1", "cpu_py311_h0_0")

    def seconds_of(one: PackageId) -> float:
        return parser.seconds_of(one, with_staging=one is library)

    found = feed(parser, line("compile"))
    clock.now += 30
    assert (seconds_of(library), seconds_of(pytorch)) == (30, 0), "libtorch is the compile's package"
    found += feed(parser, line("a", package="pytorch", build=build, python="3.12"))
    clock.now += 5
    found += feed(parser, line("b", package="pytorch", build=build, python="3.12"))
    assert parser.staging_seconds == 30
    assert (seconds_of(library), seconds_of(pytorch), seconds_of(other)) == (30, 5, 0)
    feed(parser, line("it works", kind=ScriptKind.TEST, package="libtorch"))
    clock.now += 100
    assert seconds_of(pytorch) == 0, "another package's test is not its time"
    feed(parser, line("install", package="libtorch", build="cpu_h0_0"))
    clock.now += 2
    assert seconds_of(library) == 32
    assert found == [
        BuildStep(kind=StepKind.PHASE, phase="staging"),
        BuildStep(kind=StepKind.PACKAGE, package="pytorch", python="3.12"),
    ]


def test_the_scripts_of_one_package_s_test_are_one_test() -> None:
    found = feed(
        Parser(),
        line("import torch", kind=ScriptKind.TEST, package="pytorch"),
        line("python x.py", kind=ScriptKind.TEST, package="pytorch", build="cpu_py312_h0_0"),
    )
    assert found == [BuildStep(kind=StepKind.TEST, package="pytorch")]


def test_swaps_are_told_and_kept() -> None:
    parser = Parser()
    with kept_sentences() as kept:
        feed(
            parser,
            line("::megabuild:: swap from=3.12 to=3.11 steps=163 core=0"),
            line("::megabuild:: swap to=3.11 steps=many core=0"),
        )
    (sentence,) = kept
    assert re.findall(r"[\d.]+", sentence.getMessage()) == ["3.12", "3.11", "163", "0"]
    assert parser.swaps == {"3.11": {"steps": 163, "core": 0}}
