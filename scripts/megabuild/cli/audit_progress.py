"""What is being asked while an audit runs: one line that moves on a terminal, nothing elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from megabuild.audit.gather import Step
from megabuild.cli.text import Signs, duration

_WIDTH = 12


class Progress:
    """Shows how many sources have answered, and what those that have not are doing.

    Parameters
    ----------
    console:
        On standard error.
    total:
        How many answers are waited for.
    """

    def __init__(self, console: Console, total: int) -> None:
        self._signs, self._total, self._done = Signs.of(console.file), total, 0
        self._running: dict[tuple[str, str], None] = {}
        self._said: dict[str, str] = {}
        self._started = time.monotonic()
        #: To be entered where there is a terminal; None elsewhere.
        self.live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self.live = Live(console=console, transient=True, refresh_per_second=5, get_renderable=self.line)

    def step(self, step: Step) -> None:
        """Take what `megabuild.audit.gather.gather` reports."""
        package, source, outcome = step
        if outcome is None:
            self._running[package, source] = None
        else:
            self._running.pop((package, source), None)
            self._done += 1

    def say(self, source: str, text: str) -> None:
        """Take what a source says of itself; called from any thread."""
        self._said[source] = text

    def line(self) -> Text:
        """Return what is shown now."""
        full = self._done * _WIDTH // max(1, self._total)
        line = Text(no_wrap=True, overflow="ellipsis").append(self._signs.full * full, "green")
        line.append(self._signs.empty * (_WIDTH - full), "dim")
        line.append(f" {self._done}/{self._total}  {duration(time.monotonic() - self._started)}  ")
        waiting = [self._said.get(source, source) for _, source in list(self._running)[:3]]
        return line.append("; ".join(dict.fromkeys(waiting)), "dim")
