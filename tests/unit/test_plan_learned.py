"""Estimates that learn: what a whole run took is what the next plan says, and what was resumed is not."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groundwork.resources.jobs import Jobs
from megabuild.configs.config import load
from megabuild.configs.render import render
from megabuild.plan import past_runs
from megabuild.plan.estimate import Estimate
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.options import Options
from megabuild.plan.past_runs import Taken
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.tree_reuse import Decision
from megabuild.providers.environment import Environment
from megabuild.run.summary import PackageResult, Summary
from megabuild.run.usage_meter import Meter

GUESS = Estimate(
    disk=4 * 10**9, memory_per_job=17 * 10**8, cpu_hours=4.0, hours=2.0, basis="measured elsewhere"
)
TAKEN = Taken(jobs=2, pythons=2, staging=600, python=120, rest=60, cores=1.8, memory=10**9, disk=2 * 10**9)


@pytest.fixture
def options(repository: Path, tmp_path: Path) -> Options:
    return Options(
        config=load(repository, "linux_64_cpu_debian"), root=repository, output=tmp_path, cache=tmp_path
    )


def _read(options: Options) -> tuple[Taken | None, list[str]]:
    said: list[str] = []
    return past_runs.read(options, said.append), said


def test_what_is_kept_is_found_for_the_same_question_only(options: Options) -> None:
    assert _read(options) == (None, [])
    past_runs.keep(options, TAKEN)
    past_runs.keep(replace(options, optimization="0"), replace(TAKEN, staging=300))
    assert _read(options) == (TAKEN, [])
    assert _read(replace(options, arch_list="9.0")) == (None, [])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"x": 1}', '{"x": {"jobs": "two"}}'])
def test_a_damaged_file_is_told_of_and_replaced(options: Options, text: str) -> None:
    (options.cache / "estimates.json").write_text(text)
    found, (said,) = _read(options)
    assert found is None
    assert "estimates.json is damaged" in said
    past_runs.keep(options, TAKEN)
    assert _read(options) == (TAKEN, [])


def test_an_estimate_goes_by_the_last_run_and_by_what_is_left_to_do() -> None:
    whole = past_runs.better(GUESS, TAKEN, staging=True, pythons=2, jobs=2)
    assert whole.hours * 3600 == pytest.approx(600 + 2 * 120 + 60)
    assert whole.cpu_hours == pytest.approx(1.8 * whole.hours)
    assert (whole.memory_per_job, whole.disk) == (12 * 10**8, 24 * 10**8)
    assert whole.basis == "the last run here"
    rest = past_runs.better(GUESS, TAKEN, staging=False, pythons=1, jobs=4)
    assert rest.hours * 3600 == pytest.approx(120 / 2 + 60)
    more = past_runs.better(GUESS, TAKEN, staging=True, pythons=3, jobs=2)
    assert more.disk == GUESS.disk
    assert past_runs.better(GUESS, None, staging=True, pythons=2, jobs=2) == GUESS
    assert past_runs.better(GUESS, TAKEN, staging=False, pythons=0, jobs=2) == GUESS


def _compared(options: Options, *, blind: bool = False, **changes: Any) -> Summary:
    """End a run over a plan with everything missing, with a summary that differs from a good one."""
    packages = [one for one in render(options.config, options.recipe) if not one.skipped]
    plan = Plan(
        options=options,
        items=tuple(PlanItem(package=package) for package in packages),
        left_out={},
        environment=Environment(channels=(), pythons=()),
        staging=Fingerprint(),
        staging_decision=Decision(decision="fresh", reasons=()),
        estimate=GUESS,
        jobs=Jobs(count=2, reason=""),
    )
    rows = tuple(PackageResult(package=one.id, status="built", seconds=30.0) for one in packages)
    summary = Summary(
        ok=True, config="x", packages=rows, seconds=100.0, log=Path("log"), channel=Path("channel"),
        staging="fresh", staging_seconds=50.0,
    )  # fmt: skip
    meter = Meter()
    meter.blind = blind
    subprocess.run([sys.executable, "-c", "sum(range(10**6)); bytes(200_000_000)"], check=True)
    meter.pytorch_is_done()
    return meter.compared(plan, replace(summary, **changes))


def test_a_whole_run_is_compared_and_remembered(options: Options) -> None:
    summary = _compared(options)
    assert (summary.estimated_seconds, summary.estimated_memory) == (7200.0, 17 * 10**8)
    found, _ = _read(options)
    assert found is not None
    assert (found.jobs, found.pythons, found.staging, found.python) == (2, 4, 50.0, 30.0)
    assert found.cores > 0


def test_what_runs_in_a_container_is_not_measured_by_its_client(options: Options) -> None:
    assert _compared(options, blind=True).memory == 0
    found, _ = _read(options)
    assert found is not None
    assert (found.memory, found.cores) == (0, 0.0)
    assert (
        past_runs.better(GUESS, found, staging=True, pythons=1, jobs=2).memory_per_job == GUESS.memory_per_job
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"ok": False},
        {"staging": "resume"},
        {"staging": "reuse"},
        {"reused": {"ccache": 7}},
        {"reused": {"tree": 7}},
    ],
)
def test_what_was_not_done_as_a_whole_is_not_taken_for_it(options: Options, changes: dict[str, Any]) -> None:
    assert _compared(options, **changes).estimated_seconds == 0
    assert _read(options) == (None, [])
