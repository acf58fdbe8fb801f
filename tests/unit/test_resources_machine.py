"""Cores, memory and what a build will want."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.errors import UsageError
from groundwork.resources.jobs import Jobs, bytes_per_compile, compile_jobs, jobs_within
from groundwork.resources.machine import Machine, disk_free, measure
from megabuild.plan.estimate import GB, estimate

NONE = Path("/no/such/list")
LARGE = Machine(cores=16, memory=64 * GB, memory_free=60 * GB)


def test_a_cgroup_limits_memory_and_cores(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000000\n")
    (tmp_path / "memory.current").write_text("400000000\n")
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    machine = measure(tmp_path, NONE)
    assert (machine.cores, machine.memory) == (1, 1_000_000_000)
    assert machine.memory_free <= 600_000_000


def test_cached_files_are_not_taken_for_used_memory(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000000\n")
    (tmp_path / "memory.current").write_text("900000000\n")
    (tmp_path / "memory.stat").write_text("anon 300000000\ninactive_file 500000000\nactive_file 100000000\n")
    assert measure(tmp_path, NONE).memory_free == 600_000_000


def test_the_first_version_of_cgroups_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("1000000000")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("0")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    machine = measure(tmp_path, NONE)
    assert (machine.cores, machine.memory) == (1, 1_000_000_000)


@pytest.mark.parametrize(
    ("listed", "memory", "cpu"),
    [
        ("0::/user.slice/job_1/step_0\n", "user.slice/job_1", "user.slice"),
        (
            "4:memory:/slurm/job_1/step_0\n1:cpu,cpuacct:/slurm/job_1\n",
            "memory/slurm/job_1",
            "cpu/slurm/job_1",
        ),
    ],
)
def test_the_limits_of_the_group_we_are_in_and_of_those_above_it_hold(
    tmp_path: Path, listed: str, memory: str, cpu: str
) -> None:
    own = tmp_path / "own"
    own.write_text(listed)
    for folder in (memory, cpu):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current", "cpu.max") if listed.startswith("0::") else (
        "memory.limit_in_bytes", "memory.usage_in_bytes", "cpu.cfs_quota_us"
    )  # fmt: skip
    (tmp_path / memory / names[0]).write_text("1000000000")
    (tmp_path / memory / names[1]).write_text("900000000")
    (tmp_path / cpu / names[2]).write_text("100000 100000" if names[2] == "cpu.max" else "100000")
    (tmp_path / cpu / "cpu.cfs_period_us").write_text("100000")
    machine = measure(tmp_path, own)
    assert (machine.cores, machine.memory) == (1, 1_000_000_000)
    assert machine.memory_free <= 100_000_000


@pytest.mark.parametrize("unlimited", ["max\n", "9223372036854771712\n"])
def test_no_limit_is_none(tmp_path: Path, unlimited: str) -> None:
    (tmp_path / "memory.max").write_text(unlimited)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert measure(tmp_path, NONE).memory == measure(tmp_path / "none", NONE).memory


def test_there_are_as_many_jobs_as_cores_where_memory_allows() -> None:
    assert compile_jobs(LARGE, bytes_per_job=2 * GB).count == 16


def test_memory_lowers_the_jobs_and_the_reason_says_so() -> None:
    jobs = compile_jobs(LARGE, bytes_per_job=8 * GB)
    assert jobs.count == 7
    assert "memory" in jobs.reason


def test_there_is_always_one_job() -> None:
    assert compile_jobs(LARGE, bytes_per_job=1000 * GB).count == 1


@pytest.mark.parametrize("name", ["CPU_COUNT", "MAX_JOBS"])
def test_the_user_s_number_is_never_changed(name: str) -> None:
    assert compile_jobs(LARGE, bytes_per_job=8 * GB, environ={name: "40"}).count == 40
    assert compile_jobs(LARGE, bytes_per_job=8 * GB, requested=3, environ={name: "40"}).count == 3


@pytest.mark.parametrize("text", ["0", "many", "-2", "1.5", "²"])
def test_a_number_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="CPU_COUNT"):
        compile_jobs(LARGE, bytes_per_job=GB, environ={"CPU_COUNT": text})


def test_free_disk_is_known_for_a_folder_still_to_be_made(tmp_path: Path) -> None:
    assert disk_free(tmp_path / "a" / "b") > 0


def test_what_is_done_already_takes_no_disk() -> None:
    nothing = estimate(source="debian", cuda=False, optimization="0", pythons=0, staging=False)
    assert nothing.disk == 0


def test_cuda_takes_more_than_cpu_and_a_rehearsal_least() -> None:
    def of(source: str, cuda: bool) -> tuple[int, int]:
        found = estimate(source=source, cuda=cuda, optimization="2", pythons=5, staging=True)
        return found.disk, found.memory_per_job

    assert of("model", False) < of("official", False) < of("official", True)


@pytest.mark.parametrize(
    ("free", "most", "requested", "count", "reason"),
    [
        (14, None, 16, 5, "13.5 GB of memory, 2.6 GB expected per compile"),
        (100, None, 8, 8, "as asked for"),
        (100, 6, 16, 2, "5.5 GB of memory, 2.6 GB expected per compile"),
        (0.1, None, 16, 1, "0.0 GB of memory, 2.6 GB expected per compile"),
    ],
)
def test_extensions_get_no_more_jobs_than_memory_holds_whatever_was_asked_for(
    free: float, most: float | None, requested: int, count: int, reason: str
) -> None:
    machine = Machine(cores=16, memory=128 * 10**9, memory_free=int(free * 10**9))
    jobs = jobs_within(
        machine,
        bytes_per_job=bytes_per_compile(cuda=False),
        most=None if most is None else int(most * 10**9),
        requested=requested,
        environ={},
    )
    assert jobs == Jobs(count=count, reason=reason)
