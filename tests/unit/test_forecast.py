"""The time left: against what it really was, in runs that took place, and in the cases in which it was wrong.

``rehearsal-a`` and ``rehearsal-b`` are `linux_64_cpu --rehearse` of two Pythons, with two jobs on two cores and nothing
from an object cache; a at load 7 got two fifths of the cores, b at load 7 to 9 a third.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import replaying

from groundwork import events
from groundwork.package_id import PackageId
from groundwork.run_state import InFlight
from megabuild.forecast import learning, shipped
from megabuild.forecast.forecast import Forecast
from megabuild.forecast.known import Known
from megabuild.forecast.outline import COMPILE, Outline, Package, cost
from megabuild.forecast.share import Share
from megabuild.forecast.steps import is_unheard_of

RUNS = Path(__file__).parent.parent / "data/runs"
A, B = (replaying.read(RUNS / f"rehearsal-{name}.tsv.gz") for name in "ab")
LIBRARY = PackageId("libtorch", "1", "h0_0")
TODO = Outline(packages=(Package(name="libtorch", label=LIBRARY.label),), staged=True, jobs=2, cores=2)
STEPS = {"a.o": 100.0, "b.o": 10.0, "c.o": 10.0, "d.o": 10.0, "lib.so": 5.0}
KNOWN = Known(
    phases={
        "start": 5.0,
        "staging configure": 20.0,
        COMPILE: 0.0,
        "staging install": 10.0,
        "test libtorch": 30.0,
    },
    steps=STEPS,
    order={COMPILE: list(STEPS)},
    measured=True,
)


def learned(happened: replaying.Happened) -> Known:
    played = replaying.play(happened, replaying.outline(happened), Known())
    return learning.learned(Known(), played.forecast, compiled={}, logged={})


PAIRS = pytest.mark.parametrize(
    ("before", "then"), list(itertools.product((A, B), repeat=2)), ids=["aa", "ab", "ba", "bb"]
)


def said_for_true(then: replaying.Happened, known: Known) -> list[float]:
    """Return what was said of a run, divided by what was true, with a quarter, half and three quarters of it done."""
    played = replaying.play(then, replaying.outline(then), known)
    return [said.likely / true for true, said in map(played.at, (0.25, 0.5, 0.75))]


@PAIRS
def test_where_the_load_stays_as_it_is_a_quarter_is_enough(
    before: replaying.Happened, then: replaying.Happened
) -> None:
    known = learned(replaying.steady(before))
    assert all(0.75 <= round(ratio, 2) <= 1.25 for ratio in said_for_true(replaying.steady(then), known))


@PAIRS
def test_a_machine_that_gives_half_of_itself_and_does_not_say_so_is_found_out(
    before: replaying.Happened, then: replaying.Happened
) -> None:
    known = learned(replaying.steady(before))
    ratios = said_for_true(replaying.steady(then, slower=2.0), known)
    assert all(1 / 1.4 < ratio < 1.4 for ratio in ratios)


@PAIRS
def test_where_the_load_is_known_and_changes_it_is_not_far_off(
    before: replaying.Happened, then: replaying.Happened
) -> None:
    known = learned(replaying.steady(before))
    assert all(1 / 1.7 < ratio < 1.7 for ratio in said_for_true(then, known))
    played = replaying.play(then, replaying.outline(then), known)
    inside = [said.earliest <= played.seconds - when <= said.latest for when, said in played.said]
    assert sum(inside) / len(inside) > 0.55


@pytest.mark.parametrize("happened", [A, B], ids="ab")
def test_the_first_plan_is_good_to_a_half(happened: replaying.Happened) -> None:
    took = replaying.steady(happened)[-1][0]
    planned = cost(replaying.outline(happened), shipped.known("rehearsal")).seconds
    assert 1 / 1.5 < planned / took < 1.5


@pytest.mark.parametrize("happened", [A, B], ids="ab")
def test_what_is_shown_counts_down_and_its_range_narrows(happened: replaying.Happened) -> None:
    played = replaying.play(
        replaying.steady(happened), replaying.outline(happened), shipped.known("rehearsal")
    )
    assert all(left.earliest <= left.likely <= left.latest for _, left in played.said)
    assert all(0 <= left.done <= 1 for _, left in played.said)
    assert [left.done for _, left in played.said] == sorted(left.done for _, left in played.said)
    wide = [left.latest - left.earliest for _, left in played.said]
    fifth = len(wide) // 5
    assert max(wide[-fifth:]) < min(wide[:fifth])
    record = played.forecast.record
    assert 20 < len(record) < 200
    assert [row[0] for row in record] == sorted(row[0] for row in record)


class Run:
    """A forecast with a clock that is set."""

    def __init__(self, known: Known = KNOWN, todo: Outline = TODO, share: Share | None = None) -> None:
        self.now = 0.0
        self.forecast = Forecast(todo, known, clock=lambda: self.now, own_clock=lambda: 0.0, share=share)

    def at(self, now: float, *happened: events.Event) -> float:
        """Let something happen; return the seconds that are likely to be left."""
        self.now = now
        for event in happened:
            self.forecast.take(event)
        left = self.forecast.left()
        return left.likely if left else 0.0


def phase(name: str) -> events.Event:
    return events.PhaseStarted(phase=name, package="staging")


def step(done: int, seconds: float, name: str, total: int = 5) -> events.Event:
    return events.Progress(
        phase="compile",
        package="staging",
        done=done,
        total=total,
        seconds=seconds,
        eta_seconds=None,
        step_name=name,
    )


def test_the_long_last_object_and_the_test_count() -> None:
    run = Run()
    # a.o has a core of its own for 100 s; install and the test come after it
    assert run.at(0.0) == pytest.approx(5 + 20 + 100 + 2.5 + 10 + 30, abs=5)
    run.at(5.0, phase("configure"))
    run.at(25.0, phase("compile"))
    assert run.at(36.0, step(1, 10.0, "b.o")) == pytest.approx(90 + 10 + 30, abs=8)
    before = run.at(37.0)
    assert run.at(47.0) == pytest.approx(before - 10, abs=1)  # it counts down while nothing happens


def test_what_takes_longer_than_expected_still_takes_a_while() -> None:
    run = Run()
    run.at(5.0, phase("configure"))
    assert run.at(1000.0) > 155


def test_a_resumed_compile_is_as_long_as_ninja_says() -> None:
    run = Run()
    run.at(5.0, phase("configure"))
    run.at(25.0, phase("compile"))
    left = run.at(35.0, step(1, 10.0, "d.o", total=2))  # lib.so is left
    assert left == pytest.approx(5 + 10 + 30, abs=8)
    assert COMPILE not in run.forecast.steps.whole
    again = learning.learned(KNOWN, run.forecast, compiled={"d.o": 4.0}, logged={})
    assert again.order[COMPILE] == ["a.o", "b.o", "c.o", "lib.so", "d.o"]
    assert again.steps["d.o"] == pytest.approx(4.0, abs=0.1)


def test_a_bar_goes_back_where_it_was_far_from_the_truth_and_not_for_a_trifle() -> None:
    objects = {f"{number}.o": 100.0 for number in range(200)}
    all_cached = replace(KNOWN, steps=objects, order={COMPILE: list(objects)})
    run = Run(all_cached, replace(TODO, cached=True, jobs=1, cores=1))
    run.at(25.0, phase("configure"), phase("compile"))
    now, shown = 25.0, list[float]()
    for number in range(80):  # fifty of them were in the cache, and no others
        now += 0.1 if number < 50 else 100.0
        run.at(now, step(number + 1, now - 25.0, f"{number}.o", 201))
        left = run.forecast.left()
        shown.append(left.done if left else 0.0)
    assert shown[:50] == sorted(shown[:50])
    assert max(shown) > 0.8
    assert shown[-1] < 0.55, "120 objects of a hundred seconds each are left"
    backwards = [before - after for before, after in pairwise(shown) if after < before]
    assert backwards
    assert min(backwards) >= 0.1


def test_steps_that_no_run_has_come_to_are_like_those_of_them_that_were_done() -> None:
    half = replace(KNOWN, steps={"a.o": 10.0, "b.o": 10.0}, order={COMPILE: ["a.o", "b.o"]})
    todo = replace(TODO, made=("a.o", "b.o"), jobs=1, cores=1)
    run = Run(half, todo)
    run.at(25.0, phase("configure"), phase("compile"))
    for number in range(10):
        left = run.at(25.0 + 100 * (number + 1), step(number + 1, 100.0 * (number + 1), f"{number}.cu.o", 30))
    # what is known of the others, installing among them, has nothing to do with it
    assert left == pytest.approx(20 * 100 + 10 + 30, rel=0.05)
    assert not run.forecast.steps.whole
    again = learning.learned(half, run.forecast, compiled={}, logged={})
    assert cost(todo, again).seconds == pytest.approx(10 * 100 + 20 * 100, rel=0.1)
    # a run that does not come to ninja changes nothing of it, and nothing is left of the guess once they are known
    assert learning.learned(again, Run(again, todo).forecast, compiled={}, logged={}).steps == again.steps
    whole = Run(again, replace(todo, made=()))
    whole.at(25.0, phase("configure"), phase("compile"))
    for number, name in enumerate(["a.o", "b.o", *(f"{number}.cu.o" for number in range(30))]):
        whole.at(26.0 + number, step(number + 1, 1.0 + number, name, 32))
    known = learning.learned(again, whole.forecast, compiled={}, logged={})
    assert whole.forecast.steps.whole == {COMPILE}
    assert not [name for name in known.steps if "#" in name]
    assert len(known.steps) == 32


def test_ninja_counts_anew_when_its_own_graph_is_up_to_date() -> None:
    run = Run()
    run.at(5.0, phase("configure"))
    before = run.at(25.0, phase("compile")) - 1
    run.at(27.0, step(1, 2.0, "Generating sources", total=1))  # and then all of the others
    assert run.at(37.0, step(1, 12.0, "b.o", total=5)) == pytest.approx(before - 11, rel=0.15)
    assert run.forecast.steps.whole == {COMPILE}


def test_objects_of_the_cache_make_the_rest_shorter_and_leave_what_is_known_of_them() -> None:
    many = {f"{number}.o": 50.0 for number in range(200)}
    known = Known(phases=KNOWN.phases, steps=many, order={COMPILE: list(many)}, measured=True)
    run = Run(known)
    run.at(25.0, phase("configure"), phase("compile"))
    before = run.at(26.0)
    for number in range(60):
        run.at(27.0 + number / 10, step(number + 1, 1 + number / 10, f"{number}.o", total=200))
    assert run.at(40.0) < 0.2 * before
    logged = dict.fromkeys(many, 0.1)
    assert learning.learned(known, run.forecast, compiled={}, logged=logged).steps["0.o"] == 50.0


def test_what_a_killed_run_left_in_ninjas_log_is_learned_too() -> None:
    run = Run(Known())
    run.at(5.0, phase("compile"))
    run.at(16.0, step(1, 10.0, "x.o"))
    logged = {"x.o": 10.0, "old.o": 30.0, "Functions.cpp": 3.0}
    known = learning.learned(Known(), run.forecast, compiled={"x.o": 5.0}, logged=logged)
    assert known.without(is_unheard_of).steps == {
        "x.o": pytest.approx(5.03),
        "old.o": pytest.approx(15.0),
    }  # half of the core was ours


def test_objects_that_compilers_are_at_need_not_be_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    monkeypatch.setattr("time.time", lambda: 1_000_000.0 + run.now)
    run.at(25.0, phase("configure"), phase("compile"))
    flying = [InFlight(name="a.o", since=1_000_025.0), InFlight(name="d.o", since=1_000_027.0)]
    run.at(30.0, events.Measured(objects=flying))
    run.at(37.0, events.Measured(objects=flying[:1]), step(1, 11.0, "d.o"))
    assert run.forecast.steps.ran[COMPILE]["d.o"][1] == pytest.approx(10.0)
    assert set(run.forecast.steps.flying) == {"a.o"}


def test_a_machine_that_is_shared_takes_as_much_longer() -> None:
    share = Share(2, ours=lambda: 0.0, idle=lambda: 0.0)
    share.now, share.known = 0.5, True
    alone, shared = Run().at(0.0), Run(share=share).at(0.0)
    assert shared == pytest.approx(2 * alone)


def test_a_phase_that_nobody_expected_disturbs_nothing() -> None:
    run = Run()
    run.at(5.0, phase("configure"))
    before = run.at(25.0, phase("compile"))
    assert run.at(26.0, phase("something-else")) == pytest.approx(10 + 30, abs=3)
    assert before > 100


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert Run(Known()).forecast.left() is None


def test_extensions_count_by_what_is_left_of_them() -> None:
    run = Run(todo=Outline(extensions={"x": 600.0, "y": 120.0}, jobs=2, cores=2), known=Known())
    assert run.at(0.0) == pytest.approx(360, rel=0.2)
    half = events.InTask(task="x", event=step(5, 100.0, "f.o", total=10))
    assert run.at(100.0, half) == pytest.approx(210, rel=0.2)
    assert run.at(101.0, events.TaskEnded(task="x", status="built")) == pytest.approx(60, rel=0.2)


def test_of_a_package_that_a_former_run_has_built_only_its_test_is_expected() -> None:
    known = replace(KNOWN, phases={**KNOWN.phases, "libtorch script": 500.0})
    run = Run(known, Outline(packages=TODO.packages, jobs=2, cores=2))
    assert run.at(0.0) > 500
    assert run.at(1.0, events.TestRun(name=LIBRARY.label)) == pytest.approx(30, abs=5)
    assert run.at(11.0) == pytest.approx(20, abs=5)


def test_a_reused_libtorch_keeps_what_its_compile_took() -> None:
    run = Run(todo=Outline(packages=TODO.packages, jobs=2, cores=2))
    run.at(3.0, phase("toolchain"))
    run.at(4.0, events.PackageStarted(package=LIBRARY, python=""))
    run.at(9.0, events.PackageBuilt(package=LIBRARY, seconds=5.0))
    known = learning.learned(KNOWN, run.forecast, compiled={}, logged={})
    assert known.order == KNOWN.order
    assert known.phases["staging configure"] == 20.0
    assert known.phases["libtorch script"] == pytest.approx(5.0)
