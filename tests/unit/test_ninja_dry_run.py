"""What ninja would run: steps traced back to build statements, targets and reasons."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from small_files import program

from cmake_python_swap.ninja_dry_run import Graph, NinjaError, Step, dry_run, reasons

needs_ninja = pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not installed")
RULES = """
rule C_COMPILER__core_unscanned_Release
  depfile = $DEP_FILE
  command = ${LAUNCHER}touch $out && : $FLAGS -c $in
  description = Building C object $out
rule C_SHARED_LIBRARY_LINKER__core_Release
  command = touch $TARGET_FILE
  description = Linking C shared library $TARGET_FILE
rule CMAKE_SYMLINK_LIBRARY
  command = touch $out
  description = Creating library symlink $out
rule CUSTOM_COMMAND
  command = $COMMAND
  description = $DESC
rule RERUN_CMAKE
  command = true
  description = Re-running CMake...
  generator = 1
"""
BUILD = """# made by a test
ninja_required_version = 1.5
top = /top
include rules.ninja

build core.dir/a.o | core.dir/a.gcno: C_COMPILER__core_unscanned_Release a.c | made.h || order.only
  FLAGS = -O2 -I$top/include
  OBJECT_DIR = some/CMakeFiles/core.dir
build core.dir/with$ blank@2.o: C_COMPILER__core_unscanned_Release a.c || order.only
  FLAGS = -O2
  OBJECT_DIR = some/CMakeFiles/core.dir
build libcore.so.1 | libcore.imp: C_SHARED_LIBRARY_LINKER__core_Release $
    core.dir/a.o core.dir/with$ blank@2.o
  OBJECT_DIR = some/CMakeFiles/core.dir
  TARGET_FILE = libcore.so.1
build libcore.so: CMAKE_SYMLINK_LIBRARY libcore.so.1
build made.h: CUSTOM_COMMAND
  COMMAND = touch made.h && echo "$$PATH" C$:
  DESC = Generating made.h
build kernel.cu.o: CUSTOM_COMMAND a.c
  COMMAND = touch kernel.cu.o
  DESC = Building NVCC (Device) object kernel.cu.o
build order.only: phony
build all: phony libcore.so kernel.cu.o
default all
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "rules.ninja").write_text(RULES)
    (tmp_path / "build.ninja").write_text(BUILD)
    (tmp_path / "a.c").touch()
    return tmp_path


def fake_ninja(folder: Path, stdout: str = "", stderr: str = "", code: int = 0) -> str:
    """A program that says what a ninja of some version said once."""
    (folder / "stdout").write_text(stdout)
    (folder / "stderr").write_text(stderr)
    return str(
        program(folder / "fake-ninja", f"cat '{folder}/stdout'; cat '{folder}/stderr' >&2; exit {code}")
    )


def test_statements_are_read_and_commands_expanded_as_ninja_does(tree: Path) -> None:
    graph = Graph(tree)
    edge = graph.by_output["libcore.so.1"]
    assert edge.outputs == ("libcore.so.1", "libcore.imp")
    assert edge.inputs == ("core.dir/a.o", "core.dir/with blank@2.o")
    assert graph.by_output["core.dir/a.o"].inputs == ("a.c", "made.h")
    assert graph.by_output["core.dir/with blank@2.o"].inputs == ("a.c",)
    assert graph.command(graph.by_output["made.h"]) == 'touch made.h && echo "$PATH" C:'
    assert graph.command(graph.by_output["core.dir/a.o"]).endswith("-O2 -I/top/include -c a.c")
    blank = graph.by_output["core.dir/with blank@2.o"]
    assert graph.description(blank) == "Building C object 'core.dir/with blank@2.o'"


@needs_ninja
def test_a_real_ninja_is_asked_and_its_steps_are_traced_to_targets_and_reasons(tree: Path) -> None:
    steps = dry_run(tree)
    assert {step.outputs[0]: (step.target, step.binary) for step in steps} == {
        "made.h": ("", False),
        "core.dir/a.o": ("core", True),
        "core.dir/with blank@2.o": ("core", True),
        "libcore.so.1": ("core", True),
        "libcore.so": ("core", True),
        "kernel.cu.o": ("", True),
    }
    assert {step.reason for step in steps if step.outputs[0] == "made.h"} == {"it does not exist"}
    subprocess.run(["ninja", "-C", tree], check=True, capture_output=True, env={**os.environ, "LAUNCHER": ""})
    for name in ("core.dir/a.gcno", "libcore.imp"):
        (tree / name).touch()
    assert dry_run(tree) == ()
    (tree / "build.ninja").write_text(BUILD.replace("-O2 -I", "-O3 -I"))
    time.sleep(0.02)
    (tree / "a.c").touch()
    why = {step.outputs[0]: step.reason for step in dry_run(tree)}
    assert "a.c" in why["core.dir/a.o"] or "command line" in why["core.dir/a.o"]
    assert why["core.dir/with blank@2.o"] == "a.c is newer"
    assert why["libcore.so"] == ""


@needs_ninja
def test_a_header_that_is_gone_is_the_reason_for_the_object(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text(
        "rule cc\n  command = touch $out && echo $out: $in kept.h gone.h > $out.d\n  description = Building $out\n"
        "  deps = gcc\n  depfile = $out.d\nbuild a.o: cc a.c\n"
    )
    for name in ("a.c", "kept.h", "gone.h"):
        (tmp_path / name).touch()
    subprocess.run(["ninja", "-C", tmp_path], check=True, capture_output=True)
    assert dry_run(tmp_path) == ()
    (tmp_path / "gone.h").unlink()
    (step,) = dry_run(tmp_path)
    assert (step.outputs, step.reason.split()[::2]) == (("a.o",), ["gone.h", "missing"])


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_explanations_are_found_on_either_stream(tree: Path, stream: str) -> None:
    explain = "ninja explain: command line changed for core.dir/a.o\nninja explain: core.dir/a.o is dirty\n"
    step = "::step::Building C object core.dir/a.o\n"
    ninja = fake_ninja(tree, explain + step) if stream == "stdout" else fake_ninja(tree, step, explain)
    expected = Step(
        "Building C object core.dir/a.o",
        ("core.dir/a.o", "core.dir/a.gcno"),
        "core",
        True,
        "its command line changed",
    )
    assert dry_run(tree, ninja=ninja) == (expected,)
    (unknown,) = dry_run(tree, ninja=fake_ninja(tree, "::step::Doing something else\n"))
    assert (unknown.binary, unknown.outputs, unknown.target) == (True, (), ""), "it counts as core"


def test_steps_with_one_description_are_traced_to_different_statements(tree: Path) -> None:
    text = BUILD.replace("DESC = Generating made.h", "DESC = Generating")
    (tree / "build.ninja").write_text(text.replace("Building NVCC (Device) object kernel.cu.o", "Generating"))
    said = "ninja explain: output kernel.cu.o doesn't exist\n::step::Generating\n::step::Generating\n"
    steps = dry_run(tree, ninja=fake_ninja(tree, said))
    assert [step.outputs for step in steps] == [("kernel.cu.o",), ("made.h",)]


@pytest.mark.parametrize("first", ["Re-running CMake...", "Re-checking globbed directories..."])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_steps_are_not_believed_if_cmake_would_run_first(first: str, place: int, tree: Path) -> None:
    """CMake may change every command line."""
    steps = ["Building C object core.dir/a.o", "Generating made.h"]
    steps.insert(place, first)
    said = "".join(f"::step::{step}\n" for step in steps)
    with pytest.raises(NinjaError, match="ninja wants to run CMake first: run `regenerate`"):
        dry_run(tree, ninja=fake_ninja(tree, said))


def test_steps_of_a_ninja_that_failed_are_not_believed(tree: Path) -> None:
    said = "::step::Building C object core.dir/a.o\n"
    with pytest.raises(NinjaError, match="no space left"):
        dry_run(tree, ninja=fake_ninja(tree, said, "ninja: fatal: no space left", code=1))


def test_ninja_prints_steps_as_they_are_read_here_whatever_the_user_set(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NINJA_STATUS", "[%f/%t] ")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    ninja = program(tree / "ninja", '[ "$LC_ALL" = C ] && echo "${NINJA_STATUS}Generating made.h"')
    (step,) = dry_run(tree, ninja=str(ninja))
    assert step.outputs == ("made.h",)


def test_the_first_reason_of_an_output_counts() -> None:
    """ninja looks no further then; later lines are consequences."""
    lines = ["command line changed for a.o", "output a.o older than most recent input y.h (1 vs 2)"]
    assert reasons(f"ninja explain: {line}" for line in lines) == {"a.o": "its command line changed"}


def test_statements_in_other_files_are_read_and_variables_expanded_in_the_file_s_scope(
    tmp_path: Path,
) -> None:
    (tmp_path / "build.ninja").write_text(
        "FLAGS = -g\nrule cc\n  command = cc $FLAGS $DEFS -c $in\ninclude one.ninja\nsubninja two.ninja\n"
    )
    (tmp_path / "one.ninja").write_text(
        "build a.o: cc a.c\n  FLAGS = $FLAGS -O2\n  DEFS = -D$OTHER\n  OTHER = X\n"
    )
    (tmp_path / "two.ninja").write_text("build b.o: cc b.c\n")
    graph = Graph(tmp_path)
    assert graph.command(graph.by_output["a.o"]) == "cc -g -O2 -D -c a.c"
    assert graph.command(graph.by_output["b.o"]) == "cc -g  -c b.c"


def test_failures_are_told_in_ninjas_words(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(NinjaError, match="multiple rules generate x"):
        dry_run(tree, ninja=fake_ninja(tree, stderr="ninja: error: multiple rules generate x", code=1))
    with pytest.raises(NinjaError, match="CMake"):
        dry_run(tree, ninja=fake_ninja(tree, "::step::Re-running CMake...\n"))
    with pytest.raises(NinjaError, match="/no/ninja"):
        dry_run(tree, ninja="/no/ninja")
    with pytest.raises(NinjaError, match=r"empty/build\.ninja"):
        dry_run(tmp_path / "empty")
    (tree / "build.ninja").write_text("build a.o cc a.c\n")
    with pytest.raises(NinjaError, match=r"not a build statement: 'a\.o cc a\.c'"):
        dry_run(tree)


@pytest.mark.parametrize(
    ("line", "output", "reason"),
    [
        ("command line changed for a.o", "a.o", "its command line changed"),
        ("command line not found in log for a.o", "a.o", "ninja has no record of how it was made"),
        ("output a b.o doesn't exist", "a b.o", "it does not exist"),
        ("output a.o older than most recent input x/y.h (12 vs 34)", "a.o", "x/y.h is newer"),
        ("restat of output a.o older than most recent input y.h (1 vs 2)", "a.o", "y.h is newer"),
        ("recorded mtime of a.o older than most recent input y.h (1 vs 2)", "a.o", "y.h is newer"),
        ("deps for 'a.o' are missing", "a.o", "ninja has no record of the headers it was made from"),
        (
            "stored deps info out of date for 'a.o' (1 vs 2)",
            "a.o",
            "ninja's record of its headers is older than the output",
        ),
        ("gone.h has no in-edge and is missing", "gone.h", "gone.h is missing"),
        ("output gone.h of phony edge with no inputs doesn't exist", "gone.h", "gone.h is missing"),
    ],
)
def test_every_explanation_of_ninja_is_put_into_words(line: str, output: str, reason: str) -> None:
    assert reasons([f"ninja explain: {line}", f"ninja explain: {output} is dirty"]) == {output: reason}
