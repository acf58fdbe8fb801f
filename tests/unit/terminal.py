"""A terminal for tests: a program runs on a pseudo terminal, and what it draws is kept as frames."""

from __future__ import annotations

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
from dataclasses import dataclass, field

#: What moves the cursor or erases; styles and links change nothing that is looked at here.
_SEQUENCE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\x1b\]8;[^\x1b]*\x1b\\|\x1b.")


@dataclass
class Screen:
    """As much of a terminal as is drawn by lines: it wraps, goes up, and erases; nothing scrolls away."""

    width: int
    lines: list[str] = field(default_factory=lambda: [""])
    row: int = 0
    column: int = 0

    def feed(self, text: str) -> None:
        """Take output."""
        position = 0
        for found in _SEQUENCE.finditer(text):
            self._write(text[position : found.start()])
            self._obey(found[1] or "", found[2] or "")
            position = found.end()
        self._write(text[position:])

    def _obey(self, argument: str, command: str) -> None:
        count = int(argument) if argument.isdigit() else 1
        if command == "A":
            self.row = max(0, self.row - count)
        elif command == "B":
            self._down(count)
        elif command == "G":
            self.column = count - 1
        elif command == "K":
            here = self.lines[self.row]
            self.lines[self.row] = "" if argument == "2" else here[: self.column]

    def _down(self, count: int) -> None:
        self.row += count
        self.lines += [""] * (self.row + 1 - len(self.lines))

    def _write(self, text: str) -> None:
        for sign in text:
            if sign == "\r":
                self.column = 0
            elif sign == "\n":
                self._down(1)
            elif sign >= " ":
                if self.column == self.width:
                    self._down(1)
                    self.column = 0
                here = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = here[: self.column] + sign + here[self.column + 1 :]
                self.column += 1

    def shown(self) -> tuple[str, ...]:
        """Return what there is to see."""
        return tuple(line.rstrip() for line in self.lines)


@dataclass(frozen=True, kw_only=True)
class Session:
    """A program's life on a terminal."""

    exit_code: int
    raw: str  #: everything it wrote
    frames: tuple[tuple[str, ...], ...]  #: every screen that was to be seen, in order
    seconds: float

    @property
    def last(self) -> str:
        """The screen that it left."""
        return "\n".join(self.frames[-1])


def run_on_terminal(
    command: Sequence[str], *, width: int, environ: Mapping[str, str], seconds: float = 120.0
) -> Session:
    """Run a program on a terminal that is so wide, to its end; it is killed where it takes longer."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(environ), start_new_session=True
    )
    os.close(theirs)
    screen, raw, frames = Screen(width), b"", list[tuple[str, ...]]()
    fed = 0
    try:
        while time.monotonic() - began < seconds:
            if select.select([ours], [], [], 0.05)[0]:
                try:
                    raw += os.read(ours, 65536)
                except OSError:  # the other side is closed
                    break
                continue  # what was drawn in one go is one frame
            if fed < len(raw):
                text = raw.decode(errors="ignore")
                screen.feed(text[len(raw[:fed].decode(errors="ignore")) :])
                fed = len(raw)
                frames.append(screen.shown())
        else:
            process.kill()
    finally:
        os.close(ours)
        code = process.wait()
    text = raw.decode(errors="ignore")
    screen.feed(text[len(raw[:fed].decode(errors="ignore")) :])
    frames.append(screen.shown())
    return Session(exit_code=code, raw=text, frames=tuple(frames), seconds=time.monotonic() - began)
