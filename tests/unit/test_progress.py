"""Phases of build scripts, and ninja's counters in them."""

from __future__ import annotations

import pytest

from groundwork.progress import Phases, Preparing, Step, preparing, title


def test_a_new_phase_resets_the_counters() -> None:
    phases = Phases()
    said = """\
::megabuild:: phase compile
[1/2 30.0s _knn_cpu of 5] c++
[1/3 30.0s _fps_cpu of 5] c++
::megabuild:: phase install now
[1/2 1.0s _fps_cpu of 5] c++
::megabuild:: swap to=3.12"""
    steps = [phases.feed(line) for line in said.splitlines()]
    assert steps == [
        Step(phase="compile"),
        Step(phase="compile", done=1, total=5),
        Step(phase="compile", done=2, total=5),
        Step(phase="install"),
        Step(phase="install", done=1, total=5),
        None,
    ]
    assert Phases().feed("[1/2 1.0s] c++") == Step(phase="", done=1, total=2)
    assert title("pytorch", "3.12", "python").startswith("pytorch 3.12: Python")


@pytest.mark.parametrize("total", [0, 2])
def test_a_step_ends_once_whether_it_counts_or_not(total: int) -> None:
    reports: list[str | Preparing] = []
    with preparing(reports.append, "packing", total=total) as advance:
        for done in range(1, total + 1):
            advance(done)
    ends = [report for report in reports if isinstance(report, Preparing) and report.has_ended]
    assert ends == reports[-1:] == [Preparing(what="packing", done=total or 1, total=total or 1)]


@pytest.mark.parametrize("total", [0, 2])
def test_a_step_that_fails_ends_too(total: int) -> None:
    reports: list[str | Preparing] = []
    with pytest.raises(OSError, match="full"), preparing(reports.append, "packing", total=total):
        raise OSError("full")
    assert reports[1:] == [Preparing(what="packing", total=total, has_failed=True)]
