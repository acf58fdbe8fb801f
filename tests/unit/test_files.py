"""What is left, and what is not, when a process that prepares something is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tiny import wait_for

from megabuild import files
from megabuild.providers import command

START = """
import sys
from pathlib import Path
from megabuild import files
from megabuild.providers import command
with files.scratch(Path(sys.argv[1])) as folder:
    words = ["sh", "-c", "sleep 600 & echo $! $$ >%s/pids; wait" % sys.argv[1]]
    command.run(words, what="resolving", guarded=True)
"""


def test_what_a_killed_process_started_ends_and_its_temporary_folder_goes(tmp_path: Path) -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path)], env={**os.environ, "PYTHONPATH": paths}
    )
    pids = tmp_path / "pids"
    assert wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, 60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for pid in map(int, pids.read_text().split()):
        assert wait_for(lambda pid=pid: not psutil.pid_exists(pid), 30)  # type: ignore[misc]
    (left,) = tmp_path.glob(".scratch-*")
    with files.scratch(tmp_path) as first, files.scratch(tmp_path) as second:
        assert first.is_dir()
        assert second.is_dir()
        assert not left.exists()
    assert list(tmp_path.iterdir()) == [pids]


def test_a_guarded_program_s_answer_is_its_own() -> None:
    assert command.run(["sh", "-c", "echo fine; cat"], what="asking", guarded=True) == "fine\n"


def test_a_file_is_written_in_one_step_or_not_at_all(tmp_path: Path) -> None:
    files.write(tmp_path / "a" / "b", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        files.write(tmp_path / "folder", "text")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "folder"]
