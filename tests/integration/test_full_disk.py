"""A disk that gets full during a build or while packages are packed: exit code 12; the next run continues."""

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
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local.package_store import PackageStore
from megabuild.status.reading import read_run_state


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=700m", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_ends_the_run_and_all_objects_are_kept(
    tiny: Tiny, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = replace(tiny, output=disk / "output")  # and a cache elsewhere
    monkeypatch.setenv("TINY_SECONDS", "0.3")
    state, filler = on_disk.options().state, disk / "filler"

    def fill_disk() -> None:
        wait_for(lambda: len(list(state.glob("tree/build/*.o"))) >= 2)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, disk_free(disk) - 20_000_000)

    thread = threading.Thread(target=fill_disk)
    thread.start()
    with pytest.raises(OutOfSpaceError):
        on_disk.run(cache=tmp_path / "cache")
    thread.join()
    record = read_run_state(state).record
    assert record is not None
    assert (record.status, record.exit_code) == ("failed", 12)
    filler.unlink()
    assert on_disk.run(cache=tmp_path / "cache").ok
    assert {decided for decided, _ in on_disk.decisions()} <= {"resume", "reuse"}


def test_a_full_disk_ends_the_packing_of_a_package(disk: Path) -> None:
    left = 50_000_000

    def fill(prefix: Path) -> None:
        (prefix / "file").write_bytes(os.urandom(disk_free(disk) - left))

    package = LocalPackage(name="large", version="1.0", platform="linux-64", inputs={}, fill=fill)
    store = PackageStore(disk / "cache")
    with pytest.raises(OutOfSpaceError, match=r"packaging large 1\.0: "):
        store.ensure([package], lambda _: None)
    store.clean()
    left = disk_free(disk) - 1000
    store.ensure([package], lambda _: None)
    assert store.missing([package]) == []
