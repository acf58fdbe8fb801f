"""The step of a build that failed: its own lines, as its program printed them."""

from __future__ import annotations

from groundwork.failed_step import find_failed_step, unwrap

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
