"""Whether memory ran out, or somebody sent a signal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from groundwork.resources.machine import Machine
from groundwork.resources.shortage import Watch, kernel_kills, lacked_memory, was_killed

_TREES = {"memory.limit_in_bytes": Path("/sys/fs/cgroup/memory"), "memory.max": Path("/sys/fs/cgroup")}


def machine(free: float) -> Machine:
    return Machine(cores=2, memory=1000, memory_free=int(1000 * free))


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
    memory = Watch()
    quiet = subprocess.run(["sh", "-c", "kill -9 $$"], check=False)
    assert quiet.returncode == -9
    assert not memory.short()
    greedy = subprocess.run([sys.executable, "-c", script], check=False)
    assert greedy.returncode == -9
    assert memory.short()


def test_counters_of_both_versions_of_control_groups_are_read(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("4:memory:/batch/job\n0::/user/me\n")
    for name, text in (("memory/batch/job/memory.oom_control", "oom_kill_disable 0\noom_kill 3\n"),
                       ("user/me/memory.events", "oom 9\noom_kill 2\noom_group_kill 0\n"),
                       ("user/memory.events", "oom 9\noom_kill 2\n")):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 7\n")
    assert kernel_kills(tmp_path / "vmstat", tmp_path, tmp_path / "own") == 14
    assert kernel_kills(tmp_path / "none", tmp_path / "none", tmp_path / "none") is None


def test_little_free_memory_is_evidence_too_since_daemons_kill_before_the_kernel_does() -> None:
    low = Watch(lambda: 0, lambda: machine(0.05))
    assert not low.short()
    low.tick()
    assert low.short()
    ample = Watch(lambda: 0, lambda: machine(0.5))
    ample.tick()
    assert not ample.short()


def test_where_nobody_counts_a_kill_is_taken_for_the_kernel_s() -> None:
    assert Watch(lambda: None, lambda: machine(0.5)).short()


@pytest.mark.parametrize(
    "text",
    [
        "LLVM ERROR: out of memory",
        "ptxas fatal   : Memory allocation failure",
        "nvlink fatal   : Memory allocation error",
        "/usr/bin/ld: final link failed: memory exhausted",
        "{standard input}: Fatal error: memory exhausted",
        "x\nMemoryError\ny",
        "memory allocation of 131072 bytes failed",
        "fatal error: runtime: out of memory",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7 GiB",
    ],
)
def test_programs_that_lack_memory_say_so_in_many_words(text: str) -> None:
    assert lacked_memory(text)
    assert not was_killed(text)


@pytest.mark.parametrize(
    "text",
    [
        "nvcc -c y.cu\nKilled\nninja: build stopped",
        "make[2]: *** [Makefile:70: obj/reduce.o] Error 137",
        "Command '['ninja', '-v']' died with <Signals.SIGKILL: 9>.",
        "process didn't exit successfully: `rustc` (signal: 9, SIGKILL: kill)",
        "returned non-zero exit status 137.",
        "worker exitcode=-9",
    ],
)
def test_a_killed_program_is_reported_in_many_words(text: str) -> None:
    assert was_killed(text)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "    with pytest.raises(MemoryError):",
        "test_SIGKILL PASSED",
        "Error 1370",
    ],
)
def test_a_gpu_s_memory_and_names_of_tests_are_no_shortage(text: str) -> None:
    assert not lacked_memory(text)
    assert not was_killed(text)
