"""Steps from lines."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from small_files import write
from tiny import Clock, kept_sentences

from cmake_python_swap.python_swap import PYTHON_TARGETS
from groundwork.names import PackageId
from megabuild.engine.logs import UNKNOWN, ScriptKind, ScriptLine
from megabuild.plan.environment_inputs import ObjectCounts
from megabuild.run import build_output
from megabuild.run.build_output import BuildStep, Parser, StepKind
from megabuild.run.ninja_log import read_ninja_log, share_of_objects


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
    _, step = feed(parser, line("[1/9 0.1s] Building CXX object b.o", package="pytorch"))
    assert (step.done, step.phase) == (1, ""), "not the phase of another script"


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
    assert not feed(parser, line("of a removed folder", package=UNKNOWN)), "it begins no script"
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


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ("files=1 objects=1 links=0 others=0 core=1", ["1 object removed"]),
        ("files=0 objects=416 links=3 others=0 core=416", ["416 objects removed"]),
        ("files=0 objects=0 links=0 others=0 core=0", []),
        ("files=1", []),
    ],
)
def test_objects_that_a_kept_tree_loses_are_told(figures: str, told: list[str]) -> None:
    with kept_sentences() as kept:
        feed(Parser(), line(f"::megabuild:: inputs {figures}"))
    assert [sentence.getMessage().partition(" from")[0] for sentence in kept] == told


def test_a_run_is_measured_by_phase_and_objects_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(build_output, "monotonic", clock)
    parser = Parser()
    feed(parser, line("a script's seconds before its first phase"))
    clock.now += 6
    seconds = {"sync": 1.0, "configure": 20.0, "compile": 100.0, "check": 3.0, "install": 4.0}
    for phase, spent in seconds.items():
        feed(parser, line(f"::megabuild:: phase {phase}"))
        if phase == "compile":
            for path in ("c10/CMakeFiles/c10.dir/a.cpp.o", "x/torch_python.dir/b.cpp.o"):
                feed(parser, line(f"[1/9 3.5s] Building CXX object {path}"))
            feed(parser, line("[3/9 3.5s] Linking CXX shared library lib/libc10.so"))
        clock.now += spent
    for python in ("3.11", "3.12"):
        feed(parser, line("x", package="pytorch", build=f"py{python}", python=python))
        clock.now += 5
        for phase in ("swap", "python"):
            for text in (
                f"::megabuild:: phase {phase}",
                "[1/9 3.5s] Building CXX object x/torch_python.dir/b.cpp.o",
            ):
                feed(parser, line(text, package="pytorch", build=f"py{python}", python=python))
            clock.now += 10
    costs = parser.costs(200.0, ObjectCounts(core=1))
    assert (costs.sync, costs.configure, costs.compile, costs.install, costs.pythons) == (7, 20, 100, 7, 50)
    assert costs.fixed == 50
    assert parser.built == {"core": 1, "bindings": 1}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[1/2 3s] Building CXX object caffe2/CMakeFiles/torch_cpu.dir/a.cpp.o", "core"),
        ("[1/2 3s] Building CXX object caffe2/CMakeFiles/torch_cpu.dir/__/torch/csrc/cuda/a.cpp.o", "core"),
        ("[1/2 3s] Building CXX object caffe2/CMakeFiles/torch_cuda.dir/a.cpp.o", "cuda"),
        ("[1/2 3s] Building CUDA object caffe2/CMakeFiles/torch_cuda.dir/a.cu.o", "kernels"),
        ("caffe2/CMakeFiles/torch_cuda_linalg.dir/a.cpp.o", "cuda"),
        ("caffe2/CMakeFiles/torch_cuda.dir/a.cu.o", "kernels"),
        ("functorch/CMakeFiles/functorch.dir/a.cpp.o", "bindings"),
        *((f"torch/CMakeFiles/{target}.dir/a.cpp.o", "bindings") for target in sorted(PYTHON_TARGETS)),
        ("lib/libtorch_cuda.so", ""),
        ("[1/2 3s] Linking CXX shared library lib/libtorch_cuda.so", ""),
    ],
)
def test_the_kind_of_an_object(text: str, kind: str) -> None:
    assert build_output.kind_of_object(text) == kind


def test_a_ninja_log_tells_how_long_objects_and_links_took(tmp_path: Path) -> None:
    lines = [
        "# ninja log v5", "0\t9000\t1\ta.dir/a.cpp.o\tx", "0\t2000\t1\ta.dir/a.cpp.o\tx",
        "1000\t5000\t1\ta.dir/b.cpp.o\tx", "0\t8000\t1\ta.dir/b.cu.o\tx",
        "0\t3000\t1\tlib/libtorch.so\tx", "0\t500\t1\tlib/libc.so.1.2\tx",
        "5\t1\t1\ttorn.dir/c.o\tx", "x\t1\t1\tc.o", "9" * 40 + "\t1\t1\tc.o\tx",
    ]  # fmt: skip
    write(tmp_path / "build/.ninja_log", "\n".join(lines))
    found = read_ninja_log(tmp_path)
    assert (found.objects, found.links) == ({"core": 2.0, "kernels": 8.0}, 3.5)
    assert read_ninja_log(tmp_path / "none").links == 0
    write(tmp_path / "tree/build/other").with_name(".ninja_log").symlink_to(tmp_path / "build/.ninja_log")
    assert read_ninja_log(tmp_path / "tree").links == 0, "a build's link out of its tree"


@pytest.mark.parametrize("missing", [".ninja_log", "build.ninja"])
@pytest.mark.parametrize("is_pipe", [True, False])
def test_of_a_tree_that_cannot_be_read_no_object_is_known(
    tmp_path: Path, missing: str, is_pipe: bool
) -> None:
    write(tmp_path / "build/build.ninja", "build a.cpp.o: CXX a.cpp\n")
    write(tmp_path / "build/.ninja_log", "# ninja log v7\n0\t1\t1\ta.cpp.o\t1\n")
    assert share_of_objects(tmp_path) == 1
    (tmp_path / "build" / missing).unlink()
    if is_pipe:
        os.mkfifo(tmp_path / "build" / missing)
    assert share_of_objects(tmp_path) == 0
