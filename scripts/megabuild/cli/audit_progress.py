"""What is being asked while an audit runs: one line that moves on a terminal, nothing elsewhere."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from megabuild.audit.gather import Step
from megabuild.cli.text import Signs, duration

_WIDTH = 12


class Progress(AbstractContextManager["Progress"]):
    """Shows how many sources have answered, and what those that have not are doing.

    Parameters
    ----------
    console:
        On standard error.
    total:
        How many answers are waited for.
    """

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total = console, total
        self._signs = Signs.of(console.file)
        self._done = 0
        self._running: dict[tuple[str, str], str] = {}
        self._said: dict[str, str] = {}
        self._warnings: dict[str, None] = {}
        self._started = time.monotonic()
        shown = console.is_terminal and not console.is_dumb_terminal
        self._live = (
            Live(console=console, transient=True, refresh_per_second=5, get_renderable=self.line)
            if shown
            else None
        )

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the cache had to say, each once."""
        return tuple(self._warnings)

    def step(self, step: Step) -> None:
        """Take what `megabuild.audit.gather.gather` reports."""
        key = (step.package, step.source)
        if step.outcome is None:
            self._running[key] = ""
        else:
            self._running.pop(key, None)
            self._done += 1

    def say(self, source: str, text: str) -> None:
        """Take what a source says of itself; called from any thread."""
        if source == "cache":
            self._warnings[text] = None
        else:
            self._said[source] = text

    def line(self) -> Text:
        """Return the line."""
        full = _WIDTH * self._done // max(1, self._total)
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(self._signs.full * full, "green").append(self._signs.empty * (_WIDTH - full), "dim")
        line.append(f" {self._done}/{self._total}  {duration(time.monotonic() - self._started)}  ")
        waiting = [self._said.get(source, source) for _, source in list(self._running)[:3]]
        return line.append("; ".join(dict.fromkeys(waiting)), "dim")
