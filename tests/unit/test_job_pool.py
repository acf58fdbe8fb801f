"""Builds that run at the same time share one number of jobs: it is never exceeded, and a kill loses no job."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from stop_at_write import Stopped

from command_line import running
from groundwork import job_pool
from groundwork.job_pool import JobPool, PoolBudget, PoolMember, jobserver
from megabuild.configs.provider_name import ProviderName


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[JobPool]:
    with JobPool(tmp_path, most=8, places=3, heavy_jobs=2) as made:
        yield made


def granted(member: PoolMember) -> dict[str, int]:
    """Return the granted jobs of each build."""
    counts: dict[str, int] = json.loads((member.folder / "granted.json").read_text().splitlines()[0])
    return counts


def take_all(member: PoolMember) -> int:
    """Take a build's tokens, as its ninja does; return their number."""
    taken = 0
    while member.take():
        taken += 1
    return taken


def test_each_build_starts_with_its_share(pool: JobPool) -> None:
    members = [pool.join(name, is_fixed=False) for name in ("a", "b", "c")]
    assert granted(members[0]) == {"a": 2, "b": 2, "c": 2}
    assert [take_all(member) for member in members] == [1, 1, 1], "and one job without a token"


def test_jobs_left_over_go_to_builds_that_have_used_theirs(pool: JobPool) -> None:
    members = [pool.join(name, is_fixed=False) for name in ("a", "b", "c")]
    take_all(members[0])
    pool.balance()
    assert granted(members[0]) == {"a": 4, "b": 2, "c": 2}
    assert take_all(members[0]) == 2


def test_of_jobs_that_cannot_be_shared_equally_the_build_with_the_fewest_gets_more(tmp_path: Path) -> None:
    with JobPool(tmp_path, most=9, places=3, heavy_jobs=0) as pool:
        rich, poor, _ = (pool.join(name, is_fixed=name == "fixed") for name in ("rich", "poor", "fixed"))
        take_all(rich)
        pool.balance()
        assert granted(rich) == {"rich": 4, "poor": 2, "fixed": 3}
        for member in (rich, poor):
            take_all(member)
        pool.leave("fixed")
        pool.balance()
        assert granted(rich) == {"rich": 5, "poor": 4}


def test_unused_jobs_move_but_one_stays(pool: JobPool) -> None:
    busy = pool.join("busy", is_fixed=False)
    idle = pool.join("idle", is_fixed=False)
    pool.balance()  # each build has tokens
    take_all(busy)
    pool.balance()
    take_all(busy)
    take_all(idle)
    pool.balance()
    assert sum(granted(busy).values()) <= 8
    for _ in range(granted(idle)["idle"] - 1):
        idle.give()
    take_all(busy)
    pool.balance()
    assert take_all(busy) >= 0
    assert take_all(idle) == 1


def test_builds_that_have_left_leave_no_pipe_open(tmp_path: Path) -> None:
    """A run starts hundreds of builds, each with thousands of programs."""
    before = psutil.Process().num_fds()
    with JobPool(tmp_path, most=8, places=3, heavy_jobs=2) as pool:
        for name in ("a", "b"):
            member = pool.join(name, is_fixed=False)
            pool.balance()
            taken = take_all(member)
            assert taken > 0
            member.give()
            member.halve()
            if name == "a":
                pool.leave(name)
                assert psutil.Process().num_fds() == before
    assert psutil.Process().num_fds() == before


def test_a_build_that_has_left_may_join_again(pool: JobPool) -> None:
    for _ in range(2):
        member = pool.join("one", is_fixed=False)
        assert take_all(member) == 1
        pool.leave("one")
        assert not member.pipe.exists()


def test_jobs_of_a_build_that_has_left_go_to_the_others(pool: JobPool) -> None:
    one = pool.join("one", is_fixed=False)
    pool.join("other", is_fixed=False)
    take_all(one)
    pool.leave("other")
    pool.balance()
    assert granted(one) == {"one": 8}
    assert take_all(one) == 6


def test_a_later_build_gets_a_job_even_if_others_have_them_all(pool: JobPool) -> None:
    one = pool.join("one", is_fixed=False)
    two = pool.join("two", is_fixed=False)
    pool.join("three", is_fixed=False)
    take_all(one)
    take_all(two)
    pool.balance()
    pool.leave("three")
    late = pool.join("late", is_fixed=False)
    assert granted(late)["late"] >= 1
    assert sum(granted(late).values()) <= 8


def test_a_build_that_joins_beside_others_begins_with_their_unused_jobs(pool: JobPool) -> None:
    one = pool.join("one", is_fixed=False)
    take_all(one)
    pool.balance()
    assert granted(one) == {"one": 8}
    late = pool.join("late", is_fixed=False)
    assert granted(late) == {"one": 3, "late": 2}, "one unused job stays, three are left to share out"
    pool.balance()
    assert granted(late) == {"one": 3, "late": 2}, "no build has used up its jobs"
    take_all(late)
    pool.balance()
    assert granted(late) == {"one": 3, "late": 5}


def test_a_build_that_joins_without_unused_jobs_is_made_up_for_by_the_first(pool: JobPool) -> None:
    one = pool.join("one", is_fixed=False)
    for _ in range(3):
        take_all(one)
        pool.balance()
    take_all(one)
    late = pool.join("late", is_fixed=False)
    assert granted(late) == {"one": 8, "late": 1}
    pool.balance()
    assert granted(late) == {"one": 8, "late": 1}
    for _ in range(4):  # four of its programs end
        one.give()
    pool.balance()
    assert granted(late) == {"one": 5, "late": 3}, "8 together; one unused job stays"


def test_tokens_of_killed_programs_come_back(pool: JobPool) -> None:
    member = pool.join("a", is_fixed=False)
    assert take_all(member) == 1
    member.refill()
    assert take_all(member) == 1
    member.give()
    member.give()  # a faulty program puts back more than it took
    member.refill()
    assert take_all(member) == 1


def test_jobs_are_counted_with_the_lock(pool: JobPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another build may have changed the record while this one waited for the lock."""
    member = pool.join("a", is_fixed=False)

    def wait(*_: object) -> None:
        (member.folder / "granted.json").write_text('{"a": 7}\n')

    monkeypatch.setattr(fcntl, "flock", wait)
    assert member.halve() == 3


def test_tokens_and_their_record_change_together(pool: JobPool, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []
    put = job_pool._put

    def look_and_put(pipe: int, tokens: int) -> None:
        with (member.folder / "granted.json").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.append(False)
            except BlockingIOError:
                held.append(True)
        put(pipe, tokens)

    member = pool.join("a", is_fixed=False)
    monkeypatch.setattr(job_pool, "_put", look_and_put)
    take_all(member)
    pool.balance()
    member.refill()
    assert held == [True, True]


def test_a_fixed_share_is_never_lent(pool: JobPool) -> None:
    fixed = pool.join("fixed", is_fixed=True)
    other = pool.join("other", is_fixed=False)
    assert fixed.share == 2
    assert not fixed.pipe.exists()
    for _ in range(3):
        take_all(other)
        pool.balance()
    assert granted(fixed) == {"fixed": 2, "other": 6}
    pool.leave("fixed")
    take_all(other)
    pool.balance()
    assert granted(other) == {"other": 8}


def test_halving_takes_jobs_out_of_the_pool(pool: JobPool) -> None:
    one = pool.join("one", is_fixed=False)
    pool.join("two", is_fixed=False)
    take_all(one)
    pool.balance()
    budget = PoolBudget(one, heavy_jobs=4)
    assert budget.acquire(last=True) == 2
    assert granted(one)["one"] == 6
    budget.release(2)
    assert budget.halve() == 3
    assert budget.heavy_jobs == 2
    assert take_all(one) == 2, "and one job without a token"
    pool.balance()
    assert granted(one) == {"one": 3, "two": 2}, "no other build gets them"
    assert budget.halve() == 1
    assert budget.halve() == 1, "others may have used the memory: once more"
    assert budget.halve() == 0
    assert granted(one)["one"] == 1, "a build always has the job without a token"


def test_tasks_of_one_build_share_its_jobs(pool: JobPool) -> None:
    member = pool.join("a", is_fixed=False)
    budget = PoolBudget(member, tasks=3)
    assert budget.acquire(last=False) == 2
    assert budget.acquire(last=False) == 2, "with a token"
    assert budget.acquire(last=True) == 0, "no token is free"
    budget.release(2)
    assert member.take()
    member.give()
    budget.release(2)
    assert take_all(member) == 1, "the first task had none"
    assert budget.acquire(last=False) == 2


@pytest.mark.parametrize("seed", range(5))
def test_the_number_is_never_exceeded(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with JobPool(tmp_path, most=7, places=3, heavy_jobs=0) as pool:
        running: dict[str, PoolMember] = {}
        held: dict[str, int] = {}
        for name in ("a", "b", "c"):
            running[name] = pool.join(name, is_fixed=chance.random() < 0.2)
            held[name] = 0
        for number in range(400):
            match chance.randrange(6):
                case 1 if running and chance.random() < 0.1:
                    name = chance.choice(list(running))
                    del running[name], held[name]
                    pool.leave(name)
                    if number < 300:
                        name = f"build{number}"
                        running[name] = pool.join(name, is_fixed=chance.random() < 0.2)
                        held[name] = 0
                case 2 | 3 if running:
                    name = chance.choice(list(running))
                    if not running[name].is_fixed and running[name].take():
                        held[name] += 1
                case 4 if running:
                    name = chance.choice(list(running))
                    if held[name] and chance.random() < 0.9:
                        running[name].give()
                        held[name] -= 1
                    elif not running[name].is_fixed:  # killed with its tokens
                        held[name] = 0
                        running[name].refill()
                case _:
                    pool.balance()
            used = 0
            for name, member in running.items():
                used += member.share if member.is_fixed else 1 + held[name]
            assert used <= 7


#: The writers of the record of granted jobs.
WRITERS: dict[str, Callable[[JobPool, PoolMember], object]] = {
    "join": lambda pool, _: pool.join("c", is_fixed=False),
    "leave": lambda pool, _: pool.leave("b"),
    "balance": lambda pool, _: pool.balance(),
    "halve": lambda _, member: member.halve(),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_record_whose_writer_is_killed_is_the_former_one(
    writer: str, pool: JobPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command and other builds read it next."""
    member = pool.join("a", is_fixed=False)
    pool.join("b", is_fixed=False)
    take_all(member)
    before = granted(member)

    def killed(_: object) -> str:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", killed)  # the last moment before the one write
        with pytest.raises(Stopped):
            WRITERS[writer](pool, member)
    assert granted(member) == before
    member.refill()


def test_folders_of_killed_pools_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = tmp_path / ".job-pools" / f"{socket.gethostname()}-{dead.pid}"
    elsewhere = tmp_path / ".job-pools" / f"other.example-{dead.pid}"
    in_use = tmp_path / ".job-pools" / f"{socket.gethostname()}-{os.getppid()}"
    for folder in (left, elsewhere, in_use):
        folder.mkdir(parents=True)
    with JobPool(tmp_path, most=2, places=2, heavy_jobs=0) as pool:
        assert pool.join("a", is_fixed=False).locks.is_dir()
        assert not left.exists()
        assert elsewhere.exists(), "its process is unknown here"
        assert in_use.exists()
    elsewhere.rmdir()
    in_use.rmdir()
    assert [path.name for path in tmp_path.rglob("*")] == [".job-pools"]


@pytest.mark.skipif(shutil.which("ninja") is None, reason="needs ninja")
def test_ninjas_of_several_builds_keep_to_the_number(tmp_path: Path) -> None:
    version = subprocess.run(["ninja", "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(map(int, version.split(".")[:2])) < (1, 13):
        pytest.skip("needs ninja 1.13")
    for name in ("a", "b", "c"):
        steps = [f"build {name}{number}: step" for number in range(8)]
        (tmp_path / name).mkdir()
        rule = f"rule step\n command = touch {tmp_path}/$out.on && sleep 0.3 && rm {tmp_path}/$out.on && touch $out"
        (tmp_path / name / "build.ninja").write_text("\n".join([rule, *steps, ""]))
    most = 0
    with JobPool(tmp_path / "out", most=5, places=3, heavy_jobs=0) as pool:
        ninjas: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("a", "b", "c"):
            member = pool.join(name, is_fixed=False)
            environ = {**os.environ, "MAKEFLAGS": jobserver(str(member.pipe))}
            command = ["ninja", "--quiet", "-C", str(tmp_path / name)]
            ninjas[name] = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
        while ninjas:
            most = max(most, len(list(tmp_path.glob("*.on"))))
            for name, ninja in list(ninjas.items()):
                if ninja.poll() is not None:
                    assert ninja.returncode == 0
                    del ninjas[name]
                    pool.leave(name)
            pool.balance()
            time.sleep(0.01)
    assert 3 < most <= 5


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("provider", ProviderName)
def test_only_own_scripts_outside_debian_share_a_jobserver(own: bool, provider: ProviderName) -> None:
    options = SimpleNamespace(own=own, config=SimpleNamespace(provider=provider))
    is_shared = own and provider is not ProviderName.DEBIAN
    assert running._knows_no_jobserver(cast(Any, options)) is not is_shared
