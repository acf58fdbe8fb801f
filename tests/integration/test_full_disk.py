"""A disk that gets full while a run goes on: the run ends with exit code 12, and the same run later continues it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import Tiny, make_channel, provider, wait_for

from groundwork.errors import OutOfSpaceError
from groundwork.machine import disk_free
from megabuild.plan import planning
from megabuild.status.reading import read_last_run


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiny]:
    """An output folder on a file system of its own, and a cache elsewhere."""
    for name in ("CPU_COUNT", "MAX_JOBS", "MEGABUILD_CACHE", "TORCH_CCACHE"):
        monkeypatch.delenv(name, raising=False)
    channel = make_channel(tmp_path / "channel")
    monkeypatch.setattr(planning, "provide", provider(channel))
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=700m", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield Tiny(output=disk / "output", channel=channel)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_ends_the_run_and_all_objects_are_kept(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_SECONDS", "0.3")
    state, filler = tiny.options().state, tiny.output.parent / "filler"

    def fill_disk() -> None:
        wait_for(lambda: len(list(state.glob("tree/build/*.o"))) >= 2)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, disk_free(tiny.output.parent) - 20_000_000)

    thread = threading.Thread(target=fill_disk)
    thread.start()
    with pytest.raises(OutOfSpaceError):
        tiny.run(cache=tmp_path / "cache")
    thread.join()
    found = read_last_run(state).record
    assert found is not None
    assert (found.status, found.exit_code) == ("failed", 12)
    filler.unlink()
    assert tiny.run(cache=tmp_path / "cache").ok
    assert {decided for decided, _ in tiny.decisions()} <= {"resume", "reuse"}
