"""Several machines, simulated: never better than possible, and one machine is what the plan says anyway."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from groundwork.errors import UsageError
from groundwork.resources.machine import Machine
from megabuild.forecast import machines, shipped
from megabuild.forecast.machines import Machines, Work, alone, chain, distributed, predict, ways
from megabuild.forecast.outline import Outline, Package, cost, stages
from megabuild.forecast.schedule import Stretch, length
from megabuild.plan import machines as advice

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TODO = Outline(
    packages=(
        Package(name="libtorch", label="libtorch 1"),
        *(Package(name="pytorch", label=f"pytorch 1 {one}", python=one) for one in PYTHONS),
        Package(name="pytorch-cpu", label="pytorch-cpu 1"),
    ),
    staged=True,
    extensions={"pyg-lib": 600.0},
    jobs=16,
    cores=16,
)
WORKS = [
    Work(outline=TODO, known=shipped.known(kind), tree=30_000_000_000)
    for kind in ("debian-0", "official-cuda")
]
EACH = pytest.mark.parametrize("work", WORKS, ids=["debian-0", "official-cuda"])
STEPS = [float(5 + number * 7 % 40) for number in range(300)]
EIGHT = [*WORKS[:1] * 3, *WORKS[1:] * 5]


def seconds(works: Sequence[Work], count: int, cores: int = 16) -> dict[str, float]:
    return {way.name: way.seconds for way in ways(works, Machines(count=count, cores=cores))}


@EACH
@pytest.mark.parametrize("cores", [4, 16, 64])
def test_one_machine_is_the_plans_own_estimate(work: Work, cores: int) -> None:
    planned = cost(replace(work.outline, jobs=cores, cores=cores), work.known).seconds
    assert seconds([work], 1, cores)["one machine"] == planned
    assert distributed(work, Machines(count=1, cores=cores)) == planned
    assert "compiles distributed" not in seconds([work], 1, cores)


@pytest.mark.parametrize("client", [1, 2, 16])
def test_without_workers_it_is_list_scheduling(client: int) -> None:
    assert predict(STEPS, workers=0, client=client, client_share=0.5) == length(
        [Stretch(pieces=STEPS)], client
    )


@pytest.mark.parametrize(
    ("client", "workers", "local"), list(itertools.product([1, 4], [1, 2, 8, 60], [True, False]))
)
def test_a_distributed_compile_is_within_what_is_possible(client: int, workers: int, local: bool) -> None:
    found = predict(STEPS, workers=workers, client=client, client_share=0.05, transfer=0.1, local=local)
    total = sum(STEPS)
    assert found >= total / (client + workers)
    assert found >= max(STEPS)
    assert found >= 0.05 * total / client  # if it preprocesses alone
    # what list scheduling promises, of the cores that may compile
    most = total / (workers + client * local) + 0.05 * total / client + 0.1 * len(STEPS)
    assert found <= most + 2 * max(STEPS)


def test_a_link_that_is_slow_is_what_it_takes() -> None:
    assert predict(STEPS, workers=100, client=4, client_share=0.01, transfer=10.0, local=False) >= 10 * len(
        STEPS
    )
    # the client compiles in the meantime
    assert predict(STEPS, workers=100, client=4, client_share=0.01, transfer=10.0) < 10 * len(STEPS)


def test_an_object_that_is_preprocessed_alone_goes_no_faster() -> None:
    assert predict([100.0], workers=50, client_share=0.2, transfer=3.0) == 103.0


@EACH
def test_more_machines_are_never_slower_than_what_they_send(work: Work) -> None:
    objects = sum(len(stage.steps) for stage in stages(work.outline, work.known))
    sent = 8 * machines.OBJECT_BYTES / machines.BITS_PER_SECOND * objects
    longest = max(work.known.steps.values())
    rows = [seconds([work], count) for count in (1, 2, 4, 8, 16)]
    spread = [row.get("compiles distributed", row["one machine"]) for row in rows]
    links = sum(took for name, took in work.known.steps.items() if not name.endswith(".o"))
    for fewer, more in itertools.pairwise(spread):
        assert more <= fewer + sent + longest + links
    assert spread[-1] < 0.6 * spread[0]
    apart = [row["libtorch once, then Pythons side by side"] for row in rows[1:]]
    assert all(more <= fewer for fewer, more in itertools.pairwise(apart))


@EACH
def test_pythons_wait_for_libtorch_and_for_its_tree(work: Work) -> None:
    first, after = chain(work, 16)
    moved = 8 * work.tree / machines.BITS_PER_SECOND
    assert moved == 240.0
    assert len(after) == 3, "the first Python is made with libtorch"
    row = seconds([work], 16)["libtorch once, then Pythons side by side"]
    assert row == pytest.approx(first + max(after))
    libtorch = replace(
        work,
        outline=replace(
            TODO, packages=(*TODO.packages[:2], TODO.packages[-1]), extensions={"pyg-lib": 150.0}
        ),
    )
    assert first == pytest.approx(alone(libtorch, 16) + moved)


def test_configs_side_by_side_take_no_less_than_the_longest_and_no_more_than_one_after_the_other() -> None:
    name = "a machine for each config"
    alones = [alone(work, 16) for work in EIGHT]
    for count in (2, 3, 8, 16):
        found = seconds(EIGHT, count)[name]
        assert max(max(alones), sum(alones) / count) <= found + 1e-6 <= sum(alones)
    assert seconds(EIGHT, 8)[name] == pytest.approx(max(alones))
    assert name not in seconds(EIGHT[:1], 8)


def test_machines_that_are_held_are_counted_whether_they_have_work_or_not() -> None:
    found = {way.name: way for way in ways(EIGHT, Machines(count=4, cores=16))}
    assert found["compiles distributed"].machine_seconds == 4 * found["compiles distributed"].seconds
    jobs = found["a machine for each config"]
    assert jobs.machine_seconds == pytest.approx(found["one machine"].seconds)
    assert jobs.machine_seconds < 4 * jobs.seconds


def test_what_has_nothing_to_compile_gains_nothing_from_compilers() -> None:
    wheel = Work(outline=replace(TODO, extensions={}), known=shipped.known("wheel-cpu"))
    one, many = (distributed(wheel, Machines(count=count, cores=4)) for count in (1, 8))
    assert many == one > 0
    cached = replace(WORKS[0], outline=replace(TODO, cached=True))
    assert distributed(cached, Machines(count=8, cores=4)) == alone(cached, 4)


@pytest.mark.parametrize("text", ["", "0", "4x0", "x16", "4 x 16", "4x16x2", "-1", "1.5", "9999"])
def test_what_is_no_number_of_machines_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--machines is"):
        advice.machines(text)


def test_cores_are_this_machines_unless_they_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(cores=6, memory=1, memory_free=1)
    monkeypatch.setattr(advice, "measure", lambda: machine)
    assert advice.machines("4x16") == Machines(count=4, cores=16)
    assert advice.machines("3") == Machines(count=3, cores=6)


def test_the_table_fits_a_terminal_and_says_that_nothing_is_left() -> None:
    those = Machines(count=16, cores=64)
    found = advice.lines(ways(EIGHT, those), those)
    assert max(map(len, found)) <= 80
    assert found[0].startswith("16 machines of 64 cores")
    assert advice.lines([], those) == ["more machines would have nothing to do"]
