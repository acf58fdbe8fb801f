"""Scripts that fail in real builds: the exit code, the sentence, and whether the build is tried again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from import_path import packages_path

from groundwork.machine import machine_platform

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "linux_64_"
pytestmark = [
    pytest.mark.skipif(machine_platform() != "linux-64", reason="the recipe has a config for linux-64"),
    pytest.mark.skipif(not shutil.which("c++"), reason="no C++ compiler (Debian: g++)"),
]
RECIPE = """\
package:
  name: demo
  version: "1.0"
build:
  noarch: generic
  script:
    - echo started
    - bash $RECIPE_DIR/go.sh
about:
  license: MIT
"""
NO_HEADER = """\
set -e
echo 'checking whether ENOSPC is declared... yes'
echo 'checking for SIGKILL... yes'
echo '#include <cstddef>
void* take(std::size_t n) { throw std::bad_alloc(); }' > alloc.cpp
c++ -DHAVE_ENOSPC=1 -c alloc.cpp
"""
TRACED = """\
set -ex
git --git-dir=/nonexistent describe || true
test -f "$SRC_DIR/nosuch.so"
"""


@dataclass(frozen=True, kw_only=True)
class End:
    """How a build ended."""

    exit_code: int
    message: str
    kind: str
    attempts: int


def build(folder: Path, script: str) -> End:
    """Build a recipe whose script runs ``script``."""
    recipe = folder / "feedstock" / "recipe"
    recipe.mkdir(parents=True)
    (recipe / "recipe.yaml").write_text(RECIPE)
    (recipe / "go.sh").write_text(script)
    argv = [sys.executable, "-m", "megabuild", "build", CONFIG, "--root", str(recipe.parent)]
    done = subprocess.run(
        [*argv, "--provider", "local", "--engine", "host", "--json"],
        env={**os.environ, "PYTHONPATH": packages_path(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    error = json.loads(done.stdout)["error"]
    log = (recipe.parent / "output" / CONFIG / "logs" / "latest.log").read_text()
    attempts = sum(line.endswith(" started") and "echo" not in line for line in log.splitlines())
    return End(
        exit_code=done.returncode, message=error["message"], kind=error["failure"]["kind"], attempts=attempts
    )


def test_words_of_memory_and_disk_in_a_log_are_no_verdict(tmp_path: Path) -> None:
    end = build(tmp_path, NO_HEADER)
    assert (end.exit_code, end.kind, end.attempts) == (8, "compiler", 1)
    assert "alloc.cpp:2: error:" in end.message.splitlines()[0]


def test_the_silent_command_of_a_trace_is_named(tmp_path: Path) -> None:
    end = build(tmp_path, TRACED)
    assert (end.exit_code, end.kind, end.attempts) == (8, "shell", 1)
    assert "failed: test -f " in end.message.splitlines()[0]


def test_a_program_that_a_limit_denies_memory_is_not_tried_with_fewer_jobs(tmp_path: Path) -> None:
    end = build(tmp_path, f"set -e\nulimit -v 400000\n{sys.executable} -c 'bytearray(10**9)'\n")
    assert (end.exit_code, end.kind, end.attempts) == (13, "memory", 1)
    assert "MemoryError" in end.message


def test_a_file_that_reaches_the_limit_of_sizes_is_no_full_disk_but_told_as_such(tmp_path: Path) -> None:
    end = build(tmp_path, "ulimit -f 10\nexec head -c 1000000 /dev/zero > large\n")
    assert (end.exit_code, end.kind, end.attempts) == (12, "disk", 1)
    assert "limit of files' sizes" in end.message


def test_a_killed_program_is_tried_once_more(tmp_path: Path) -> None:
    end = build(tmp_path, "set -e\nbash -c 'kill -9 $$'\n")
    assert (end.exit_code, end.kind, end.attempts) == (8, "killed", 2)
