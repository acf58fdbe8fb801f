"""Runs of the tiny megabuild that have to end by a time, and go on afterwards."""

from __future__ import annotations

import time

import pytest
from tiny import Tiny

from groundwork.errors import DeadlineError
from groundwork.interrupts import Deadline
from megabuild.engine.supervisor import strays
from megabuild.status import record as state_file

#: Ending compilers takes two seconds of grace at most, and three more where they do not follow; twice that when busy.
PROMPT_SECONDS = 10.0


def until_deadline(tiny: Tiny, seconds: float) -> DeadlineError:
    """Run until it has come; check that the run ends soon."""
    end = time.monotonic() + seconds
    with pytest.raises(DeadlineError) as raised:
        tiny.run(deadline=Deadline(text="1h", stop_at=end))
    assert time.monotonic() < end + PROMPT_SECONDS
    assert not strays(tiny.options().state)
    state = state_file.read(tiny.options().state)
    assert state is not None
    assert (state.status, state.exit_code) == ("interrupted", 28)
    return raised.value


def test_it_ends_in_time_and_the_next_run_goes_on_from_there(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tiny.options().state / "tree" / "build"
    monkeypatch.setenv("TINY_SECONDS", "1")
    error = until_deadline(tiny, 6.0)
    assert error.message.startswith("deadline 1h reached ")
    assert "same command" in error.remedy
    objects = {path.name: path.stat().st_mtime_ns for path in tree.glob("*.o")}
    monkeypatch.setenv("TINY_SECONDS", "0")
    assert tiny.run().ok
    assert {name: (tree / name).stat().st_mtime_ns for name in objects} == objects, "none was compiled again"
    if objects:
        assert [decided for decided, _ in tiny.decisions()] == ["resume"]


def test_one_that_has_passed_ends_it_before_anything_is_compiled(tiny: Tiny) -> None:
    until_deadline(tiny, -1.0)
    assert not list(tiny.options().state.glob("tree/build/*.o"))
