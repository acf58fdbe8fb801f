"""Cores, memory, and the detection of exhausted memory and of killed programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from small_files import write

from groundwork.errors import UsageError
from groundwork.jobs import compile_jobs
from groundwork.machine import (
    Machine,
    MemoryWatch,
    committable,
    is_full,
    is_running,
    kernel_kills,
    lacked_memory,
    lacked_space,
    measure,
    tree_memory,
    was_killed,
)
from megabuild.run.estimate import GB

NONE = Path("/no/such/list")
_TREES = {"memory.limit_in_bytes": Path("/sys/fs/cgroup/memory"), "memory.max": Path("/sys/fs/cgroup")}
LARGE = Machine(cores=16, memory=64 * GB, memory_free=60 * GB)


def test_cached_files_do_not_count_as_used_memory(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000000\n")
    (tmp_path / "memory.current").write_text("900000000\n")
    (tmp_path / "memory.stat").write_text("anon 300000000\ninactive_file 500000000\nactive_file 100000000\n")
    assert measure(tmp_path, NONE).memory_free == 600_000_000


def test_limits_of_the_own_group_and_its_ancestors_apply(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/other\n0::/user.slice/job_1/step_0\n")
    job = tmp_path / "user.slice" / "job_1"
    write(job / "memory.max", "1000000000\n")
    (job / "memory.current").write_text("900000000\n")
    (job.parent / "memory.max").write_text("max\n")
    (job.parent / "cpu.max").write_text("100000 100000\n")
    (job / "cpu.max").write_text("max 100000\n")
    machine = measure(tmp_path, own)
    assert (machine.cores, machine.memory) == (1, 1_000_000_000)
    assert machine.memory_free <= 100_000_000


@pytest.mark.parametrize("path", ["job_1", "docker/0123"])  # in a container the path is the host's
def test_limits_of_version_1_apply(tmp_path: Path, path: str) -> None:
    own = tmp_path / "own"
    own.write_text(f"9:cpu,cpuacct:/{path}\n4:memory:/{path}\n1:name=systemd:/{path}\n")
    for controller in ("memory", "cpu"):
        (tmp_path / controller / "job_1").mkdir(parents=True)
    memory, cpu = (tmp_path / name / ("job_1" if path == "job_1" else "") for name in ("memory", "cpu"))
    (memory / "memory.limit_in_bytes").write_text("1000000000\n")
    (memory / "memory.usage_in_bytes").write_text("900000000\n")
    (memory / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 500000000\n")
    (cpu / "cpu.cfs_quota_us").write_text("100000\n")
    (cpu / "cpu.cfs_period_us").write_text("100000\n")
    machine = measure(tmp_path, own)
    assert (machine.cores, machine.memory, machine.memory_free) == (1, 1_000_000_000, 600_000_000)
    (cpu / "cpu.cfs_quota_us").write_text("-1\n")
    assert measure(tmp_path, own).cores == measure(NONE, NONE).cores


def test_each_core_has_a_job_if_memory_allows_and_the_user_s_number_is_never_changed() -> None:
    assert compile_jobs(LARGE, bytes_per_job=2 * GB).count == 16
    assert compile_jobs(LARGE, bytes_per_job=2 * GB, most=8 * GB).count == 4
    for name in ("CPU_COUNT", "MAX_JOBS"):
        assert compile_jobs(LARGE, bytes_per_job=8 * GB, environ={name: "40"}).count == 40
        assert compile_jobs(LARGE, bytes_per_job=8 * GB, requested=3, environ={name: "40"}).count == 3
    both = {"MAX_JOBS": "40", "CPU_COUNT": "3"}
    assert compile_jobs(LARGE, bytes_per_job=8 * GB, environ=both).reason == "set by CPU_COUNT"


@pytest.mark.parametrize("text", ["0", "many", "-2", "1.5", "²"])
def test_a_malformed_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="CPU_COUNT"):
        compile_jobs(LARGE, bytes_per_job=GB, environ={"CPU_COUNT": text})


def machine(free: float) -> Machine:
    return Machine(cores=2, memory=1000, memory_free=int(1000 * free))


def test_counters_of_the_kernel_and_of_control_groups_are_read(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/user/me\n")
    for name in ("user/me/memory.events", "user/memory.events"):
        write(tmp_path / name, "oom 9\noom_kill 2\noom_group_kill 0\n")
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 7\n")
    assert kernel_kills(tmp_path / "vmstat", tmp_path, tmp_path / "own") == 11
    assert kernel_kills(tmp_path / "none", tmp_path / "none", tmp_path / "none") is None


def test_counters_of_version_1_are_read(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("4:memory:/job_1\n0::/\n")
    write(
        tmp_path / "memory" / "job_1" / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    )
    assert kernel_kills(tmp_path / "none", tmp_path, tmp_path / "own") == 3


@pytest.mark.parametrize(("policy", "free"), [("2", 0.25), ("0", 1.0), ("1", 1.0)])
def test_memory_that_the_kernel_has_promised_is_not_free_where_it_promises_no_more(
    policy: str, free: float, tmp_path: Path
) -> None:
    write(tmp_path / "sys" / "vm" / "overcommit_memory", f"{policy}\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nCommitLimit:     4000 kB\nCommitted_AS:    3000 kB\n")
    assert committable(tmp_path) == free


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with 60 MB of memory."""
    for limit, tree in _TREES.items():
        group = tree / f"megabuild-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text("60000000")
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        yield group
        group.rmdir()
        return
    pytest.skip("no control group can be made here (it takes root)")


def test_the_kernel_s_kill_is_counted_and_another_one_is_not(small_group: Path) -> None:
    script = f"open('{small_group}/cgroup.procs', 'w').write('0'); held = bytearray(10**9)"
    memory = MemoryWatch()
    quiet = subprocess.run(["sh", "-c", "kill -9 $$"])
    assert quiet.returncode == -9
    assert not memory.short()
    greedy = subprocess.run([sys.executable, "-c", script])
    assert greedy.returncode == -9
    assert memory.short()


@pytest.mark.parametrize(
    ("free", "kills", "short"), [(0.05, 7, True), (0.5, 7, False), (0.5, 8, True), (0.5, None, True)]
)
def test_a_kill_by_the_kernel_and_little_free_memory_are_evidence(
    free: float, kills: int | None, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Daemons kill before the kernel does."""
    monkeypatch.setattr("groundwork.machine.kernel_kills", lambda: 7)
    monkeypatch.setattr("groundwork.machine.measure", lambda: machine(free))
    memory = MemoryWatch()
    assert not memory.short()
    memory.tick()
    monkeypatch.setattr("groundwork.machine.kernel_kills", lambda: kills)
    assert memory.short() == short


@pytest.mark.parametrize(
    ("free", "committable", "short"),
    [
        ((0.9, 0.9), 1.0, False), ((0.05, 0.9), 1.0, True), ((0.9, 0.05), 1.0, True), ((0.9, 0.9), 0.05, True),
    ],
)  # fmt: skip
def test_memory_was_short_if_it_was_so_at_one_look(
    free: tuple[float, float], committable: float, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(free)
    monkeypatch.setattr("groundwork.machine.kernel_kills", lambda: 7)
    monkeypatch.setattr("groundwork.machine.measure", lambda: machine(next(looks)))
    monkeypatch.setattr("groundwork.machine.committable", lambda: committable)
    monkeypatch.setattr("groundwork.machine._SAMPLE_SECONDS", 0.0)
    memory = MemoryWatch()
    for _ in free:
        memory.tick()
    assert memory.short() == short


def test_the_children_of_every_thread_belong_to_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a build are started by several threads."""
    monkeypatch.setattr("groundwork.machine._PROC", tmp_path)
    children = {"1/task/1": "2 3 ", "1/task/9": "4 ", "2/task/2": "", "3/task/3": "5 ", "6/task/6": "7 "}
    for thread, below in children.items():
        write(tmp_path / thread / "children", below)
    for process in "1234567":
        write(tmp_path / process / "statm", f"9 1{process} 9")
    assert tree_memory(1) == (11 + 12 + 13 + 14 + 15) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(("quota", "cores"), [(10_000, 1), (40_000, 1), (100_000, 1), (160_000, 2)])
def test_a_part_of_a_core_counts_as_one(
    quota: int, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groundwork.machine._usable_processors", lambda: 8)
    own = write(tmp_path / "own", "0::/\n")
    write(tmp_path / "group" / "cpu.max", f"{quota} 100000\n")
    assert measure(tmp_path / "group", own).cores == cores


@pytest.mark.parametrize(
    ("text", "lacked", "killed"),
    [
        ("LLVM ERROR: out of memory", True, False),
        ("ptxas fatal   : Memory allocation failure", True, False),
        ("nvlink fatal   : Memory allocation error", True, False),
        ("/usr/bin/ld: final link failed: memory exhausted", True, False),
        ("{standard input}: Fatal error: memory exhausted", True, False),
        ("x\nMemoryError\ny", True, False),
        ("memory allocation of 131072 bytes failed", True, False),
        ("fatal error: runtime: out of memory", True, False),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7 GiB", True, False),
        ("nvcc -c y.cu\nKilled\nninja: build stopped", False, True),
        ("make[2]: *** [Makefile:70: obj/reduce.o] Error 137", False, True),
        ("Command '['ninja', '-v']' died with <Signals.SIGKILL: 9>.", False, True),
        ("process didn't exit successfully: `rustc` (signal: 9, SIGKILL: kill)", False, True),
        ("returned non-zero exit status 137.", False, True),
        ("worker exitcode=-9", False, True),
        # memory of the GPU, and names of tests
        ("RuntimeError: CUDA error: out of memory", False, False),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", False, False),
        ("    with pytest.raises(MemoryError):", False, False),
        ("test_SIGKILL PASSED", False, False),
        ("Error 1370", False, False),
        # words in checks, sources and other tests
        ("checking for SIGKILL... yes", False, False),
        ("-- Looking for SIGKILL - found", False, False),
        ("exited with code -9 as expected", False, False),
        ("   12 |      throw std::bad_alloc();", False, False),
        ("a.cpp:4:1: note: 'std::bad_alloc' is defined in header '<new>'", False, False),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", False, False),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch.", True, False),
    ],
)
def test_failed_allocations_and_killed_programs_are_told_apart(text: str, lacked: bool, killed: bool) -> None:
    assert (bool(lacked_memory(text)), bool(was_killed(text))) == (lacked, killed)


@pytest.mark.parametrize(
    ("text", "lacked"),
    [
        ("ld: final link failed: No space left on device", True),
        ("OSError: [Errno 28] No space left on device: '/x'", True),
        ("error: failed to create file (os error 28)", True),
        ("Error: ENOSPC: no space left on device, write", True),
        ("cp: error writing 'x': Disk quota exceeded", True),
        ("checking whether ENOSPC is declared... yes", False),
        ("+ cc -DHAVE_ENOSPC=1 -c a.c", False),
        ('return f("No space left on device");', False),
    ],
)
def test_a_program_s_report_of_a_full_disk_is_no_mention_of_one(text: str, lacked: bool) -> None:
    assert bool(lacked_space(text)) == lacked


@pytest.mark.parametrize(
    ("blocks", "blocks_free", "files", "files_free", "full"),
    [
        (10**6, 10**6, 10**6, 10**6, False),
        (10**6, 10, 10**6, 10**6, True),
        (10**6, 10**6, 10**6, 3, True),
        # file systems that count no inodes, or nothing at all
        (10**6, 10**6, 0, 0, False),
        (0, 0, 0, 0, False),
    ],
)
def test_a_disk_is_full_if_it_counts_and_has_almost_nothing_left(
    blocks: int, blocks_free: int, files: int, files_free: int, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = os.statvfs_result(
        (4096, 4096, blocks, blocks_free, blocks_free, files, files_free, files_free, 0, 255)
    )
    monkeypatch.setattr("groundwork.machine.os.statvfs", lambda folder: answer)
    assert is_full(Path("/")) == full


@pytest.mark.parametrize(
    ("error", "runs"),
    [
        (psutil.NoSuchProcess(1), False),
        (psutil.ZombieProcess(1), False),
        (psutil.AccessDenied(1), True),
        (ValueError(), False),
        (OverflowError(), False),
    ],
    ids=repr,
)
def test_a_process_that_cannot_be_inspected_runs_only_if_it_is_another_user_s(
    error: Exception, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(_: int) -> None:
        raise error

    monkeypatch.setattr("groundwork.machine.psutil.Process", ask)
    assert is_running(1, 0.0) is runs
