"""Lanes, tails, and the use of one machine by several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from megabuild.status.history import Sample, Span
from megabuild.timeline.drawing import Axis, Bar, area, boxes, ticks
from megabuild.timeline.findings import idle_phases, longest_steps, longest_tails
from megabuild.timeline.lanes import put_in_lanes
from megabuild.timeline.picture import draw_pictures
from megabuild.timeline.run_facts import RunFacts, Step, StepKind
from megabuild.timeline.tails import find_tails, measure_loads
from megabuild.timeline.usage import combine_usage, use_by_phase


def step(began: float, ended: float, name: str = "x.o") -> Step:
    return Step(name=name, kind=StepKind.COMPILED, began=began, ended=ended)


def run(
    name: str = "linux_64_cpu", *, process: int = 1, steps: Sequence[Step] = (), samples: Sequence[Sample] = (),
    spans: Sequence[Span] = (), succeeded: bool = True,
) -> RunFacts:  # fmt: skip
    return RunFacts(
        name=name, began=0, ended=100, succeeded=succeeded, host="builder", process=(process, 0), cores=8,
        memory=10, spans=spans, steps=steps, samples=samples, gaps=[],
    )  # fmt: skip


def test_a_lane_has_no_two_steps_at_once_and_lanes_are_as_few_as_possible() -> None:
    steps = [step(0, 5), step(0, 2), step(2, 4), step(3, 9), step(5, 6)]
    assert put_in_lanes(steps) == [[steps[0], steps[4]], [steps[1], steps[2]], [steps[3]]]
    assert put_in_lanes([]) == []


def test_loads_count_running_steps() -> None:
    loads = measure_loads([step(1, 5), step(2, 4)])
    assert [(load.began, load.ended, load.running) for load in loads] == [(1, 2, 1), (2, 4, 2), (4, 5, 1)]
    assert measure_loads([]) == []


COMPILE = [step(0, 40), step(0, 50), step(50, 52), step(40, 90, "long.o"), step(90, 92, "lib.so")]


def test_a_tail_names_the_step_that_everything_waited_for() -> None:
    (tail,) = find_tails(run(steps=sorted(COMPILE, key=lambda step: step.began)))
    assert (tail.began, tail.ended, tail.jobs, tail.idle) == (52, 92, 2, 40)
    assert tail.longest.name == "long.o"


def test_each_compile_has_a_tail_of_its_own() -> None:
    again = [step(200, 210), step(200, 230, "again.o")]
    ordered = sorted([*COMPILE, *again], key=lambda step: step.began)
    assert [tail.longest.name for tail in find_tails(run(steps=ordered))] == ["long.o", "again.o"]
    cut = run(steps=ordered, succeeded=False)
    assert [tail.longest.name for tail in find_tails(cut)] == ["long.o"], "the last compile was cut"


def test_one_job_and_short_tails_are_no_finding() -> None:
    assert not list(find_tails(run(steps=[step(0, 9), step(9, 60)])))
    assert not list(find_tails(run(steps=[step(0, 9), step(0, 12)])))
    assert not list(find_tails(run()))


def sample(at: float, cores: float, others: float = 0.0, seconds: float = 10.0) -> Sample:
    return Sample(at=at, seconds=seconds, cores=cores, other_cores=others, memory=3)


def test_runs_of_one_process_measure_the_same_once() -> None:
    first = run("a", samples=[sample(10, 4), sample(20, 4)])
    second = run("b", samples=[sample(15, 4), sample(25, 4)])
    usage = combine_usage([first, second])
    assert usage is not None
    assert usage.used_core_seconds == pytest.approx(4 * 25)
    assert usage.core_seconds == pytest.approx(8 * 25)
    assert usage.idle_core_seconds == pytest.approx(4 * 25)


def test_processes_add_up_and_are_no_other_programs_to_each_other() -> None:
    first = run("a", process=1, samples=[sample(10, 2, others=3)])
    second = run("b", process=2, samples=[sample(10, 2, others=3)])
    usage = combine_usage([first, second])
    assert usage is not None
    (stretch,) = usage.stretches
    assert (stretch.cores, stretch.other_cores, stretch.memory) == (4, 1, 6)
    assert usage.idle(stretch) == 3


def test_idle_cores_are_those_of_the_main_phase() -> None:
    spans = [
        Span(task="test", what="testing libtorch", began=0, ended=100),
        Span(task="pytorch", what="libtorch: install", began=5, ended=20),
    ]
    facts = run(samples=[sample(10, 1), sample(20, 1), sample(30, 8), sample(110, 8)], spans=spans)
    usage = combine_usage([facts])
    assert usage is not None
    uses = {use.name: (use.seconds, use.used, use.idle) for use in use_by_phase(usage, [facts])}
    assert uses["libtorch: install"] == pytest.approx((20, 20, 140))
    assert uses["testing libtorch"] == pytest.approx((10, 80, 0))
    assert uses["no phase"] == pytest.approx((10, 80, 0))


def test_the_longest_steps_and_tails_of_all_runs_are_listed_with_their_run() -> None:
    runs = [run("a", steps=[step(0, 3, "short.o")]), run("b", steps=[step(5, 14, "long.o")])]
    steps = [(row.run, row.step.name, row.after) for row in longest_steps(runs, 0.0)]
    assert steps == [("b", "long.o", 5), ("a", "short.o", 0)]
    ordered = sorted(COMPILE, key=lambda step: step.began)
    runs = [run("a", steps=ordered), run("b", steps=[*ordered, step(92, 192, "last.o")])]
    assert [row.run for row in longest_tails(runs)] == ["b", "a"]


def test_cores_that_ninjas_steps_leave_are_no_idle_ones_of_a_phase() -> None:
    """Without samples, nothing is known of phases without steps."""
    phases = [Span(task="pytorch", what="libtorch: compile", began=0, ended=100)]
    known = run(steps=COMPILE, spans=phases)
    usage = combine_usage([known])
    assert usage is not None
    assert not idle_phases([(usage, [known])])
    assert idle_phases([(replace(usage, measured=True), [known])])


@pytest.mark.parametrize(
    ("times", "pictures"),
    [
        ([(0, 9000), (10, 20), (5000, 6000)], [["0", "1", "2"]]),
        ([(0, 100), (1000, 1100), (2001, 2100)], [["0", "1"], ["2"]]),
        ([(5000, 6000), (0, 100)], [["1"], ["0"]]),
    ],
)
def test_runs_that_overlap_or_follow_each_other_soon_share_a_picture(
    times: Sequence[tuple[float, float]], pictures: list[list[str]]
) -> None:
    runs = []
    for number, (began, ended) in enumerate(times):
        runs.append(replace(run(str(number)), began=began, ended=ended))
    results = {str(number): [f"result of {number}"] for number in range(len(times))}
    drawn = draw_pictures(runs, results)
    assert [[strip.name for strip in picture.runs] for picture in drawn] == pictures
    for picture in drawn:
        assert all(strip.result == [f"result of {strip.name}"] for strip in picture.runs)


def test_each_machine_of_a_picture_has_a_strip_of_its_own() -> None:
    first = run("a", samples=[sample(10, 2)])
    second = replace(run("b", samples=[sample(10, 6)]), host="another")
    (picture,) = draw_pictures([first, second], {"a": [], "b": []})
    assert [(strip.host, strip.used_share) for strip in picture.cores] == [
        ("builder", 0.25),
        ("another", 0.75),
    ]


def test_the_longest_steps_of_a_run_have_titles_and_the_most_idle_tail_a_label() -> None:
    short = [step(at, at + 1, f"{at}.o") for at in range(40)]
    again = [step(100, 110), step(100, 115, "again.o")]
    ordered = sorted([*short, *COMPILE, *again], key=lambda step: step.began)
    (picture,) = draw_pictures([replace(run(steps=ordered), ended=200)], {"linux_64_cpu": []})
    (strip,) = picture.runs
    titled = {block.title.partition(":")[0] for block in strip.longest}
    assert len(strip.longest) == 30
    assert titled >= {"long.o", "lib.so", "again.o"}
    assert [label.text for label in strip.labels] == ["long.o 50 s"]
    assert len(strip.tails) == 2


def test_without_samples_and_steps_there_is_no_use() -> None:
    assert combine_usage([run()]) is None


def test_an_area_has_gaps_where_nothing_is_known() -> None:
    axis = Axis(began=0, ended=100)
    bars = [
        Bar(began=0, ended=10, height=0.5),
        Bar(began=10, ended=20, height=1),
        Bar(began=50, ended=60, height=9),
    ]
    assert area(axis, bars, 100) == "M0 100V50H100V0H200V100ZM500 100V0H600V100Z"
    assert area(axis, [], 100) == ""


def test_narrow_neighbours_are_one_box_and_wide_ones_stay_apart() -> None:
    axis = Axis(began=0, ended=10_000)
    narrow = [step(at, at + 1) for at in range(0, 500, 2)]
    assert len(list(boxes(axis, narrow, top=0, height=9, finest=0.4))) == 1
    wide = [step(at, at + 99) for at in range(0, 500, 100)]
    assert len(list(boxes(axis, wide, top=0, height=9, finest=0.4))) == 5


@pytest.mark.parametrize("length", [1, 1.5, 59, 3600, 86400, 1e8, 1e9])
def test_an_axis_has_few_marks_at_round_times(length: float) -> None:
    marks = list(ticks(Axis(began=5, ended=5 + length)))
    assert 1 <= len(marks) <= 9
    assert marks[0].left == 0
    assert marks[-1].left <= 100
