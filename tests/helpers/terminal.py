"""A terminal for tests: starts a program on a pseudo terminal and tells what a person sees there.

It imports nothing of the product.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyte

#: Variables that would change what a program writes.
_LEFT_OUT = frozenset(
    {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "CI", "TTY_COMPATIBLE"}
)
_ROWS, _HISTORY = 50, 10_000
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x1b]*\x1b\\|\x1b.")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a program showed on a terminal until its end."""

    exit_code: int
    raw: str  #: everything that it wrote
    lines: list[
        str
    ]  #: the terminal's lines at the end, from the first; a line wider than the terminal is several
    #: the screen after each burst of output, with the seconds since the start
    moments: list[tuple[float, str]]

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)

    @property
    def written(self) -> list[str]:
        """The lines as they were written, without styles; copying a line that the terminal broke gives this one."""
        return _SEQUENCE.sub("", self.raw).replace("\r\n", "\n").splitlines()


def terminal_environ(**more: str) -> dict[str, str]:
    """Return this process's variables, without those that say how a terminal is to be used."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    return {**kept, "TERM": "xterm-256color", **more}


def run_on_terminal(
    command: Sequence[str | Path],
    *,
    columns: int,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float = 300.0,
) -> Seen:
    """Run a program on a terminal of so many columns, at most so many seconds; it is killed after these."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    began = time.monotonic()
    process = subprocess.Popen(
        list(map(str, command)),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=terminal_environ() if environ is None else environ,
        cwd=cwd,
        start_new_session=True,
    )
    os.close(theirs)
    screen = pyte.HistoryScreen(columns, _ROWS, history=_HISTORY, ratio=0.5)
    stream, decoder = pyte.Stream(screen), codecs.getincrementaldecoder("utf-8")("replace")
    raw: list[str] = []
    moments: list[tuple[float, str]] = []
    with contextlib.suppress(OSError):  # the other side is closed
        while time.monotonic() - began < seconds:
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            text = decoder.decode(os.read(ours, 65536))
            if not text:
                break
            raw.append(text)
            stream.feed(text)
            moments.append((time.monotonic() - began, "\n".join(_shown(screen))))
    os.close(ours)
    if process.poll() is None and time.monotonic() - began >= seconds:
        process.kill()
    return Seen(exit_code=process.wait(60), raw="".join(raw), lines=_all_lines(screen), moments=moments)


def _shown(screen: pyte.HistoryScreen) -> list[str]:
    return [line.rstrip() for line in screen.display]


def _all_lines(screen: pyte.HistoryScreen) -> list[str]:
    """Return the lines above the screen, then those on it."""
    above = [
        "".join(line[column].data for column in range(screen.columns)).rstrip() for line in screen.history.top
    ]
    lines = [*above, *_shown(screen)]
    while lines and not lines[-1]:
        lines.pop()
    return lines
