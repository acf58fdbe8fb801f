"""The step of a build that failed: its own lines, as its program printed them."""

from __future__ import annotations

import pytest

from groundwork.failed_step import _diagnostics, find_failed_step, unwrap

PIP = [
    "  error: subprocess-exited-with-error",
    "  ╰─> [9 lines of output]",
    "      building",
    "        --- stderr",
]


def test_a_wrapper_inside_another_one_ends_before_the_outer_one() -> None:
    lines = [
        *PIP,
        "          error: cargo's own",
        "      FAILED: [code=1] a.o",
        "      c++ -c a.cpp -o a.o",
        "      a.cpp:1:2: error: expected",
        "note: pip's own",
    ]
    assert unwrap(lines)[-5:] == [
        "  error: cargo's own",
        "FAILED: [code=1] a.o",
        "c++ -c a.cpp -o a.o",
        "a.cpp:1:2: error: expected",
        "note: pip's own",
    ]
    step = find_failed_step(lines)
    assert step is not None
    assert "a.cpp:1:2: error: expected" in step.lines


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["FAILED: [code=137] a.o", "c++ -c a.cpp"], 137),
        (["ninja: job failed with status 137: c++ -c a.cpp"], 137),
        (["c++ -c a.cpp", "make: *** [Makefile:3: a.o] Error 137"], 137),
        (["+ c++ -c a.cpp", "make: *** [Makefile:3: a.o] Error 137"], 137),
        (
            [
                "+ make",
                "+ c++ -c a.cpp",
                "a.cpp: note",
                "make[1]: *** [a.o] Error 1",
                "make: *** [all] Error 2",
            ],
            1,
        ),
        (["FAILED: a.o", "c++ -c a.cpp"], None),
        (["c++ -c a.cpp", "make: *** [Makefile:3: a.o] Killed"], None),
        (["+ c++ -c a.cpp", "Killed"], None),
    ],
)
def test_the_exit_code_is_the_one_that_the_program_reported(lines: list[str], code: int | None) -> None:
    """From 128 on it names a signal, by which a killed compiler is told from a wrong source."""
    assert find_failed_step(lines).exit_code == code


def test_json_that_is_no_list_of_errors_is_an_ordinary_line() -> None:
    """Of another program, or nested deeper than Python can read."""
    for line in (
        '[{"kind": 1}]',
        '[{"kind": "err',
        '{"version": "2.1.0", "runs"',
        '{"version": "2.1.0", "runs": 3}',
        '[{"kind": ' + "[" * 100_000,
    ):
        assert [*_diagnostics(line)] == [line]


@pytest.mark.parametrize(
    "late",
    [
        ["+ ninja -j 3 lib.so"],
        ["++ nproc", "+ ninja -j 3 lib.so"],
        ["ninja: warning: bad deps log signature or version; starting over"],
    ],
)
def test_lines_that_came_late_through_stderr_are_not_the_failed_command(late: list[str]) -> None:
    """A build's two pipes are read side by side: a line may come below later ones of the other pipe."""
    step = find_failed_step(
        ["[1/3] a.o", "FAILED: [code=1] a.o", *late, "c++ -c a.cpp", "a.cpp:1:2: error: expected"]
    )
    assert step.command == "c++ -c a.cpp"
    assert step.lines == ["a.cpp:1:2: error: expected"]


@pytest.mark.parametrize("is_ninja", [True, False], ids=["ninja", "samurai"])
def test_of_several_failed_steps_the_first_counts(is_ninja: bool) -> None:
    """With `-k`, ninja goes on: a later step may have failed for want of the first one's output."""
    lines: list[str] = []
    for name in "ab":
        command = f"c++ -c {name}.cpp"
        report = (
            [f"FAILED: [code=1] {name}.o", command]
            if is_ninja
            else [f"ninja: job failed with status 1: {command}"]
        )
        lines += [f"[1/2] {name}.o", *report, f"{name}.cpp:1:2: error: expected"]
    step = find_failed_step(lines)
    assert (step.command, step.lines) == ("c++ -c a.cpp", ["a.cpp:1:2: error: expected"])
