"""What objects took is learned, whatever a build writes; the memory is shared by it, and narrowed where it ran out."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from groundwork import events
from groundwork.errors import OutOfMemoryError
from groundwork.resources.jobs import Jobs
from megabuild.configs.config import load
from megabuild.engine.compiler_gate import NOTES, UNIT, Settings
from megabuild.isolation.base import Host
from megabuild.plan import object_memory
from megabuild.plan.estimate import Estimate, estimate
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.limits import Limits, limits, ordinary_size
from megabuild.plan.object_memory import Compiled
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.plan.tree_reuse import Decision
from megabuild.providers.environment import Environment
from megabuild.run.logfile import LogFile
from megabuild.run.memory_budget import MemoryBudget
from megabuild.run.pytorch import PyTorchWork
from megabuild.run.work import Run

GB = 10**9
FLASH = "caffe2/CMakeFiles/torch_cuda.dir/__/aten/src/ATen/native/transformers/cuda/flash_attn/kernels/a.cu.o"
CUDA: Estimate = estimate(source="official", cuda=True, optimization="2", pythons=1, staging=True)
DEBIAN: Estimate = estimate(source="debian", cuda=False, optimization="2", pythons=1, staging=True)


@pytest.fixture
def options(repository: Path, tmp_path: Path) -> Options:
    config = load(repository, "linux_64_cpu_debian")
    made = Options(config=config, root=repository, output=tmp_path / "output", cache=tmp_path / "cache")
    (made.state / "tmp").mkdir(parents=True)
    return made


def write(options: Options, content: str | bytes) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    (options.state / "tmp" / NOTES).write_bytes(data)


def test_what_was_compiled_is_known_to_the_next_build_in_any_folder_and_of_the_next_release(
    options: Options, tmp_path: Path
) -> None:
    write(options, f"+ {2 * GB} a.o\n+ {3 * GB} b.o\n- {4 * GB} c.o\n")
    assert object_memory.read(options) == {"a.o": 2 * GB, "b.o": 3 * GB}, "of a run that was killed, too"
    object_memory.keep(options, object_memory.noted(options.state))
    elsewhere = replace(options, output=tmp_path / "elsewhere")
    assert object_memory.read(elsewhere) == {"a.o": 2 * GB, "b.o": 3 * GB}
    assert object_memory.read(replace(elsewhere, optimization="0")) == {}
    write(options, f"+ {GB} b.o\n")
    object_memory.keep(options, object_memory.noted(options.state))
    assert object_memory.read(elsewhere) == {"a.o": 2 * GB, "b.o": GB}


def test_nothing_that_a_build_writes_does_more_than_waste_time(options: Options) -> None:
    lines = [
        *(b"", b"+", b"+ 5", b"+ 5 ", b"+ -5 x.o", b"+ 5 a b.o", b"* 5 x.o", b"+ 0x5 x.o", b"+ 1e9 x.o"),
        *(b"+ 5 \xff.o", b"+ 5 \x1b[2J.o", b"+ 5 " + b"a" * 301, b"+ " + b"9" * 16 + b" x.o", b"\0" * 9),
        *(b"+ 999999999999999 large.o", b"+ 1 small.o", b"+ 5000000 ../../etc/passwd", b"+ 5000000 light"),
    ]
    write(options, b"\n".join(lines))
    known = object_memory.read(options)
    assert known == {
        "large.o": 1 << 40,
        "small.o": 1 << 20,
        "../../etc/passwd": 5_000_000,
        "light": 5_000_000,
    }
    object_memory.keep(options, object_memory.noted(options.state))
    assert object_memory.read(options) == known
    made = limits(16, 64 * GB, CUDA, known)
    gate = Settings(made.text().encode())
    assert gate.light + gate.heavy <= 64 * GB // UNIT
    assert gate.light * UNIT >= 3 * GB


def test_cpu_seconds_are_noted_since_some_time_and_lines_without_them_still_count(options: Options) -> None:
    write(options, b"+ 5000000 a.o 2500\n+ 5000000 b.o\n+ 5000000 c.o x\n")
    assert [(one.name, one.cpu_seconds) for one in object_memory.noted(options.state)] == [
        ("a.o", 2.5),
        ("b.o", 0.0),
    ]


def test_of_what_is_no_file_or_too_much_nothing_is_read(options: Options, tmp_path: Path) -> None:
    notes = options.state / "tmp" / NOTES
    secret = tmp_path / "secret"
    secret.write_text("+ 5000000 a.o\n")
    notes.symlink_to(secret)
    assert object_memory.noted(options.state) == []
    notes.unlink()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / NOTES).write_text("+ 5000000 a.o\n")
    (options.state / "tmp").rmdir()
    (options.state / "tmp").symlink_to(tmp_path / "tmp")
    assert object_memory.noted(options.state) == []
    (options.state / "tmp").unlink()
    (options.state / "tmp").mkdir()
    write(options, b"+ 5000000 a.o\n" * 1_000_000)
    assert len(object_memory.noted(options.state)) == 20_000


@pytest.mark.parametrize("content", [b"\0\xff" * 500, b"{}", b"5 a.o\nx\n7000000 b.o\n"])
def test_a_damaged_file_of_the_cache_is_read_as_far_as_it_makes_sense(
    options: Options, content: bytes
) -> None:
    object_memory.keep(options, [Compiled(name="a.o", size=GB, ended_well=True)])
    (file,) = (options.cache / "object-memory").iterdir()
    file.write_bytes(content)
    assert set(object_memory.read(options)) <= {"a.o", "b.o"}
    object_memory.keep(options, [Compiled(name="a.o", size=GB, ended_well=True)])
    assert object_memory.read(options)["a.o"] == GB


def test_heavy_objects_leave_memory_for_an_ordinary_one_on_every_other_core() -> None:
    made = limits(16, 64 * GB, CUDA, {})
    assert made.words() == "heavy objects 7 at a time"
    assert 7 * CUDA.memory_per_job <= made.heavy <= 7 * (CUDA.memory_per_job + UNIT)
    assert made.light >= 9 * CUDA.memory_of_ordinary
    assert limits(16, 24 * GB, CUDA, {}).words() == "heavy objects 1 at a time"
    assert limits(16, 128 * GB, CUDA, {}).words() == ""


def test_where_nothing_is_heavy_nothing_is_set_aside() -> None:
    made = limits(16, 64 * GB, DEBIAN, {"a.o": GB})
    assert (made.heavy, made.words()) == (0, "")
    assert made.light == pytest.approx(64 * GB, rel=0.01)
    assert limits(16, 64 * GB, Estimate(), {"a.o": GB}) == Limits(jobs=16)


def test_what_is_known_counts_more_than_a_name() -> None:
    assert limits(16, 64 * GB, CUDA, {}).is_heavy(FLASH)
    assert not limits(16, 64 * GB, CUDA, {}).is_heavy(FLASH.replace(".cu.", ".cpp."))
    light = limits(16, 64 * GB, CUDA, {FLASH: GB, "b.o": 8 * GB})
    assert not light.is_heavy(FLASH)
    assert light.is_heavy("b.o")
    assert light.at_once == (64 - 0.5 - 16 * 2.6) // (8.24 - 2.6)
    gate = Settings(light.text().encode())
    assert gate.size(FLASH.encode(), cuda=True) == int(1.03 * GB)
    assert gate.size(b"b.o", cuda=False) == int(8.24 * GB)
    assert gate.size(b".o", cuda=False) == CUDA.memory_of_ordinary, "a part of a name is not the name"
    assert gate.size(FLASH.replace("/a.", "/b.").encode(), cuda=True) == CUDA.memory_per_job
    assert gate.size(b"c.cu.o", cuda=True) == CUDA.memory_of_cuda


def test_the_ordinary_size_is_that_of_nine_in_ten_objects_once_they_are_known() -> None:
    assert ordinary_size(CUDA, {"a.o": GB}) == CUDA.memory_of_ordinary
    many = {f"{number}.o": GB // 2 for number in range(95)} | {f"x{number}.o": 2 * GB for number in range(5)}
    assert ordinary_size(CUDA, {**many, FLASH: 6 * GB}) == pytest.approx(0.6 * GB)


def plan(options: Options, made: Limits) -> Plan:
    return Plan(
        options=options,
        items=(),
        left_out={},
        environment=Environment(pythons=(), channels=(), overrides={}),
        staging=Fingerprint(),
        staging_decision=Decision(decision="none", reasons=()),
        jobs=Jobs(count=made.jobs, reason=""),
        limits=made,
    )


def test_after_a_heavy_object_was_killed_only_heavy_ones_are_narrowed(options: Options) -> None:
    budget = MemoryBudget(plan(options, limits(16, 64 * GB, CUDA, {})))
    assert budget.take(last=True) == 16
    heavy = budget.limits.heavy
    write(options, f"+ {GB} a.o\n- {5 * GB} {FLASH}\n")
    assert budget.halve() == 16
    assert budget.limits.words() == "heavy objects 3 at a time"
    assert budget.limits.heavy == heavy // 2
    assert budget.limits.known[FLASH] == 10 * GB
    run = Run(
        plan=plan(options, budget.limits), isolation=Host(), tell=print, there=print, stop=threading.Event()
    )
    work = PyTorchWork(run, budget, cast("LogFile", None))
    event = work.retry_event(OutOfMemoryError("staging was killed\nlog: x"), 16)
    assert event == events.Warned(
        message="staging was killed: once more with 16 compile jobs, heavy objects 3 at a time"
    )
    assert budget.halve() == 16
    assert budget.limits.words() == "heavy objects 1 at a time"
    assert budget.halve() == 8, "one by one already"


@pytest.mark.parametrize("killed", [["a.o"], ["a.o", FLASH]])
def test_after_an_ordinary_object_was_killed_the_jobs_are_halved_until_it_is_a_heavy_one(
    options: Options, killed: list[str]
) -> None:
    budget = MemoryBudget(plan(options, limits(16, 64 * GB, CUDA, {})))
    budget.take(last=True)
    light = budget.limits.light
    write(options, "".join(f"- {GB} {name}\n" for name in killed))
    assert [budget.halve(), budget.halve()] == [8, 4]
    assert budget.limits.light == light // 2 // 2
    assert budget.limits.known == dict.fromkeys(killed, 4 * GB)
    assert budget.limits.is_heavy("a.o")


def test_where_nobody_knows_what_was_killed_the_jobs_are_halved_to_the_last(options: Options) -> None:
    budget = MemoryBudget(plan(options, limits(16, 64 * GB, CUDA, {})))
    budget.take(last=True)
    assert [budget.halve() for _ in range(5)] == [8, 4, 2, 1, 0]
