"""Ninja's counters, and the time left."""

from __future__ import annotations

import pytest

from groundwork.events import PhaseStarted, Progress
from groundwork.progress import Eta, Phases


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_of_the_last_minutes_counts_not_that_of_the_whole_build() -> None:
    clock = Clock()
    eta = Eta(clock)
    for done in range(100):  # ten steps a second
        eta.update(done, 1000)
        clock.now += 0.1
    for done in range(100, 200):  # then one in two seconds
        left = eta.update(done, 1000)
        clock.now += 2
    assert left == pytest.approx(2 * 801, rel=0.05)


def test_there_is_no_eta_before_there_is_a_rate() -> None:
    assert Eta(Clock()).update(5, 100) is None


def test_the_eta_begins_anew_with_ninja() -> None:
    clock = Clock()
    eta = Eta(clock)
    eta.update(500, 1000)
    clock.now += 10
    assert eta.update(1, 50) is None


def test_a_new_phase_counts_anew_and_a_new_script_has_none() -> None:
    phases = Phases(Clock())
    said = (
        "::megabuild:: phase compile",
        "[1/2 30.0s _knn_cpu of 5] c++",
        "::megabuild:: phase install now",
        "[1/2 1.0s _fps_cpu of 5] c++",
        "::megabuild:: swap to=3.12",
    )
    found = [phases.feed(line, "torch_cluster", "3.12") for line in said]
    phases.script_began()
    found.append(phases.feed("[1/1 1.0s] ", "torch_cluster", "3.12"))
    assert [(type(one), one.phase, one.package, one.python) if one else None for one in found] == [
        (PhaseStarted, "compile", "torch_cluster", "3.12"),
        (Progress, "compile", "torch_cluster", "3.12"),
        (PhaseStarted, "install", "torch_cluster", "3.12"),
        (Progress, "install", "torch_cluster", "3.12"),
        None,
        (Progress, "", "torch_cluster", "3.12"),
    ]
    assert [(one.done, one.total) for one in found if isinstance(one, Progress)] == [(1, 5), (1, 5), (1, 1)]
