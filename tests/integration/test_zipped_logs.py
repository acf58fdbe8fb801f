"""Several configs in sequence: one zip at the end has the logs of the run, also after a failure and after Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from terminal import terminal_environ
from tiny import ROOT, wait_for

HERE = Path(__file__).resolve().parent.parent
SECRET = "a-token-that-no-log-shows"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A feedstock with two configs; the second has one Python only."""
    root = shutil.copytree(ROOT, tmp_path / "root")
    text = (root / ".ci_support" / "tiny.yaml").read_text()
    (root / ".ci_support" / "tiny_b.yaml").write_text(text.replace('"3.11.* *_cpython", ', ""))
    with (root / "recipe" / "build_py.sh").open("a") as script:
        script.write(f"echo secret {SECRET}\n")
    return Path(root)


def start(root: Path, channel: Path, **environ: str) -> subprocess.Popen[str]:
    places = [str(root.parent / "output"), str(channel), str(root)]
    options = ["tiny_b", "--rehearse", "--engine", "host", "--zip-logs"]
    own = {"MEGABUILD_CACHE": str(root.parent / "cache"), "MY_API_TOKEN": SECRET}
    return subprocess.Popen(
        [sys.executable, str(HERE / "unit" / "tiny_command.py"), *places, *options],
        env=terminal_environ(PYTHONPATH=os.pathsep.join(filter(None, sys.path)), **own, **environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def contents(root: Path) -> dict[str, str]:
    """Return the texts in the only zip, by the name of their config."""
    (archive,) = (root.parent / "output" / "logs").iterdir()
    assert archive.suffix == ".zip"
    with zipfile.ZipFile(archive) as file:
        return {name.partition("/")[0]: file.read(name).decode() for name in file.namelist()}


def test_the_zip_has_the_logs_of_finished_and_failed_configs(root: Path, channel: Path) -> None:
    process = start(root, channel, TINY_FAIL="swap 3.11")
    shown, _ = process.communicate(timeout=300)
    assert process.returncode == 9, shown
    assert "all logs: " in shown
    texts = contents(root)
    assert set(texts) == {"tiny-rehearsal", "tiny_b-rehearsal", "results.txt"}
    assert "core object dirty" in texts["tiny-rehearsal"]
    assert "published tinypy" in texts["tiny_b-rehearsal"]
    assert "secret ***" in texts["tiny_b-rehearsal"]
    assert SECRET not in "".join(texts.values())
    assert [line.split()[0] for line in texts["results.txt"].splitlines()] == ["config", "tiny", "tiny_b"]
    assert "exit code 9" in texts["results.txt"]


def test_after_ctrl_c_the_zip_has_the_logs_so_far(root: Path, channel: Path) -> None:
    process = start(root, channel, TINY_SECONDS="30")
    log = root.parent / "output" / "tiny-rehearsal" / "logs" / "latest.log"
    assert wait_for(lambda: log.exists() and "phase compile" in log.read_text())
    process.send_signal(signal.SIGINT)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130, shown
    texts = contents(root)
    assert set(texts) == {"tiny-rehearsal", "results.txt"}
    assert "phase compile" in texts["tiny-rehearsal"]
    assert "not started" in texts["results.txt"]
