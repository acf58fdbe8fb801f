"""Show progress: redrawn lines on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from groundwork.progress import WARNING, Preparing
from groundwork.text import folded, plain, plain_lines, printable
from megabuild.status.record import RunRecord
from megabuild.status.show import activity_line, figures, record_lines, run_line
from megabuild.status.status import PHASE, Status, logger, script_lines

_QUIET_SECONDS, _NOTE_SECONDS = 60.0, 5.0


def show(console: Console, rows: Sequence[str]) -> None:
    """Print permanent lines, with the signs that the console's stream can show."""
    console.out(folded(printable("\n".join(rows), console.file), console.file), highlight=False)
    sys.stdout.flush()


class _Bar(ProgressColumn):
    """A bar for tasks of a known length."""

    def render(self, task: Task) -> RenderableType:
        return BarColumn(bar_width=20).render(task) if task.total else Text("")


def moves(console: Console) -> bool:
    """Return whether a console can redraw lines."""
    return console.is_terminal and not console.is_dumb_terminal


def moving_lines(console: Console) -> Progress:
    """Return an empty display of redrawn lines."""
    column = Column(no_wrap=True, overflow="ellipsis")
    text = TextColumn("{task.description}", markup=False, table_column=column)
    return Progress(text, _Bar(), console=console, transient=True, auto_refresh=False)


def show_records(lines: Progress, records: Iterable[RunRecord], now: float) -> None:
    """Replace the lines of a display by the state of runs in progress."""
    for row in lines.task_ids:
        lines.remove_task(row)
    for record in records:
        share = 100.0 if record.seconds_left is not None else None
        line = f"{plain(record.config)}: {run_line(record, now)}"
        lines.add_task(line, total=share, completed=round(100 * record.share))
        for activity in record.activities:
            line = activity_line(activity, now, rate=record.seconds_left is None)
            lines.add_task(line, total=activity.total or None, completed=activity.done)
        lines.add_task(figures(record), total=None)
    lines.refresh()


class Screen(logging.Handler):
    """Shows messages of ``logging`` and the status of a run.

    A terminal shows the status below the messages and redraws it. Elsewhere each message and phase is a line with the
    time since the start; after a minute without a line, the status is printed as one.
    """

    def __init__(self, console: Console | None = None, *, verbose: bool = False) -> None:
        console = console or Console(stderr=True, soft_wrap=True)
        self._moving = moves(console)
        super().__init__(logging.INFO if self._moving else PHASE)
        self._console, self._verbose = console, verbose
        self._lines = moving_lines(console)
        self._status: Status | None = None
        self._started = self._told = time.monotonic()
        self._noted = -_NOTE_SECONDS

    def __enter__(self) -> Screen:
        logger.addHandler(self)
        if self._verbose:
            script_lines.addHandler(self)
            script_lines.setLevel(logging.INFO)
        if self._moving:
            self._lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        logger.removeHandler(self)
        script_lines.removeHandler(self)
        script_lines.setLevel(logging.CRITICAL)
        if self._moving:  # elsewhere it would print an empty line
            self._lines.stop()

    def follow(self, status: Status) -> None:
        """Show the status of a run from now on."""
        self._status = status
        status.watch = self._show_status

    def emit(self, record: logging.LogRecord) -> None:
        text, warns = record.getMessage(), record.levelno == logging.WARNING
        self.tell(f"{WARNING}{text}" if warns else text)

    def note(self, what: str | Preparing) -> None:
        """Show a report of a slow step: every warning, but few of many reports in quick succession."""
        text = plain_lines(str(what))
        if isinstance(what, Preparing) and what.done:
            return
        if text.startswith(WARNING):
            self.tell(text)
        elif self._moving:
            self._show_step(text)
        elif time.monotonic() - self._noted >= _NOTE_SECONDS:
            self._noted = time.monotonic()
            self.tell(text)

    def tell(self, text: str) -> None:
        """Print a permanent line."""
        self._told = time.monotonic()
        text = folded(printable(text, self._console.file), self._console.file)
        if self._moving:
            style = "yellow" if text.startswith(WARNING) else "green" if text.startswith("✓") else ""
            self._console.print(Text(text, style=style))
        else:
            whole = int(self._told - self._started)
            clock = f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
            self._console.out(f"[{clock}] {text}", highlight=False)

    def count(self, what: str, done: int, total: int) -> None:
        """Show the progress of work outside a run."""
        text = f"{plain(what)} {done}/{total}" if total else plain(what)
        if self._moving:
            self._show_step(text)
        elif total and (done == total or time.monotonic() - self._told >= _QUIET_SECONDS):
            self.tell(text)

    def _show_step(self, text: str) -> None:
        for row in self._lines.task_ids:
            self._lines.remove_task(row)
        self._lines.add_task(plain(text), total=None)
        self._lines.refresh()

    def _show_status(self) -> None:
        assert self._status is not None
        with self._status.lock:
            if self._moving:
                show_records(self._lines, [self._status.record], time.time())
            elif time.monotonic() - self._told >= _QUIET_SECONDS:
                self.tell("; ".join(record_lines(self._status.record, time.time())))
