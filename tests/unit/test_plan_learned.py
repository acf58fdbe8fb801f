"""Estimates that learn: every run adds to what the next plan says, however far it came and whatever a cache had."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groundwork import events
from groundwork.resources.jobs import Jobs
from megabuild.configs.config import load
from megabuild.configs.render import render
from megabuild.engine.compiler_gate import NOTES
from megabuild.forecast import known as store
from megabuild.forecast.forecast import Forecast
from megabuild.forecast.known import Known
from megabuild.forecast.outline import COMPILE
from megabuild.plan import expected
from megabuild.plan.estimate import Estimate
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.tree_reuse import Decision
from megabuild.providers.environment import Environment
from megabuild.run.summary import PackageResult, Summary
from megabuild.run.usage_meter import Meter

GUESS = Estimate(
    disk=4 * 10**9,
    memory_per_job=17 * 10**8,
    cpu_hours=4.0,
    hours=2.0,
    hours_at_load=2.0,
    basis="measured elsewhere",
)
KNOWN = Known(
    phases={"start": 60.0, COMPILE: 0.0, "pytorch script": 120.0},
    steps={"a.o": 400.0, "b.o": 200.0},
    order={COMPILE: ["a.o", "b.o"]},
    memory=10**9,
    disk=2 * 10**9,
    pythons=9,
    measured=True,
)


@pytest.fixture
def options(repository: Path, tmp_path: Path) -> Options:
    return Options(
        config=load(repository, "linux_64_cpu_debian"), root=repository, output=tmp_path, cache=tmp_path
    )


def a_plan(options: Options, known: Known = KNOWN, decision: str = "fresh") -> Plan:
    packages = [one for one in render(options.config, options.recipe) if not one.skipped]
    return Plan(
        options=options,
        items=tuple(PlanItem(package=package) for package in packages),
        left_out={},
        environment=Environment(channels=(), pythons=()),
        staging=Fingerprint(dependency={"place": "here", "x": "1"}),
        staging_decision=Decision(decision=decision, reasons=()),
        estimate=GUESS,
        known=known,
        jobs=Jobs(count=2, reason=""),
    )


def _read(options: Options) -> tuple[Known, list[str]]:
    said: list[str] = []
    return expected.read(a_plan(options), said.append), said


def test_what_is_kept_is_found_for_the_config_and_then_for_its_kind(options: Options) -> None:
    assert not _read(options)[0].measured
    store.keep(options.cache, expected.names(a_plan(options)), KNOWN)
    assert _read(options) == (KNOWN, [])
    others = replace(options, torch="2.6.1")
    assert _read(others) == (KNOWN, [])  # of the same kind
    store.keep(options.cache, [others.key], replace(KNOWN, memory=1))
    assert _read(others)[0].memory == 1
    assert _read(options)[0].memory == 10**9


@pytest.mark.parametrize("text", ["", "{", "[]", '{"phases": 1}', '{"steps": {"a.o": "two"}}'])
def test_a_damaged_file_is_told_of_and_replaced(options: Options, text: str) -> None:
    path = options.cache / "forecast" / f"{options.key}.json"
    path.parent.mkdir()
    path.write_text(text)
    found, (said,) = _read(options)
    assert not found.measured
    assert f"{path} is damaged" in said
    store.keep(options.cache, [options.key], KNOWN)
    assert _read(options) == (KNOWN, [])


def test_an_estimate_goes_by_what_is_known_and_by_what_is_left_to_do(options: Options) -> None:
    plan = a_plan(options)
    whole = expected.with_time(plan, GUESS)
    assert whole.cpu_hours * 3600 == pytest.approx(600 + 60 + 4 * 120)
    assert whole.hours * 3600 == pytest.approx(400 + 60 + 4 * 120)
    assert (whole.memory_per_job, whole.disk) == (12 * 10**8, 24 * 10**8)
    assert whole.basis == "the last run here"
    one = replace(
        plan, items=tuple(replace(item, exists=item.package.python != "3.12") for item in plan.items)
    )
    assert expected.with_time(one, GUESS).cpu_hours * 3600 == pytest.approx(600 + 60 + 120)
    nothing = replace(plan, items=tuple(replace(item, exists=True) for item in plan.items))
    assert expected.with_time(nothing, GUESS).hours == 0
    assert expected.with_time(replace(plan, known=replace(KNOWN, pythons=1)), GUESS).disk == GUESS.disk


def test_a_compile_that_was_interrupted_costs_what_is_left_of_it(options: Options) -> None:
    tree = options.state / "tree" / "build"
    tree.mkdir(parents=True)
    (tree / ".ninja_log").write_text("# ninja log v7\n0\t5000\t17\ta.o\tabc\n")
    resumed = expected.with_time(a_plan(options, decision="resume"), GUESS)
    assert resumed.hours * 3600 == pytest.approx(200 + 60 + 4 * 120)


def _compared(options: Options, *, blind: bool = False, known: Known = KNOWN, **changes: Any) -> Summary:
    """End a run over a plan with everything missing, with a summary that differs from a good one."""
    plan = a_plan(options, known)
    rows = tuple(PackageResult(package=item.package.id, status="built", seconds=30.0) for item in plan.items)
    summary = Summary(
        ok=True, config="x", packages=rows, seconds=100.0, log=Path("log"), channel=Path("channel"),
        staging="fresh", staging_seconds=50.0,
    )  # fmt: skip
    now = 0.0
    run = Forecast(expected.outline(plan), plan.known, clock=lambda: now)
    meter = Meter()
    meter.blind = blind
    for seconds, event in [
        (30, events.PhaseStarted(phase="compile", package="staging")),
        (40, _step(1, 10.0, "a.o")),
        (45, _step(2, 15.0, "lib.so")),
        (46, events.PackageStarted(package=plan.items[0].package.id, python="")),
    ]:
        now = float(seconds)
        run.take(event)
    notes = options.state / "tmp" / NOTES
    notes.parent.mkdir(parents=True)
    notes.write_text("+ 300000000 a.o 8000\n")
    subprocess.run([sys.executable, "-c", "sum(range(10**6)); bytes(200_000_000)"], check=True)
    return meter.compared(plan, replace(summary, **changes), run)


def _step(done: int, seconds: float, name: str) -> events.Progress:
    return events.Progress(
        phase="compile",
        package="staging",
        done=done,
        total=2,
        seconds=seconds,
        eta_seconds=None,
        step_name=name,
    )


@pytest.mark.parametrize(
    "changes", [{}, {"staging": "resume"}, {"reused": {"ccache": 7}}, {"reused": {"tree": 7}}], ids=str
)
def test_whatever_was_built_is_compared_and_remembered(options: Options, changes: dict[str, Any]) -> None:
    summary = _compared(options, **changes)
    assert (summary.estimated_seconds, summary.estimated_memory) == (7200.0, 17 * 10**8)
    found, _ = _read(options)
    assert found.phases["start"] == pytest.approx((60 + 30) / 2)
    assert found.steps["a.o"] == pytest.approx(8.0, abs=0.1)  # its CPU seconds, not those on the clock
    assert found.order[COMPILE] == ["a.o", "lib.so"]


def test_a_run_that_failed_is_learned_from_and_not_compared(options: Options) -> None:
    assert _compared(options, ok=False).estimated_seconds == 0
    assert _read(options)[0].steps["a.o"] == pytest.approx(8.0, abs=0.1)


def test_what_runs_in_a_container_is_not_measured_by_its_client(options: Options) -> None:
    assert _compared(options, blind=True, known=replace(KNOWN, memory=0)).memory == 0
    assert _read(options)[0].memory == 0
