"""From events to where a run stands."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from groundwork import events
from groundwork.package_id import PackageId
from groundwork.run_state import InFlight, RunState
from megabuild.plan.plan import Plan
from megabuild.state.following import Following

LIB = PackageId("libtorch", "2.13.0", "cpu_h0_0")
TORCH = PackageId("pytorch", "2.13.0", "cpu_py312_h0_0")
SCATTER = PackageId("pytorch_scatter", "2.1.2", "cpu_py312_h0_0")


def item(package: PackageId, *, exists: bool = False) -> SimpleNamespace:
    return SimpleNamespace(package=SimpleNamespace(id=package), exists=exists)


@pytest.fixture
def following(tmp_path: Path) -> Following:
    task = SimpleNamespace(name="scatter 3.12", packages=[SimpleNamespace(id=SCATTER)])
    plan = SimpleNamespace(
        options=SimpleNamespace(run_name="linux_64_cpu", state=tmp_path),
        jobs=SimpleNamespace(count=2),
        items=[item(LIB, exists=True), item(TORCH)],
        all_items=[item(LIB, exists=True), item(TORCH), item(SCATTER)],
        extensions=SimpleNamespace(tasks=[task]),
    )
    return Following(cast(Plan, plan), left=lambda: None, clock=lambda: 1000.0)


def after(following: Following, *told: events.Event) -> RunState:
    for event in told:
        following.take(event)
    return following.state()


def in_task(event: events.Event) -> events.Event:
    return events.InTask(task="scatter 3.12", event=event)


def status(state: RunState, package: PackageId) -> str:
    return state.packages[package.label]


def test_before_anything_happens_it_says_who_runs_and_what_is_there(following: Following) -> None:
    state = following.state()
    assert (state.status, state.pid, state.jobs, state.exit_code) == ("checking", os.getpid(), 2, None)
    assert [status(state, one) for one in (LIB, TORCH, SCATTER)] == ["there", "waiting", "waiting"]
    assert state.memory > 1_000_000, "of this process at least"
    assert state.disk_free > 0


def test_a_package_goes_from_built_over_tested_to_published(following: Following) -> None:
    steps: list[events.Event] = [
        events.PackageBuilt(package=TORCH, seconds=1),
        events.TestRun(name=TORCH.label),
        events.TestEnded(name=TORCH.label, seconds=1, passed=True),
        events.Published(packages=(TORCH,)),
    ]
    assert [status(after(following, step), TORCH) for step in steps] == [
        "built", "testing", "tested", "published",
    ]  # fmt: skip
    assert not following.state().going


def test_a_package_that_fails_its_test_stays_failed(following: Following) -> None:
    state = after(
        following,
        events.PackageBuilt(package=TORCH, seconds=1),
        events.TestRun(name=TORCH.label),
        events.TestEnded(name=TORCH.label, seconds=1, passed=False),
        events.PackageBuilt(package=TORCH, seconds=1),
    )
    assert status(state, TORCH) == "failed"


def test_tests_in_a_task_are_known_by_their_package_s_name(following: Following) -> None:
    state = after(
        following,
        events.TaskStarted(task="scatter 3.12"),
        in_task(events.PackageBuilt(package=SCATTER, seconds=1)),
        in_task(events.TestRun(name=SCATTER.name)),
    )
    assert status(state, SCATTER) == "testing"
    assert [going.what for going in state.going] == ["testing scatter 3.12"]
    state = after(following, events.Idle(task="scatter 3.12"))
    assert not state.going


def test_a_failed_task_fails_its_packages(following: Following) -> None:
    state = after(following, events.TaskEnded(task="scatter 3.12", status="failed", message="why"))
    assert status(state, SCATTER) == "failed"


def test_objects_in_flight_belong_to_the_step_that_goes_on(following: Following) -> None:
    phase = events.PhaseStarted(phase="compile", package="staging", python="")
    objects = (InFlight(name="a.o", since=990.0),)
    state = after(following, phase, events.Measured(objects=objects, hits=3, misses=1, disk=500))
    assert state.going[0].objects == objects
    assert (state.cache_hits, state.cache_misses, state.disk) == (3, 1, 500)
    state = after(following, in_task(events.Measured(hits=1, misses=2, disk=10)))
    assert (state.cache_hits, state.cache_misses, state.disk) == (4, 3, 510), "all tasks together"
    state = after(following, events.PhaseStarted(phase="install", package="staging", python=""))
    assert state.going[0].objects == ()


def test_in_the_end_nothing_goes_on(following: Following) -> None:
    following.take(events.PhaseStarted(phase="compile", package="staging", python=""))
    state = following.ended("failed", error="why", exit_code=8)
    assert state.ended
    assert (state.going, state.error, state.exit_code) == ((), "why", 8)


def test_a_preparation_is_counted_and_over_when_all_is_there(following: Following) -> None:
    packing = {"what": "packing wheels", "total": 3, "unit": "packages"}
    state = after(following, events.Preparing(what="packing wheels", total=3, unit="packages"))
    assert state.status == "preparing"
    state = after(following, events.Preparing(**packing, done=2))  # type: ignore[arg-type]
    assert [(one.what, one.done, one.total, one.unit) for one in state.going] == [
        ("packing wheels", 2, 3, "packages")
    ]
    state = after(following, events.Preparing(**packing, done=3))  # type: ignore[arg-type]
    assert state.going == ()


def test_after_a_package_the_next_one_s_environment_is_made_if_there_is_a_next_one(
    following: Following,
) -> None:
    following.take(events.PhaseStarted(phase="python", package="pytorch", python="3.12"))
    state = after(following, events.PackageBuilt(package=LIB, seconds=1.0))
    assert [one.what for one in state.going] == ["environment of the next package"]
    assert after(following, events.PackageBuilt(package=TORCH, seconds=1.0)).going == ()
