"""Phases of build scripts, and ninja's counters in them."""

from __future__ import annotations

from groundwork.progress import Phases, Step, title


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
