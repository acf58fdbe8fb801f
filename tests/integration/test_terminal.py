"""A first build as people see it: on a terminal, with an empty cache; and what a plain log and GitHub's get of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import run_on_terminal, terminal_environ
from tiny import ROOT

from megabuild.status import record as state_file

HERE = Path(__file__).resolve().parent.parent
#: What rich draws with: styles, the cursor up and hidden, lines erased.
OURS = re.compile(r"\x1b\[(?:[\d;]*m|\d*A|2?K|\?25[lh])")


def command(folder: Path, channel: Path, *more: str) -> list[str]:
    if not (folder / "root").exists():
        shutil.copytree(ROOT, folder / "root")
    program = str(HERE / "unit" / "tiny_command.py")
    places = [str(folder / "output"), str(channel), str(folder / "root")]
    return [sys.executable, program, *places, "--rehearse", "--engine", "host", *more]


def environ(folder: Path, **more: str) -> dict[str, str]:
    kept = terminal_environ(
        MEGABUILD_CACHE=str(folder / "cache"),
        TINY_SECONDS="0.6",
        PYTHONPATH=os.pathsep.join(filter(None, sys.path)),
    )
    for name in ("CPU_COUNT", "MAX_JOBS", "TORCH_CCACHE"):
        kept.pop(name, None)
    return {**kept, **more}


@pytest.mark.parametrize("width", [60, 100])
def test_a_first_build_on_a_terminal(tmp_path: Path, channel: Path, width: int) -> None:
    seen = run_on_terminal(
        command(tmp_path, channel),
        columns=width,
        environ=environ(tmp_path, TINY_PACKING_SECONDS="3.2"),
    )
    raw = seen.raw
    assert seen.exit_code == 0, raw

    # nothing draws but us, though a package was packed with an engine that has bars of its own
    assert (tmp_path / "cache" / "channel" / "store").is_dir()
    assert set(re.findall(r"\x1b\[[^A-Za-z]*[A-Za-z]", raw)) == set(OURS.findall(raw))
    assert not re.search(r"[⠁⠂⠄⡀⢀⠠⠐⠈─]|Compressing|\d\d:\d\d:\d\d\]", raw)

    # the plan stands before anything is prepared, and what goes on is called by its name
    assert raw.index(" 2 wheels (3.0 MB)") < raw.index("packing wheels 0/1")
    for expected in (r"preparing, \d", r"tiny-build: compile \d/6, \d+ s", r"testing tinylib 1\.0, \d+ s"):
        assert re.search(expected, raw), expected
    assert re.search(r"✓ tinylib 1\.0: built in [1-9]", raw), "the compile is its time"

    # the seconds of a step that reports nothing move
    ticks = {
        text for _, shown in seen.moments for text in re.findall(r"packing wheels(?: 0/1)?, (\d) s", shown)
    }
    assert ticks >= {"1", "2", "3"}

    assert re.search(r"(?m)^tinylib 1\.0 .* [1-9]\d* s  ✓ built$", seen.text)

    # no line that moved is left behind; no word is broken, and the command is one line
    assert re.search(r": done in \d+ s", seen.text)
    assert "so far" not in seen.text
    wide = [line for line in seen.written if len(line) > width and " " in line.strip()]
    assert [line.split()[1:4] for line in wide] == [["scripts/megabuild", "env", "create"]]


def test_a_second_run_prepares_nothing_and_a_run_without_a_terminal_says_it_in_lines(
    tmp_path: Path, channel: Path
) -> None:
    def run(**more: str) -> str:
        done = subprocess.run(
            command(tmp_path, channel),
            env=environ(tmp_path, **more),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    first = run(GITHUB_ACTIONS="true")
    assert re.search(r"(?m)^\[0:\d\d:\d\d\] packing wheels", first)
    assert "tiny-build: compile" in first
    log = next((tmp_path / "output" / "tiny-rehearsal" / "logs").glob("tiny*.log")).read_text()
    of_driver = [line.split(None, 2)[2] for line in log.splitlines() if line.split()[1] == "driver"]
    assert "packing wheels: done" in of_driver
    assert any(line.startswith("checked disk: ") for line in of_driver)
    assert not [line for line in of_driver if re.match(r"\w+\(", line)], "no Python reprs"

    noted = tmp_path / "output" / "packages" / "tiny-rehearsal" / ".megabuild-channels.json"
    channels = noted.read_text()
    shutil.rmtree(tmp_path / "cache")
    second = run()
    assert "packages exist" in second
    assert "packing" not in second
    assert not (tmp_path / "cache" / "channel" / "store").exists(), "nothing to do, so nothing is prepared"
    assert noted.read_text() == channels


def test_too_little_disk_for_the_downloads_is_said_before_them(tmp_path: Path, channel: Path) -> None:
    done = subprocess.run(
        command(tmp_path, channel),
        env=environ(tmp_path, TINY_DOWNLOAD=str(10**18)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 12, done.stderr
    assert "GB needed" in done.stderr
    assert "packing" not in done.stdout
    state = state_file.read(tmp_path / "output" / "tiny-rehearsal")
    assert state is not None
    assert (state.status, state.exit_code) == ("failed", 12)
