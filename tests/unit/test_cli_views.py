"""The plan, progress and summary as text and JSON."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from tiny import Tiny

from command_line import progress_display
from command_line.progress_display import Screen, moving_lines, named_lines, redraw
from groundwork.names import PackageId
from groundwork.progress import Preparing
from megabuild.plan.tree_reuse import TreeUse
from megabuild.run import summary
from megabuild.run.estimate import Estimate
from megabuild.run.outlook import Outlook
from megabuild.run.plan_report import plan_document, plan_lines
from megabuild.run.summary import PackageResult, ResultStatus, Summary
from megabuild.status import record as state_file
from megabuild.status.record import Activity, RunRecord, RunStatus
from megabuild.status.status import PHASE, Status, logger, script_lines

SHA256 = "0123456789abcdef" * 4


@pytest.fixture
def outlook(tiny: Tiny) -> Outlook:
    seen = tiny.outlook()
    plan = replace(seen.plan, left_out={"3.14": "none here"}, notes=("gcc 12 stands in for gcc 14",))
    existing = frozenset({plan.items[0].package.file_name})
    return Outlook(
        progress=replace(seen.progress, plan=plan, existing=existing),
        estimate=replace(seen.estimate, cpu_hours=68.0, hours=8.5),
    )


def a_summary(*, ok: bool = True, error: str = "") -> Summary:
    rows = [
        ("libtorch", "cuda130_mkl_h90d6e05_300", "skipped"),
        ("libtorch-cuda-linalg", "cuda130_mkl_nomagma_h408119a_300", "built"),
        ("pytorch", "cuda130_mkl_py312_he510d38_300", "built" if ok else "failed"),
    ]
    return Summary(
        ok=ok,
        config="linux_64_cuda130",
        packages=tuple(
            PackageResult(
                package=PackageId(name, "2.13.0", build), status=ResultStatus(status), size=1_234_567_890,
                sha256=SHA256, seconds=36_125.0,
            )
            for name, build, status in rows
        ),
        seconds=40_000.0,
        log=Path("/state/logs/run.log"),
        channel=Path("/output/packages/linux_64_cuda130"),
        swaps={"3.12": {"steps": 163, "core": 0}},
        error=error,
    )  # fmt: skip


def test_a_plan_lists_every_package_and_its_state(outlook: Outlook) -> None:
    plan = outlook.plan
    lines = plan_lines(outlook)
    for item in plan.items:
        (line,) = (line for line in lines if line.startswith(item.package.file_name.removesuffix(".conda")))
        assert line.endswith("exists" if item.package.file_name in outlook.progress.existing else "build")
        assert len(line) <= 80
    text = "\n".join(lines)
    assert re.search(r"! Python 3\.14 .*: none here", text)
    assert "! gcc 12 stands in for gcc 14" in text
    assert "CPU hours" in text
    assert " is built from scratch" in text
    document = json.loads(json.dumps(plan_document(outlook)))
    assert [package["exists"] for package in document["packages"]].count(True) == 1
    assert (document["config"], document["staging"]["decision"]) == (plan.options.config.name, "fresh")


def test_a_plan_without_figures_says_so_as_text_and_as_json(outlook: Outlook) -> None:
    known = plan_document(outlook)["estimate"]
    assert (known["hours"], known["cpu_hours"], known["basis"]) == (8.5, 68.0, outlook.estimate.basis)
    unknown = replace(outlook, estimate=Estimate(jobs=outlook.estimate.jobs))
    assert plan_lines(unknown)[-1].startswith("no estimate: ")
    document = plan_document(unknown)["estimate"]
    assert document.pop("basis") == ""
    assert (document.keys(), set(document.values())) == (known.keys() - {"basis"}, {None})


def test_a_plan_has_few_warnings(outlook: Outlook) -> None:
    plan = outlook.plan
    environment = replace(plan.environment, stand_ins=("cuda-nvcc", "libcublas-dev"))
    left_out = dict.fromkeys(["3.10", "3.11", "3.12", "3.14", "3.14t"], "no such interpreter here")
    plan = replace(plan, environment=environment, left_out=left_out)
    lines = plan_lines(replace(outlook, progress=replace(outlook.progress, plan=plan)))
    assert sum(line.startswith("!") for line in lines) <= 3
    assert "libcublas-dev" not in "\n".join(lines)


def test_the_closing_table_fits_80_columns_comes_last_and_names_the_failed_package() -> None:
    lines = list(replace(a_summary(), use="python3 scripts/megabuild env create").result().lines)
    assert max(map(len, lines[-4:])) <= 80
    assert lines[-4].startswith("package ")
    assert any(line.startswith("libtorch-cuda-linalg 2.13.0 nomagma") for line in lines)
    assert any(
        "pytorch 2.13.0 py3.12" in line and "0123456789ab" in line and "10:02 h" in line for line in lines
    )
    failed = list(a_summary(ok=False, error="the linker gave up").result().lines)
    assert any("✗ failed" in line for line in failed)
    assert "✗ the linker gave up" in failed
    assert any("incomplete after 11:06 h" in line for line in failed)


BUILT, SKIPPED = ResultStatus.BUILT, ResultStatus.SKIPPED


@pytest.mark.parametrize(
    ("statuses", "staging", "end"),
    [
        ((BUILT, BUILT), "fresh", "x: done in 1:40 min"),
        ((SKIPPED, SKIPPED), "reuse", "x: done in 1:40 min"),
        (
            (SKIPPED, BUILT),
            "reuse",
            "x: done in 1:40 min in this run; earlier ones built 1 package",
        ),
        (
            (BUILT, BUILT),
            "resume",
            "x: done in 1:40 min in this run; earlier ones compiled objects",
        ),
    ],
)
def test_the_time_of_a_resumed_run_is_called_its_own(
    statuses: tuple[ResultStatus, ...], staging: str, end: str
) -> None:
    rows = tuple(PackageResult(package=PackageId("a", "1", "b"), status=status) for status in statuses)
    summary = replace(a_summary(), config="x", packages=rows, seconds=100.0, staging=TreeUse(staging))
    assert end in summary.result().lines


def a_run(screen: Screen, folder: Path) -> None:
    """Report what a run reports, with ninja in the middle of a compile."""
    status = Status("linux_64_cpu", folder)
    screen.follow(status)
    with status.task("pytorch", level=PHASE) as task:
        logger.debug("run of linux_64_cpu, isolation: host")
        logger.info("checked disk: 80 GB free")
        task.phase("libtorch: configure")
        task.phase("libtorch: compile")
        for done in range(1374):
            task.advance(done, 1374)
        script_lines.info("staging: a line of the compiler")
        logger.info("✓ pytorch 2.6.0 py3.11: built in 1:01 min")
        logger.warning("little memory")
        task.advance(1374, 1374)


@pytest.mark.parametrize("verbose", [False, True])
def test_without_a_terminal_lines_are_few_and_plain(tmp_path: Path, verbose: bool) -> None:
    stream = io.StringIO()
    with Screen(Console(file=stream, soft_wrap=True), verbose=verbose) as screen:
        a_run(screen, tmp_path)
    lines = stream.getvalue().splitlines()
    assert 6 <= len(lines) <= 7
    assert all(line.startswith("[0:00:0") and line.isascii() for line in lines)
    assert ("a line of the compiler" in stream.getvalue()) == verbose
    assert "! little memory" in stream.getvalue()
    assert lines[-1].endswith("libtorch: compile 1374/1374")


def test_a_terminal_shows_the_run_and_its_phases(tmp_path: Path) -> None:
    stream = io.StringIO()
    with Screen(Console(file=stream, force_terminal=True, width=100)) as screen:
        a_run(screen, tmp_path)
    assert "linux_64_cpu: " in stream.getvalue()
    assert "libtorch: compile, 0 s" in stream.getvalue()


@pytest.mark.parametrize("width", [40, 120])
def test_the_redrawn_lines_fit_the_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    compiling = Activity(
        task="pytorch", what="libtorch: compile", since=time.time() - 100, done=812, total=1374
    )
    testing = Activity(task="test", what="testing pytorch 2.13.0 py3.12", since=time.time())
    record = RunRecord(
        config="x", status=RunStatus.BUILDING, began=time.time() - 200, activities=[compiling, testing]
    )
    lines = moving_lines(console)
    redraw(lines, named_lines(record, time.time()))
    rows = console.render_lines(lines.get_renderable(), pad=False)
    texts = ["".join(segment.text for segment in row).rstrip() for row in rows]
    assert max(map(len, texts)) <= width
    assert "3:20 min" in texts[0]
    assert "libtorch: compile" in texts[1]
    assert "1:09 min left" in (texts[2] if width == 40 else texts[1])  # folded at a word
    assert "testing pytorch 2.13.0 py3.12, 0 s" in texts


@pytest.mark.parametrize("terminal", [False, True])
def test_a_warning_is_shown_among_many_quick_lines(terminal: bool) -> None:
    stream = io.StringIO()
    with Screen(Console(file=stream, force_terminal=terminal, soft_wrap=True)) as shown:
        for text in (
            "packaged a",
            "! b was damaged in the cache",
            "packaged c",
            "! d was damaged in the cache",
        ):
            shown.note(text)
    assert "! b was damaged" in stream.getvalue()
    assert "! d was damaged" in stream.getvalue()


def test_the_seconds_of_a_step_that_reports_nothing_move_on_a_terminal() -> None:
    stream = io.StringIO()
    with Screen(Console(file=stream, force_terminal=True, soft_wrap=True)) as shown:
        shown.note("resolving six")
        time.sleep(2.3)
    assert [f"resolving six, {second} s" in stream.getvalue() for second in range(3)] == [True] * 3


def test_elsewhere_a_long_step_says_every_minute_that_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_display, "_TICK_SECONDS", 0.01)
    monkeypatch.setattr(progress_display, "_QUIET_SECONDS", 0.1)
    stream = io.StringIO()
    with Screen(Console(file=stream, soft_wrap=True)) as shown:
        shown.note(Preparing(what="packing wheels", total=3))
        shown.note(Preparing(what="packing wheels", done=2, total=3))
        time.sleep(0.4)
    first, *others = stream.getvalue().splitlines()
    assert first == "[0:00:00] packing wheels"
    assert 2 <= len(others) <= 4
    assert set(others) == {"[0:00:00] packing wheels 2/3, 0 s"}


def test_the_display_publishes_a_run_that_waits_but_none_that_has_not_begun(tmp_path: Path) -> None:
    status = Status("linux_64_cpu", tmp_path)
    status.beat()
    assert state_file.read(tmp_path) is None, "another run of the config may have the lock"
    status.publish(at_once=True)
    status.end(RunStatus.DONE, "", 0, 5.0)
    status.beat()
    found = state_file.read(tmp_path)
    assert found is not None
    assert found.updated == status.record.began + 5.0


@pytest.mark.parametrize("existed", [True, False])
def test_a_published_package_has_all_facts_of_its_record(existed: bool, tmp_path: Path) -> None:
    record = SimpleNamespace(size=3, sha256="4", seconds=5.0, path="linux-64/a.conda", is_tested=True)
    row: Any = summary._published_row(cast(Any, "a"), cast(Any, record), tmp_path, existed=existed)
    status = summary.ResultStatus.SKIPPED if existed else summary.ResultStatus.BUILT
    assert (row.package, row.status, row.size, row.sha256) == ("a", status, 3, "4")
    assert (row.path, row.seconds, row.tested) == (
        f"{tmp_path}/linux-64/a.conda",
        0.0 if existed else 5.0,
        True,
    )
