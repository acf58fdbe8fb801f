"""A small file system that gets full at several moments of a run: it pauses, says what may go, and goes on."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny import Tiny, make_channel, provider, wait_for

from groundwork import events, in_use
from groundwork.errors import OutOfSpaceError
from groundwork.resources.machine import disk_free
from megabuild.plan import planning, tree_reuse
from megabuild.run import room
from megabuild.state import state_file
from megabuild.state.reading import look

MEGABYTE = 1_000_000


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


def fill(disk: Path, leave: int) -> Path:
    """Fill a disk but for so many bytes."""
    path = disk / "filler"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk_free(disk) - leave)
    return path


def beside(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def objects(tiny: Tiny) -> int:
    return len(list(tiny.options().state.glob("tree/build/*.o")))


@pytest.mark.parametrize("moment", [0, 2, 6])
def test_a_run_pauses_and_goes_on_when_there_is_room(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    monkeypatch.setenv("TINY_SECONDS", "0.3")
    other = tiny.output / "linux_64_other"
    (other / "tree").mkdir(parents=True)
    (other / "lock").touch()
    (other / "tree" / tree_reuse.STAMP).write_bytes(bytes(2 * MEGABYTE))
    cache = tmp_path / "cache"
    with in_use.using(cache):
        pass
    state, paused = tiny.options().state, []

    def meddle() -> None:
        wait_for(lambda: (state / state_file.NAME).exists() and objects(tiny) >= moment)
        filler = fill(tiny.output.parent, leave=80 * MEGABYTE)
        wait_for(lambda: (found := look(state).state) is not None and found.status == "paused")
        paused.append(look(state).state)
        filler.unlink()

    thread = beside(meddle)
    summary = tiny.run(cache=cache)
    thread.join()
    assert summary.ok
    (seen,) = paused
    assert seen is not None
    assert "MB are free" in seen.note
    assert "tree of linux_64_other (2.0 MB)" in seen.note
    assert len(tiny.of(events.Paused)) == len(tiny.of(events.WentOn)) == 1
    last = look(state).state
    assert last is not None
    assert (last.status, last.note) == ("done", "")


def test_a_disk_that_stays_full_ends_the_run_and_all_is_kept(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_PATIENCE_SECONDS", 3.0)
    monkeypatch.setenv("TINY_SECONDS", "0.3")

    def meddle() -> None:
        wait_for(lambda: objects(tiny) >= 2)
        fill(tiny.output.parent, leave=80 * MEGABYTE)

    thread = beside(meddle)
    with pytest.raises(OutOfSpaceError, match="are free"):
        tiny.run()
    thread.join()
    found = look(tiny.options().state).state
    assert found is not None
    assert (found.status, found.exit_code) == ("failed", 12)
    (tiny.output.parent / "filler").unlink()
    assert tiny.run().ok
    (decided,) = tiny.of(events.StagingDecided) or [None]
    assert decided is None or decided.decision in ("resume", "reuse")
