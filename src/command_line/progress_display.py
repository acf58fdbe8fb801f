"""Show progress: lines on a terminal that are redrawn every second, occasional lines elsewhere."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console
from rich.live import Live
from rich.text import Text

from groundwork.folding import fold, folded, terminal_width
from groundwork.progress import WARNING, Preparing
from groundwork.text import Sign, plain, plain_lines, printable
from megabuild.status.record import Activity, RunRecord
from megabuild.status.show import activity_line, record_lines
from megabuild.status.status import PHASE, Status, logger, script_lines

_TICK_SECONDS = 1.0
_QUIET_SECONDS = 60.0
_NOTE_SECONDS = 30.0


def moving_lines(console: Console) -> Live:
    """Return an empty display of redrawn lines; a console that cannot redraw shows none."""
    if not console.is_terminal or console.is_dumb_terminal:
        console = Console(quiet=True, force_terminal=False)
    return Live(console=console, transient=True, auto_refresh=False)


def redraw(lines: Live, rows: Iterable[str]) -> None:
    """Replace the lines of a display, folded to the terminal's width."""
    width = terminal_width(lines.console.file, os.environ) or lines.console.width
    parts: list[str] = []
    for row in rows:
        parts += fold(row, width)
    lines.update(Text("\n".join(parts), no_wrap=True, overflow="ellipsis"), refresh=True)


def named_lines(record: RunRecord, now: float) -> list[str]:
    """Return the lines of a run in progress, with its config's name."""
    first, *rest = record_lines(record, now)
    return [f"{plain(record.config)}: {first}", *rest]


def _style(text: str) -> str:
    """Return rich's name of a line's colour, or an empty string."""
    if text.startswith(WARNING):
        return "yellow"
    if text.startswith(Sign.done):
        return "green"
    return ""


@dataclass(frozen=True, kw_only=True)
class View:
    """Where a command shows its progress."""

    console: Console
    #: level of ``logging`` from which on messages are shown, alone, for a process that passes them on; 0: there is none
    relay_level: int = 0

    def screen(self, *, what: str = "working", verbose: bool = False) -> Screen:
        """Return a display."""
        return Screen(self.console, what=what, verbose=verbose, relay_level=self.relay_level)


class Screen(logging.Handler):
    """Shows messages of ``logging``, and the status of a run or the slow step that was reported last.

    A terminal shows the status below the messages; a thread redraws it every second, whatever the program waits for.
    Elsewhere each message and phase is a line with the time since the start; after a minute without a line, the status
    is printed as one. With ``relay_level``, messages are lines without a time, for a process that passes them on.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        what: str = "working",
        verbose: bool = False,
        relay_level: int = 0,
    ) -> None:
        """``what``: shown before the first report of a slow step, and between two of them."""
        self._console = console or Console(stderr=True, soft_wrap=True)
        self._verbose = verbose
        self._lines = moving_lines(self._console)
        self._moving = not self._lines.console.quiet
        self._is_relayed = relay_level > 0
        super().__init__(relay_level or PHASE)
        if self._moving:  # phases are in the moving lines
            self.setLevel(logging.INFO)
        self._status: Status | None = None
        self._own_rows: Callable[[], list[str]] | None = None
        self._own_sentence: Callable[[], str] | None = None
        self._started = self._told = time.monotonic()
        self._noted = -_NOTE_SECONDS
        self._what = what
        self._step = Activity(task="", what=what, since=time.time())
        self._ended = threading.Event()
        self._clock = threading.Thread(target=self._keep_time, name="display", daemon=True)

    def __enter__(self) -> Screen:
        logger.addHandler(self)
        if self._verbose:
            script_lines.addHandler(self)
            script_lines.setLevel(logging.INFO)
        self._lines.start()
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        logger.removeHandler(self)
        script_lines.removeHandler(self)
        script_lines.setLevel(logging.CRITICAL)
        self._ended.set()
        self._clock.join()
        self._lines.stop()

    def follow(self, status: Status) -> None:
        """Show the status of a run from now on."""
        self._status = status
        status.watch = self._show

    def show_rows(self, rows: Callable[[], list[str]], sentence: Callable[[], str]) -> None:
        """From now on, show the lines that a function returns; without moving lines, the sentence of another one."""
        self._own_rows = rows
        self._own_sentence = sentence

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.name == script_lines.name:
            self._print(self._stamped(text))  # output of programs, whose lines stay as they are
        elif record.levelno == logging.WARNING:
            self.tell(f"{WARNING}{text}")
        else:
            self.tell(text)

    def note(self, what: str | Preparing) -> None:
        """Show a report of a slow step: every warning, but few of many reports in quick succession."""
        text = plain_lines(str(what))
        if text.startswith(WARNING):
            self.tell(text)
            return
        if isinstance(what, Preparing) and (what.done or what.has_ended):
            self._advance(text, what)
            return
        self._step = Activity(task="", what=text, since=time.time())
        if self._moving:
            self._show()
        elif time.monotonic() - self._noted >= _NOTE_SECONDS:
            self._noted = time.monotonic()
            self.tell(text)

    def _advance(self, text: str, progress: Preparing) -> None:
        """Set the progress of the step shown; a finished one gives way to the next, not named yet."""
        if text != self._step.what:
            return
        if progress.has_ended:
            self._step = Activity(task="", what=self._what, since=time.time())
        else:
            self._step.done = progress.done
            self._step.total = progress.total
            self._step.unit = progress.unit

    def tell(self, text: str) -> None:
        """Print a permanent line, folded on a terminal."""
        self._print(folded(self._stamped(text), self._console.file))

    def block(self, lines: Iterable[str]) -> None:
        """Print permanent lines without the time."""
        text = printable("\n".join(lines), self._console.file)
        self._print(folded(text, self._console.file))

    def _stamped(self, text: str) -> str:
        """Return a line with the signs that the stream can show; without moving lines, after the time."""
        text = printable(text, self._console.file)
        if self._moving or self._is_relayed:
            return text
        clock = timedelta(seconds=int(time.monotonic() - self._started))
        return f"[{clock}] {text}"

    def _print(self, text: str) -> None:
        self._told = time.monotonic()
        if self._moving:
            self._console.print(Text(text, style=_style(text)))
        else:
            self._console.out(text, highlight=False)

    def _keep_time(self) -> None:
        """Show the status every second, until the display ends or its reader is gone."""
        with suppress(OSError):  # the thread that waits meets the closed pipe at its next line
            while not self._ended.wait(_TICK_SECONDS):
                if self._status is not None:
                    self._status.beat()
                self._show()

    def _show(self) -> None:
        """Redraw the lines of a terminal; elsewhere print a line after a minute without one."""
        if self._moving:
            redraw(self._lines, self._rows(named_lines))
        elif self._is_relayed:
            return
        elif time.monotonic() - self._told >= _QUIET_SECONDS:
            self.tell(self._sentence())

    def _sentence(self) -> str:
        """Return the status on one line."""
        if self._own_sentence is not None:
            return self._own_sentence()
        return "; ".join(self._rows(record_lines))

    def _rows(self, lines_of: Callable[[RunRecord, float], list[str]]) -> list[str]:
        """Return the lines of the run, or of the step that was reported last, or the display's own."""
        if self._own_rows is not None:
            return self._own_rows()
        now = time.time()
        if self._status is None:
            return [activity_line(self._step, now)]
        with self._status.lock:
            return lines_of(self._status.record, now)
