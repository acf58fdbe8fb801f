"""Showing events while a run is going on: a live line on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

import click
import psutil
from rich.console import Console
from rich.live import Live
from rich.text import Text

from groundwork import events
from groundwork.text import Signs, duration, plain, plain_lines, size

_QUIET_SECONDS = 60.0
_NOTE_SECONDS = 5.0
_MEMORY_SECONDS = 2.0
_MOST_TASKS = 8
_TASK_WIDTH = 12
#: Where one of several tasks stands.
_At: TypeAlias = "events.PhaseStarted | events.Progress | events.TestRun"


#: Begins a line about what is being prepared that must not be missed.
WARNING = "! "


def reporter(console: Console) -> PlainReporter:
    """Return the reporter that suits a console."""
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveReporter(console) if live else PlainReporter(console)


def show(console: Console, lines: Sequence[str]) -> None:
    """Print lines that stay, with the signs that the console's stream has."""
    text = Signs.of(console.file).in_place_of_unicode("\n".join(lines))
    console.out(plain_lines(text), highlight=False)
    sys.stdout.flush()


class PlainReporter(AbstractContextManager["PlainReporter"]):
    """One line per event worth it, with the time since the start; compiling says something once a minute at most."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._signs = Signs.of(console.file)
        self._started = time.monotonic()
        self._told = self._started
        self._noted = -_NOTE_SECONDS

    def __exit__(self, *_: object) -> None:
        """Leave the console as it was."""

    def __call__(self, event: events.Event, /) -> None:
        """Take one event."""
        line = self._sentence(event)
        if isinstance(event, events.InTask):
            event = event.event  # its own progress counts like anybody's
        if isinstance(event, events.Progress) and (
            time.monotonic() - self._told >= _QUIET_SECONDS or event.done == event.total
        ):
            line = f"{event.step} {event.done}/{event.total}{_eta(event)}"
        if line is not None:
            self._told = time.monotonic()
            self.tell(line)

    def note(self, text: str) -> None:
        """Take a line about what is being prepared; of many in quick succession only some, but every warning."""
        now = time.monotonic()
        if not text.startswith(WARNING):
            if now - self._noted < _NOTE_SECONDS:
                return
            self._noted = now
        self.tell(text)

    def tell(self, text: str) -> None:
        """Take a line that stays."""
        whole = int(time.monotonic() - self._started)
        clock = f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
        self._console.out(plain_lines(f"[{clock}] {text}"), highlight=False)

    def ask(self, question: str) -> bool:
        """Put a yes-or-no question to whoever can answer it here, the default being no."""
        return click.confirm(question, default=False, err=True)

    def _sentence(self, event: events.Event) -> str | None:
        line = event.sentence()
        return self._signs.in_place_of_unicode(line) if line is not None else None


class LiveReporter(PlainReporter):
    """Lines without a time, and under them one line that moves: bar, steps, time left, what is built, memory used."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._memory = Memory()
        self._since = self._started
        self._step = "planning"
        self._progress: events.Progress | None = None
        self._tasks: dict[str, _At | None] = {}
        self._tests: dict[str, None] = {}
        self._live = Live(console=console, transient=True, refresh_per_second=4, get_renderable=self.lines)

    def __enter__(self) -> LiveReporter:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, event: events.Event, /) -> None:
        """Take one event."""
        self._note_task(event)
        line = self._sentence(event)
        if isinstance(event, events.Progress):
            self._progress, self._step = event, event.step
        elif line is not None and isinstance(event, events.PhaseStarted):
            self._moved(line)  # the moving line says it
        elif line is not None and not isinstance(event, events.TestRun):
            self._console.print(Text(plain_lines(line), style=_style(event)))

    def note(self, text: str) -> None:
        """Take a line about what is being prepared; it stays until the next one, a warning for good."""
        if text.startswith(WARNING):
            self._console.out(plain_lines(text), highlight=False)
        else:
            self._moved(text)

    def tell(self, text: str) -> None:
        """Take a line that stays; it is also what goes on now."""
        self._console.out(plain_lines(text), highlight=False)
        self._moved(text.strip())

    def _moved(self, what: str) -> None:
        self._step, self._progress, self._since = plain(what), None, time.monotonic()

    def ask(self, question: str) -> bool:
        """Put a question, with the moving line out of the way."""
        self._live.stop()
        try:
            return super().ask(question)
        finally:
            self._live.start()

    def _note_task(self, event: events.Event) -> None:
        match event:
            case events.TaskStarted():
                self._tasks[event.task] = None
            case events.TaskEnded():
                self._tasks.pop(event.task, None)
            case events.TestRun():
                self._tests[event.name] = None
            case events.TestEnded():
                self._tests.pop(event.name, None)
            case events.InTask(event=events.PhaseStarted() | events.Progress() | events.TestRun() as at):
                if event.task in self._tasks:
                    self._tasks[event.task] = at
            case _:
                pass

    def lines(self) -> Text:
        """Return everything that moves: a line, or one for every task that runs, and one for the tests beside."""
        running = list(self._tasks.items())[:_MOST_TASKS]
        rows = [self._task_line(name, at) for name, at in running] or [self.line()]
        if len(self._tasks) > _MOST_TASKS:
            rows.append(Text(f"and {len(self._tasks) - _MOST_TASKS} more"))
        if self._tests:
            rows.append(Text(f"testing {', '.join(self._tests)}"))
        if not self._tasks:
            return Text("\n", no_wrap=True, overflow="ellipsis").join(rows)
        memory = self._memory.used()
        if memory:
            rows[-1].append(f"  {size(memory)}")
        return Text("\n", no_wrap=True, overflow="ellipsis").join(rows)

    def _task_line(self, name: str, at: _At | None) -> Text:
        if isinstance(at, events.Progress) and at.total:
            return self._bar(_TASK_WIDTH, at).append(f" {at.done}/{at.total}{_eta(at)}  {name}")
        what = "test" if isinstance(at, events.TestRun) else at.phase if at is not None else "environment"
        return self._bar(_TASK_WIDTH).append(f" {what}  {name}")

    def _bar(self, width: int, at: events.Progress | None = None) -> Text:
        full = width * at.done // at.total if at else 0
        bar = Text(no_wrap=True, overflow="ellipsis")
        return bar.append(self._signs.full * full, "green").append(self._signs.empty * (width - full), "dim")

    def line(self) -> Text:
        """Return the moving line, as long as the console is wide."""
        memory = self._memory.used()
        tail = f"  {size(memory)}" if memory else ""
        progress = self._progress
        if progress is None or not progress.total:
            text = f"{self._step}  {duration(time.monotonic() - self._since)}{tail}"
            return Text(text, overflow="ellipsis", no_wrap=True)
        figures = f" {progress.done}/{progress.total}{_eta(progress)}  {self._step}{tail}"
        width = max(8, min(30, self._console.width - len(figures) - 1))
        return self._bar(width, progress).append(figures)


class Memory:
    """Memory that this process and everything it started use, looked up now and then."""

    def __init__(self) -> None:
        self._asked = 0.0
        self._octets = 0

    def used(self) -> int:
        """Return resident bytes, at most a few seconds old; 0 where the system does not tell."""
        now = time.monotonic()
        if now - self._asked >= _MEMORY_SECONDS:
            self._asked, self._octets = now, 0
            with contextlib.suppress(psutil.Error):
                for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):  # it ended meanwhile
                        self._octets += process.memory_info().rss
        return self._octets


def _eta(event: events.Progress) -> str:
    return "" if event.eta_seconds is None else f"  {duration(event.eta_seconds)} left"


def _style(event: events.Event) -> str:
    match event:
        case events.PackageBuilt():
            return "green"
        case events.Warned():
            return "yellow"
        case events.Checked() | events.RunStarted():
            return "dim"
        case _:
            return ""
