"""Show progress: redrawn lines on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import timedelta

from rich.console import Console
from rich.live import Live
from rich.text import Text

from groundwork.progress import WARNING, Preparing
from groundwork.text import plain, plain_lines, printable
from megabuild.status.record import RunRecord
from megabuild.status.show import record_lines
from megabuild.status.status import PHASE, Status, logger, script_lines

_QUIET_SECONDS, _NOTE_SECONDS = 60.0, 30.0


def moving_lines(console: Console) -> Live:
    """Return an empty display of redrawn lines; a console that cannot redraw shows none."""
    if not console.is_terminal or console.is_dumb_terminal:
        console = Console(quiet=True, force_terminal=False)
    return Live(console=console, transient=True, auto_refresh=False)


def redraw(lines: Live, rows: Iterable[str]) -> None:
    """Replace the lines of a display; a terminal cuts them at its width."""
    lines.update(Text("\n".join(rows), no_wrap=True, overflow="ellipsis"), refresh=True)


def named_lines(record: RunRecord, now: float) -> list[str]:
    """Return the lines of a run in progress, with its config's name."""
    first, *rest = record_lines(record, now)
    return [f"{plain(record.config)}: {first}", *rest]


class Screen(logging.Handler):
    """Shows messages of ``logging`` and the status of a run.

    A terminal shows the status below the messages and redraws it. Elsewhere each message and phase is a line with the
    time since the start; after a minute without a line, the status is printed as one.
    """

    def __init__(self, console: Console | None = None, *, verbose: bool = False) -> None:
        self._console, self._verbose = console or Console(stderr=True, soft_wrap=True), verbose
        self._lines = moving_lines(self._console)
        self._moving = not self._lines.console.quiet
        super().__init__(logging.INFO if self._moving else PHASE)
        self._status: Status | None = None
        self._started = self._told = time.monotonic()
        self._noted = -_NOTE_SECONDS

    def __enter__(self) -> Screen:
        logger.addHandler(self)
        if self._verbose:
            script_lines.addHandler(self)
            script_lines.setLevel(logging.INFO)
        self._lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        logger.removeHandler(self)
        script_lines.removeHandler(self)
        script_lines.setLevel(logging.CRITICAL)
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
            redraw(self._lines, [plain(text)])
        elif time.monotonic() - self._noted >= _NOTE_SECONDS:
            self._noted = time.monotonic()
            self.tell(text)

    def tell(self, text: str) -> None:
        """Print a permanent line."""
        self._told = time.monotonic()
        text = printable(text, self._console.file)
        if self._moving:
            style = "yellow" if text.startswith(WARNING) else "green" if text.startswith("✓") else ""
            self._console.print(Text(text, style=style))
        else:
            clock = timedelta(seconds=int(self._told - self._started))
            self._console.out(f"[{clock}] {text}", highlight=False)

    def _show_status(self) -> None:
        assert self._status is not None
        with self._status.lock:
            if self._moving:
                redraw(self._lines, named_lines(self._status.record, time.time()))
            elif time.monotonic() - self._told >= _QUIET_SECONDS:
                self.tell("; ".join(record_lines(self._status.record, time.time())))
