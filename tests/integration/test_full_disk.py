"""A disk that gets full while a run goes on: the run ends with exit code 12, and the same run later continues it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import Tiny, wait_for

from groundwork.errors import OutOfSpaceError
from groundwork.machine import disk_free
from megabuild.status.reading import read_last_run


@pytest.fixture
def on_disk(tiny: Tiny, tmp_path: Path) -> Iterator[Tiny]:
    """An output folder on a file system of its own, and a cache elsewhere."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=700m", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield replace(tiny, output=disk / "output")
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_ends_the_run_and_all_objects_are_kept(
    on_disk: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_SECONDS", "0.3")
    state, filler = on_disk.options().state, on_disk.output.parent / "filler"

    def fill_disk() -> None:
        wait_for(lambda: len(list(state.glob("tree/build/*.o"))) >= 2)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, disk_free(on_disk.output.parent) - 20_000_000)

    thread = threading.Thread(target=fill_disk)
    thread.start()
    with pytest.raises(OutOfSpaceError):
        on_disk.run(cache=tmp_path / "cache")
    thread.join()
    record = read_last_run(state).record
    assert record is not None
    assert (record.status, record.exit_code) == ("failed", 12)
    filler.unlink()
    assert on_disk.run(cache=tmp_path / "cache").ok
    assert {decided for decided, _ in on_disk.decisions()} <= {"resume", "reuse"}
