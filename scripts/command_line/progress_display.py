"""Show what goes on: lines that move on a terminal, sparse lines elsewhere, groups on GitHub."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from command_line import github
from groundwork.progress import WARNING as WARNING
from groundwork.progress import Preparing
from groundwork.text import Signs, duration, fitted, plain, plain_lines
from megabuild.status.record import RunRecord
from megabuild.status.show import activity_line, figures, record_lines, run_line
from megabuild.status.status import PHASE, Status, logger, script_lines

_QUIET_SECONDS = 60.0
_NOTE_SECONDS = 5.0


def show(console: Console, rows: Sequence[str]) -> None:
    """Print lines that stay, with the signs that the console's stream has."""
    text = plain_lines(Signs.of(console.file).in_place_of_unicode("\n".join(rows)))
    console.out(fitted(text, console.width) if console.is_terminal else text, highlight=False)
    sys.stdout.flush()


class _Bar(ProgressColumn):
    """A bar for what is counted, nothing for the rest."""

    def render(self, task: Task) -> RenderableType:
        return BarColumn(bar_width=20).render(task) if task.total else Text("")


def moving_lines(record: RunRecord, now: float) -> RenderableType:
    """Return the lines of a run in progress for a terminal."""
    text = TextColumn(
        "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
    )
    rows = Progress(text, _Bar(), auto_refresh=False)
    done = round(100 * record.share) if record.seconds_left is not None else 0
    rows.add_task(run_line(record, now), total=100 if done else None, completed=done)
    for activity in record.activities:
        line = activity_line(activity, now, rate=record.seconds_left is None)
        rows.add_task(line, total=activity.total or None, completed=activity.done)
    return Group(rows.get_renderable(), Text(figures(record), no_wrap=True, overflow="ellipsis"))


class Screen(logging.Handler):
    """Shows the sentences of ``logging`` and, while there is one, the status of a run.

    On a terminal the status moves below the sentences. Elsewhere every sentence and phase is a line with the time since
    the start, and after a minute without any the status is one; on GitHub phases are groups that fold up.
    """

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        super().__init__()
        self._console, self._verbose = console, verbose
        self._signs = Signs.of(console.file)
        self._github = github.runs_here(os.environ)
        self._status: Status | None = None
        self._started = self._since = self._told = time.monotonic()
        self._noted, self._step, self._grouped = -_NOTE_SECONDS, "planning", False
        self._shown: list[str] = []
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal and not self._github:
            # often enough for a clock; a refresh takes some milliseconds of the core that compiles
            self._live = Live(
                console=console, transient=True, refresh_per_second=1, get_renderable=self._moving
            )
        self.setLevel(logging.INFO if self._live else PHASE)

    def __enter__(self) -> Screen:
        logger.addHandler(self)
        if self._verbose:
            script_lines.addHandler(self)
            script_lines.setLevel(logging.INFO)
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        logger.removeHandler(self)
        script_lines.removeHandler(self)
        script_lines.setLevel(logging.CRITICAL)
        if self._live:
            self._live.stop()
        self._end_group()

    def follow(self, status: Status) -> None:
        """Show the status of a run from now on."""
        self._status = status
        status.watch = self._beat

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self._github and record.levelno == PHASE and hasattr(record, "begins_phase"):
            self._end_group()
            self._console.out(github.group(text), highlight=False)
            self._grouped = True
        sign = f"{self._signs.warning} " if record.levelno == logging.WARNING else ""
        style = "yellow" if sign else "green" if text.startswith("✓") else ""
        self._line(sign + text, style)

    def note(self, what: str | Preparing) -> None:
        """Take what a slow step reports; of many in quick succession only some, but every warning."""
        text = plain_lines(str(what))
        if isinstance(what, Preparing) and what.done:
            return
        if text.startswith(WARNING):
            self._line(text, "yellow")
        elif self._live:
            self._step, self._since = plain(text), time.monotonic()
        elif time.monotonic() - self._noted >= _NOTE_SECONDS:
            self._noted = time.monotonic()
            self._line(text)

    def tell(self, text: str) -> None:
        """Take a line that stays; it is also what goes on now."""
        self._line(text)
        self._step, self._since = plain(text.strip()), time.monotonic()

    def count(self, what: str, done: int, total: int) -> None:
        """Take how far something is that is no run."""
        self._step = f"{plain(what)} {done}/{total}" if total else plain(what)
        if not self._live and total and (done == total or time.monotonic() - self._told >= _QUIET_SECONDS):
            self._line(self._step)

    def _line(self, text: str, style: str = "") -> None:
        self._told = time.monotonic()
        text = self._signs.in_place_of_unicode(plain_lines(text))
        if self._live:
            self._console.print(Text(fitted(text, self._console.width), style=style))
            return
        whole = int(self._told - self._started)
        clock = f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
        self._console.out(f"[{clock}] {text}", highlight=False)

    def _beat(self) -> None:
        """Show at once what has begun; off a terminal, a line about the run where nothing was printed for a minute."""
        assert self._status is not None
        with self._status.lock:
            activities = [activity.what for activity in self._status.record.activities]
            rows = record_lines(self._status.record, time.time())
        if self._live:
            if activities != self._shown:
                self._shown = activities
                self._live.refresh()
        elif time.monotonic() - self._told >= _QUIET_SECONDS:
            self._line("; ".join(rows))

    def _moving(self) -> RenderableType:
        if self._status is None:
            took = duration(time.monotonic() - self._since)
            return Text(f"{self._step}  {took}", no_wrap=True, overflow="ellipsis")
        with self._status.lock:
            return moving_lines(self._status.record, time.time())

    def _end_group(self) -> None:
        if self._grouped:
            self._console.out(github.END_OF_GROUP, highlight=False)
            self._grouped = False
