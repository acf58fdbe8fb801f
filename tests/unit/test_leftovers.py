"""Files that killed processes leave are removed by the next run; errors of odd file systems name the path."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from import_path import packages_path
from small_files import write
from stop_at_write import every_stop
from tiny import Tiny, make_channel, make_package, publish
from wheel_files import make_wheel

from conda_wheels import simple_index
from groundwork import channel_folder, files, in_use
from groundwork.channel import Channel
from groundwork.errors import BusyError, PreflightError, UsageError, of_system
from groundwork.redact import Mask
from megabuild import environments
from megabuild.run import session
from megabuild.run.logfile import LogFile


@pytest.fixture
def dead() -> int:
    """The id of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


def test_an_index_that_a_killed_process_began_does_not_stay(tmp_path: Path) -> None:
    make_package(tmp_path / "linux-64", "a", "1", "0")
    leftover, mine = (write(tmp_path / ".tmp" / name) for name in ("repodata.json.1a2B3c4d", "notes"))
    channel_folder.write_index(tmp_path, "linux-64")
    assert (leftover.exists(), mine.exists()) == (False, True)
    mine.unlink()
    channel_folder.write_index(tmp_path, "linux-64")
    assert not (tmp_path / ".tmp").exists()


def test_unfinished_files_of_dead_processes_are_removed(tmp_path: Path, dead: int) -> None:
    gone = write(tmp_path / f"state.json.{dead}-140001.new")
    kept = [
        write(tmp_path / name)
        for name in (
            f"state.json.{os.getpid()}-1.new",
            "notes.new",
            f"{dead}-1.new",
            f"state.{dead}-1.new.txt",
        )
    ]
    files.remove_unfinished(tmp_path, age=60.0)
    assert gone.exists()
    files.remove_unfinished(tmp_path)
    assert not gone.exists()
    assert all(path.exists() for path in kept)


def test_a_run_removes_unfinished_files_of_its_own_and_old_ones_of_the_output_folder(
    tmp_path: Path, dead: int
) -> None:
    """A run of another host may be writing there: its process is unknown here."""
    output, state, packages = (tmp_path / name for name in ("output", "output/x", "packages"))
    young, old, *own = (
        write(folder / f"{name}.{dead}-1.new")
        for folder, name in ((output, "young"), (output, "old"), (state, "own"), (packages, "own"))
    )
    os.utime(old, (1, 1))
    session._remove_unfinished(cast(Any, SimpleNamespace(output=output, state=state, packages=packages)))
    assert young.exists()
    assert not [path for path in (old, *own) if path.exists()]


def test_a_copy_removes_the_half_of_a_killed_one(
    tmp_path: Path, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "source", "content")
    half = write(tmp_path / f".tmp-{dead}-0123abcd-[copy]")
    kept = [
        write(tmp_path / name)
        for name in (f".tmp-{os.getpid()}-0123abcd-[copy]", f".tmp-{dead}-0123abcd-other", ".tmp-mine-[copy]")
    ]
    files.copy(source, tmp_path / "[copy]")
    assert half.exists(), "of another host, maybe"
    monkeypatch.setattr(files, "_STALE_SECONDS", -1.0)
    files.copy(source, tmp_path / "[copy]")
    assert not half.exists()
    assert all(path.exists() for path in kept)


def test_a_run_removes_what_a_killed_one_left(tiny: Tiny, dead: int) -> None:
    options = tiny.options()
    for folder in (options.state, options.packages):
        write(folder / f"x.json.{dead}-1.new")
    tiny.run()
    assert [path for path in tiny.output.rglob("*.new") if "build_cache" not in path.parts] == []


def entry(path: Path) -> simple_index.IndexedWheel:
    return simple_index.index_entry(
        path, project="a", python=None, package=files.sha256(path), inputs=files.sha256(path)
    )


def test_an_index_of_wheels_killed_anywhere_keeps_one_former_at_most(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    old, new = (
        make_wheel(tmp_path / name, "a-1-py3-none-any.whl", {"a.py": name.encode()})
        for name in ("old", "new")
    )
    simple_index.publish(folder, {entry(old): old})
    for stopped in every_stop(folder, lambda here: simple_index.publish(here, {entry(new): new})):
        assert [wheel.sha256 for wheel in simple_index.read(stopped)] in (
            [entry(old).sha256],
            [entry(new).sha256],
        )
        simple_index.remove_former(stopped)
        assert len(list(stopped.glob(".simple-*"))) == 1
        simple_index.publish(stopped, {entry(new): new})
        assert [wheel.sha256 for wheel in simple_index.read(stopped)] == [entry(new).sha256]
        assert len(list(stopped.glob(".simple-*"))) == 1


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=r"'.*lock'") as raised, files.FileLock(tmp_path / "lock"):
        pass
    shown = of_system(raised.value)
    assert isinstance(shown, PreflightError)
    assert shown.message == f"{tmp_path}/lock: its file system has no locks"
    assert shown.remedy.startswith("use a folder whose file system has locks: ")
    assert "MEGABUILD_CACHE" in shown.remedy
    with (
        pytest.raises(OSError, match=r"cache\.lock'") as raised,
        in_use.exclusive_lock(tmp_path, in_use.SHARED),
    ):
        pass
    assert raised.value.errno == errno.ENOLCK


def test_a_file_system_without_links_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(target: object, link: object, *_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), target, None, link)

    monkeypatch.setattr(os, "symlink", refuse)
    with LogFile(tmp_path, "run", Mask({})) as log, pytest.raises(OSError, match=r"latest\.log'"):
        log.become_latest()


@pytest.fixture
def solution(tmp_path: Path) -> environments.Solution:
    channel = make_channel(tmp_path / "channel")
    published = tmp_path / "output" / "packages" / "config"
    publish(published, [make_package(tmp_path / "made" / "linux-64", "lib", "1", "0", depends=["tool"])])
    return environments.solve(published, ["lib"], more=[Channel.of_folder(channel)], platform="linux-64")


def contents(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_an_environment_killed_anywhere_is_made_again(
    tmp_path: Path, solution: environments.Solution
) -> None:
    def create(here: Path) -> None:
        environments.create(here / "env", solution, cache=tmp_path / "cache", report=lambda _: None)

    here = tmp_path / "here"
    here.mkdir()
    create(here)
    whole = contents(here)
    write(here / "env" / environments._UNFINISHED)  # as if it was killed at its end
    write(here / "env" / "half" / "file")
    for stopped in every_stop(here, create):
        if (stopped / "env" / environments._UNFINISHED).exists():
            create(stopped)
        assert contents(stopped) - {f"env/{environments._LOCK}"} == whole


def test_a_folder_with_other_files_is_no_unfinished_environment(
    tmp_path: Path, solution: environments.Solution
) -> None:
    mine = write(tmp_path / "env" / "mine")
    (tmp_path / "env" / environments._UNFINISHED).symlink_to("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        environments.create(tmp_path / "env", solution, cache=tmp_path, report=lambda _: None)
    assert mine.exists()


def test_an_environment_in_progress_is_left_alone(tmp_path: Path, solution: environments.Solution) -> None:
    folder = tmp_path / "env"
    write(folder / environments._UNFINISHED)
    write(folder / "half")
    with files.sole_user(folder / environments._LOCK, ""), pytest.raises(BusyError):
        environments.create(folder, solution, cache=tmp_path, report=lambda _: None)
    assert (folder / "half").exists()


STORM = """
import subprocess, sys, time, click
from command_line.run_command import run
@click.command()
def storm():
    subprocess.Popen(["sh", "-c", "sleep 0.2; while kill -TERM $PPID; do :; done"], stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL)
    try:
        time.sleep(20)
    finally:
        time.sleep(0.3)
        print("cleaned up", flush=True)
run(storm, name="storm")
"""


def test_a_storm_of_signals_ends_with_the_code_of_an_interruption(repository: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": packages_path(repository), "HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", STORM], capture_output=True, text=True, env=environment, check=False
    )
    assert (ended.returncode, ended.stdout) == (130, "cleaned up\n"), ended.stderr
