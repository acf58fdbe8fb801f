"""The trace of a run, and the page that is made of it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from calling import call

from command_line.run_command import Invocation
from groundwork.errors import ConfigError, IntegrityError, UsageError
from groundwork.names import PackageId
from megabuild.run.summary import PackageResult, Summary
from megabuild.status import record as state_file
from megabuild.status.record import RunRecord
from megabuild.status.status import Span
from megabuild.status.trace import SUFFIX, ninja_steps, run_page, slowest, write_trace

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A config's folder with one finished run, its names poisoned."""
    spans = [Span("pytorch", EVIL, BEGAN + 1, BEGAN + 9), Span("test a", "testing a", BEGAN + 9, BEGAN + 10)]
    steps = [Span("ninja", "a.o", BEGAN + 1, BEGAN + 4), Span("ninja", "b.o", BEGAN + 2, BEGAN + 3)]
    row = PackageResult(package=PackageId(EVIL, "1", "0"), status="built", size=9, sha256="ab" * 32)
    summary = Summary(
        ok=False, config="linux_64_cpu", packages=(row,), seconds=10.0, log=Path("x.log"), channel=Path("x"),
        error=EVIL, slowest_steps={EVIL: 12.0},
    )  # fmt: skip
    summary.write(tmp_path / "runs" / "20270101.json")
    write_trace(tmp_path / "runs" / f"20270101{SUFFIX}", spans, steps, BEGAN)
    return tmp_path


def test_the_trace_has_a_lane_for_every_task_and_rows_of_ninja_s_steps(folder: Path) -> None:
    events = json.loads((folder / "runs" / f"20270101{SUFFIX}").read_text())["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == [
        "pytorch", "test a", "ninja 1", "ninja 2",
    ]  # fmt: skip
    (step,) = (event for event in events if event["name"] == "a.o")
    assert (step["ts"], step["dur"]) == (1_000_000, 3_000_000)


def test_no_name_becomes_a_tag_of_the_page(folder: Path) -> None:
    page = run_page(folder)
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert not re.search(r"<[^>]*onload=x[^>]*\bonload", page)
    assert len(re.findall(r'class="lane"', page)) == 4
    assert "http" not in page, "one file, nothing else is loaded"


def test_the_page_has_a_time_axis_and_no_empty_lane(folder: Path) -> None:
    trace = folder / "runs" / f"20270101{SUFFIX}"
    spans = [Span("pytorch", "long", BEGAN, BEGAN + 4000), Span("test", "too short", BEGAN, BEGAN + 0.1)]
    write_trace(trace, [*spans, Span("test b", "brief", BEGAN, BEGAN + 90)], [], BEGAN)
    page = run_page(folder)
    assert re.findall('class="lane"><b title="(.*?)"', page) == ["pytorch", "test b"]
    assert ">long</i>" in page
    assert ">brief</i>" not in page, "no room for the word"
    assert re.findall(r"%\">([\d: a-z]+)</i>", page)[:4] == ["0 s", "16:40 min", "33:20 min", "50:00 min"]


def test_a_damaged_trace_is_named_and_none_is_no_page(folder: Path, tmp_path: Path) -> None:
    (folder / "runs" / f"20270101{SUFFIX}").write_text("[")
    with pytest.raises(IntegrityError, match="20270101"):
        run_page(folder)
    with pytest.raises(ConfigError):
        run_page(tmp_path / "none")


def test_the_command_writes_the_page_of_one_run(folder: Path, tmp_path: Path, invocation: Invocation) -> None:
    state_file.write(folder, RunRecord(config="linux_64_cpu", status="done", exit_code=0))
    target = tmp_path / "run.html"
    line = ["status", folder.name, "-o", str(folder.parent), "--page", str(target)]
    assert call(invocation, *line).exit_code == 0
    assert target.read_text().startswith("<!DOCTYPE html>")
    twin = folder.parent / f"{folder.name}-rehearsal"
    twin.mkdir()
    state_file.write(twin, RunRecord(config="x", status="done", exit_code=0))
    result = call(invocation, *line)
    assert result.exit_code == UsageError.exit_code
    assert twin.name in result.stderr
    nowhere = call(invocation, "status", "-o", str(tmp_path / "none"), "--page", str(target))
    assert nowhere.exit_code == ConfigError.exit_code
