"""A signal is an interruption; code that explains errors must not report it as an error. A task ends
at its next step."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from command_line.run_command import Invocation, outcome
from groundwork import interrupts
from groundwork.channel import Channel
from groundwork.errors import ProviderError
from megabuild.engine import output_folder
from megabuild.engine.job import Outcome, OutcomeKind
from megabuild.plan import solving
from megabuild.providers.command import each
from megabuild.providers.environment import Environment
from megabuild.providers.local.package import LocalPackage, build
from megabuild.run import attempt, graph

BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])


@contextmanager
def signalled(number: signal.Signals, seconds: float) -> Iterator[None]:
    """Send this process a signal after some time, as a service manager or a terminal does."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), number))
    with interrupts.stop_on_signals():
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def stops(number: signal.Signals) -> bool:
    """Send this process a signal, and return whether it was an interruption."""
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt as interruption:
        return str(interruption) == number.name
    return False


@BOTH
def test_the_first_signal_stops_and_later_ones_do_not_disturb_the_end(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(each) for each in both]
    clock = SimpleNamespace(monotonic=lambda: 1000.0)
    monkeypatch.setattr(interrupts, "time", clock)
    for _ in range(2):  # a second command of one process is stopped at once, too
        with interrupts.stop_on_signals(), interrupts.stop_on_signals():
            assert stops(number)
            with interrupts.stop_on_signals():
                assert not any(map(stops, both))
            clock.monotonic = lambda: 1009.0
            assert not any(map(stops, both))
            clock.monotonic = lambda: 1011.0
            assert stops(number)
            assert not any(map(stops, both))
        clock.monotonic = lambda: 1000.0
        assert [signal.getsignal(each) for each in both] == before


@BOTH
def test_a_signal_that_the_caller_ignores_stays_ignored(number: signal.Signals) -> None:
    """nohup(1) ignores SIGHUP so that a run outlasts its terminal."""
    (other,) = {signal.SIGTERM, signal.SIGHUP} - {number}
    former = signal.signal(number, signal.SIG_IGN)
    try:
        with interrupts.stop_on_signals():
            assert (stops(number), stops(other)) == (False, True)
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, former)


def test_a_signal_while_a_package_is_read_keeps_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "linux-64" / "libtorch-1-0.conda"
    package.parent.mkdir()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("pkg", "content")
    read = zipfile.ZipFile.testzip

    def signalled_on_the_way(archive: zipfile.ZipFile) -> str | None:
        os.kill(os.getpid(), signal.SIGTERM)
        return read(archive)

    monkeypatch.setattr(zipfile.ZipFile, "testzip", signalled_on_the_way)
    with pytest.raises(KeyboardInterrupt), interrupts.stop_on_signals():
        output_folder.heal(tmp_path)
    assert package.is_file()


def test_a_signal_during_a_solve_is_not_a_missing_package() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        channel = f"http://127.0.0.1:{silent.getsockname()[1]}/channel"
        with pytest.raises(KeyboardInterrupt), signalled(signal.SIGTERM, 0.5):
            solving.environment(
                ["python"], Environment(channels=(Channel.parse(channel),), pythons=()), "linux-64", "staging"
            )


@BOTH
def test_the_command_line_names_the_signal(
    number: signal.Signals, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal comes first")

    assert outcome(lambda: command.main([], standalone_mode=False), invocation) == 130
    assert re.search(rf"error: .*{number.name}\n", capsys.readouterr().err)


def test_a_signal_does_not_wait_for_threads() -> None:
    over = threading.Event()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt), signalled(signal.SIGTERM, 0.3):
            list(each(lambda _: over.wait(60), range(3), 2))
        assert time.monotonic() - began < 30
    finally:
        over.set()


@pytest.mark.parametrize("failing", range(3))
def test_an_error_waits_for_running_threads_and_starts_no_others(failing: int) -> None:
    """The caller of a failed task deletes the folders in which the others still write."""
    running = threading.Barrier(3)
    ended: set[int] = set()

    def work(number: int) -> None:
        if number < 3:
            running.wait(30)
        if number == failing:
            raise ProviderError("x")
        time.sleep(0.4)
        ended.add(number)

    with pytest.raises(ProviderError):
        list(each(work, range(60), 3))
    known = frozenset(ended)
    assert known >= {0, 1, 2} - {failing}
    time.sleep(0.6)
    assert ended == known, "none is still running"
    assert len(ended) < 50, "waiting tasks are cancelled"


def test_a_signal_while_a_package_is_packed_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))

    def fill(prefix: Path) -> None:
        with (prefix / "noise").open("wb") as file:
            for _ in range(12):  # compressing it takes a moment
                file.write(os.urandom(8_000_000))
        threading.Thread(target=stop_the_engine, daemon=True).start()

    def stop_the_engine() -> None:
        while not (tmp_path / "output").exists():  # the engine creates it first
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    package = LocalPackage(name="thing", version="1.0", platform="linux-64", fill=fill)
    with pytest.raises(KeyboardInterrupt), interrupts.stop_on_signals():
        build(package, tmp_path)
    assert not any(zipfile.is_zipfile(path) for path in tmp_path.rglob("*.conda"))
    assert not list(elsewhere.iterdir())


def test_a_task_that_is_to_end_ends_at_its_next_step() -> None:
    stop = threading.Event()
    task = cast(Any, SimpleNamespace(_stop=stop, name="a"))
    attempt.Attempt.halt(task)
    stop.set()
    with pytest.raises(graph.Stopped):
        attempt.Attempt.halt(task)


@pytest.mark.parametrize("ended", [False, True])
def test_a_worker_of_a_task_that_is_to_end_is_left(
    ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has ended meanwhile is not: its packages are published."""
    ticks: list[str] = []
    outcome = Outcome(ok=True, kind=OutcomeKind.OK, message="")

    def run_worker(*_: object, on_tick: Callable[[], None], **__: object) -> Outcome:
        on_tick()
        ticks.append("went on")
        task._stop.set()
        if not ended:
            on_tick()
        return outcome

    monkeypatch.setattr(attempt, "remove_programs", lambda _: None)
    monkeypatch.setattr(attempt, "run_worker", run_worker)
    task = object.__new__(attempt.Attempt)
    watch = SimpleNamespace(tick=lambda: ticks.append("tick"))
    vars(task).update(
        state=tmp_path,
        name="a",
        _stop=threading.Event(),
        _compiling=False,
        _memory=watch,
        _steps=lambda _: [],
        _log=print,
        log=SimpleNamespace(hide=str),
    )
    if ended:
        assert task.follow(cast(Any, None), cast(Any, None)) == outcome
    else:
        with pytest.raises(graph.Stopped):
            task.follow(cast(Any, None), cast(Any, None))
    assert ticks == ["tick", "went on", "tick"]
