"""Showing events while something goes on: lines that move on a terminal, sparse lines elsewhere, groups on GitHub.

Of a run all of them show its :class:`~groundwork.run_state.RunState`, by :mod:`megabuild.state.lines`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from command_line import github
from groundwork import events
from groundwork.events import WARNING as WARNING
from groundwork.run_state import RunState
from groundwork.text import Signs, duration, fitted, plain, plain_lines
from megabuild.state.lines import bar, heartbeat, state_lines

_QUIET_SECONDS = 60.0
_NOTE_SECONDS = 5.0


def reporter(console: Console) -> PlainReporter:
    """Return the reporter that suits a console."""
    if github.runs_here(os.environ):
        return GitHubReporter(console)
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveReporter(console) if live else PlainReporter(console)


def show(console: Console, lines: Sequence[str]) -> None:
    """Print lines that stay, with the signs that the console's stream has."""
    text = plain_lines(Signs.of(console.file).in_place_of_unicode("\n".join(lines)))
    console.out(fitted(text, console.width) if console.is_terminal else text, highlight=False)
    sys.stdout.flush()


class PlainReporter(AbstractContextManager["PlainReporter"]):
    """One line per event worth it, with the time since the start, and one at least each minute of a run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._signs = Signs.of(console.file)
        self._started = time.monotonic()
        self._told = self._started
        self._noted = -_NOTE_SECONDS
        self._state: RunState | None = None

    def __exit__(self, *_: object) -> None:
        """Leave the console as it was."""

    def __call__(self, event: events.Event, /) -> None:
        """Take one event."""
        if isinstance(event, events.Stands):
            self._state = event.state
            if not event.state.ended and time.monotonic() - self._told >= _QUIET_SECONDS:
                self._say(heartbeat(event.state, time.time()))
            return
        if isinstance(event, events.Noted):
            self.note(event.text)
            return
        line = event.sentence()
        if isinstance(event, events.InTask):
            event = event.event  # its own progress counts like anybody's
        if isinstance(event, events.Progress) and (event.done == event.total or self._overdue()):
            line = f"{event.step} {event.done}/{event.total}{_eta(event)}"
        if line is not None:
            self._say(line)

    def note(self, what: str | events.Preparing) -> None:
        """Take what is being prepared; of many in quick succession only some, but every warning."""
        text = what.sentence() if isinstance(what, events.Preparing) else what
        now = time.monotonic()
        if text is None or (not text.startswith(WARNING) and now - self._noted < _NOTE_SECONDS):
            return
        if not text.startswith(WARNING):
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

    def _overdue(self) -> bool:
        """Whether it is time for a line about ninja, where no run does that by its state."""
        return self._state is None and time.monotonic() - self._told >= _QUIET_SECONDS

    def _say(self, line: str) -> None:
        self._told = time.monotonic()
        self.tell(self._signs.in_place_of_unicode(line))


class GitHubReporter(PlainReporter):
    """Plain lines in GitHub's log, where each phase folds up."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._open = False

    def __call__(self, event: events.Event, /) -> None:
        """Take one event; a phase begins a group."""
        if isinstance(event, events.PhaseStarted) or (isinstance(event, events.Preparing) and not event.done):
            self.group(event.sentence() or "")
        super().__call__(event)

    def __exit__(self, *_: object) -> None:
        """Close the group."""
        if self._open:
            self._console.out(github.END_OF_GROUP, highlight=False)
            self._open = False

    def group(self, title: str) -> None:
        """Begin a group; there are none in one another."""
        self.__exit__()
        self._console.out(github.group(title), highlight=False)
        self._open = True


class LiveReporter(PlainReporter):
    """Lines without a time, and under them those that move: of a run its state, else a bar with ninja's steps."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._since = self._started
        self._step = "planning"
        self._progress: events.Progress | None = None
        # often enough for a clock; a refresh takes some milliseconds of the core that compiles
        self._live = Live(console=console, transient=True, refresh_per_second=1, get_renderable=self.lines)

    def __enter__(self) -> LiveReporter:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, event: events.Event, /) -> None:
        """Take one event."""
        if isinstance(event, events.Stands):
            before, self._state = self._state, event.state
            if before is None or [one.what for one in before.going] != [
                one.what for one in event.state.going
            ]:
                self._live.refresh()
            return
        line = event.sentence()
        if isinstance(event, events.Progress):
            self._progress, self._step = event, event.step
        elif line is not None and isinstance(event, events.PhaseStarted):
            self._moved(line)  # the moving lines say it
        elif line is not None and not isinstance(event, (events.TestRun, events.Preparing)):
            text = fitted(self._signs.in_place_of_unicode(plain_lines(line)), self._console.width)
            self._console.print(Text(text, style=_style(event)))

    def note(self, what: str | events.Preparing) -> None:
        """Take what is being prepared; it stays until the next, a warning for good."""
        if isinstance(what, events.Preparing):
            if not what.over:
                self._moved(what.what)
        elif what.startswith(WARNING):
            self._console.out(fitted(plain_lines(what), self._console.width), highlight=False)
        else:
            self._moved(what)

    def tell(self, text: str) -> None:
        """Take a line that stays; it is also what goes on now."""
        self._console.out(fitted(plain_lines(text), self._console.width), highlight=False)
        self._moved(text.strip())

    def _moved(self, what: str) -> None:
        self._step, self._progress, self._since = plain(what), None, time.monotonic()

    def ask(self, question: str) -> bool:
        """Put a question, with the moving lines out of the way."""
        self._live.stop()
        try:
            return super().ask(question)
        finally:
            self._live.start()

    def lines(self) -> Text:
        """Return everything that moves."""
        if self._state is None:
            return self.line()
        rows = state_lines(self._state, self._console.width, time.time())
        return self._shown("\n".join(rows))

    def line(self) -> Text:
        """Return the moving line of what is no run, as long as the console is wide."""
        progress = self._progress
        if progress is None or not progress.total:
            return self._shown(f"{self._step}  {duration(time.monotonic() - self._since)}")
        figures = f" {progress.done}/{progress.total}{_eta(progress)}  {self._step}"
        width = max(8, min(30, self._console.width - len(figures) - 1))
        return self._shown(bar(progress.done / progress.total, width) + figures)

    def _shown(self, text: str) -> Text:
        """Return text with this stream's signs, its bars coloured."""
        signs = self._signs
        found = Text(signs.in_place_of_unicode(text), no_wrap=True, overflow="ellipsis")
        if signs.full == "█":
            found.highlight_regex(f"{signs.full}+", "green")
            found.highlight_regex(f"{signs.empty}+", "dim")
        return found


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
