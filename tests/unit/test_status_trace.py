"""The trace of a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

from megabuild.status.status import Span
from megabuild.status.trace import ninja_steps, slowest, write_trace

BEGAN = 1_800_000_000.0
EVIL = "<script>alert(1)</script>\"' onload=x"


def log_line(start: int, end: int, date: float, name: str, digest: str = "ab") -> str:
    return f"{start}\t{end}\t{int(date * 1e9)}\t{name}\t{digest}"


def test_ninja_s_log_gives_the_steps_of_this_run_and_nothing_that_is_no_step(tmp_path: Path) -> None:
    lines = [
        "# ninja log v7",
        log_line(0, 9000, BEGAN + 9, "a.o"),
        log_line(0, 9000, BEGAN + 9, "a.d"),  # the same step's
        log_line(1000, 4000, BEGAN + 4, f"{EVIL}\x1b[2J", "cd"),
        log_line(0, 5000, BEGAN - 50, "of_another_run.o"),
        "x\ty\tz\tnumbers\tab",
        "1\t2",
        log_line(5000, 1000, BEGAN + 9, "backwards.o"),
    ]
    (tmp_path / ".ninja_log").write_text("\n".join(lines))
    steps = ninja_steps(tmp_path, BEGAN)
    assert [round(step.end - step.start) for step in steps] == [9, 3]
    assert "\x1b" not in steps[1].what
    assert slowest(steps, 1) == {"a.o": 9.0}
    assert ninja_steps(tmp_path / "none", BEGAN) == []
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / ".ninja_log")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("pipe", "link"):
        assert ninja_steps(tmp_path / name, BEGAN) == [], "a build made it"


def test_the_trace_has_a_lane_for_every_task_and_rows_of_ninja_s_steps(tmp_path: Path) -> None:
    spans = [Span("pytorch", EVIL, BEGAN + 1, BEGAN + 9), Span("test a", "testing a", BEGAN + 9, BEGAN + 10)]
    steps = [Span("ninja", "a.o", BEGAN + 1, BEGAN + 4), Span("ninja", "b.o", BEGAN + 2, BEGAN + 3)]
    write_trace(tmp_path / "trace.json", spans, steps, BEGAN)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == [
        "pytorch", "test a", "ninja 1", "ninja 2",
    ]  # fmt: skip
    (step,) = (event for event in events if event["name"] == "a.o")
    assert (step["ts"], step["dur"]) == (1_000_000, 3_000_000)
