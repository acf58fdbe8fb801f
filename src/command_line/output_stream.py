"""The streams of the program: they mask secrets, and remove commands to terminals and to GitHub."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from groundwork.errors import FULL
from groundwork.redact import Mask

#: Group 1: the sequences that rich writes for this program (styles, links, moved and erased lines, a hidden cursor).
#: Without group 1: any other character that controls a terminal or the direction of writing.
_COMMAND = re.compile(
    r"(\x1b\[[0-9;]*[ABKm]|\x1b\[\?25[hl]|\x1b\]8;[^\x00-\x1f\x7f-\x9f]*\x1b\\)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
#: GitHub's workflow commands: "::" at the start of a line, "##[" anywhere.
_GITHUB_COMMAND = re.compile(r"(?m)^(\s*):(?=:)|##(?=\[)")


class Output:
    """A text stream that masks secrets and removes terminal commands from everything that any code prints.

    If the terminal is gone or the disk is full, text is dropped: a build continues for hours without one. A closed
    pipe ends the program, unless it is already handling an error. The mask sees one write at a time, so callers write
    whole lines.
    """

    def __init__(self, stream: TextIO, mask: Mask) -> None:
        self.is_incomplete = False  #: text was dropped because the disk is full
        self._stream = stream
        self._mask = mask
        self._terminal = stream.isatty()
        self._on_github = os.environ.get("GITHUB_ACTIONS") == "true"

    def write(self, text: str) -> int:
        """Write text without secrets; return the length of the original, as streams do."""
        shown = _COMMAND.sub(lambda command: command[1] or "?", self._mask(text))
        if self._on_github:
            shown = _GITHUB_COMMAND.sub(lambda command: f"{command[0]} ", shown)
        self._attempt(lambda: self._stream.write(shown))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts without secrets."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Write out buffered text."""
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[[], object]) -> None:
        under_way = sys.exc_info()[1]
        try:
            action()
        except OSError as error:
            self.is_incomplete |= error.errno in FULL
            gone = self.is_incomplete or (error.errno == errno.EIO and self._terminal)
            if not gone and not (error.errno == errno.EPIPE and under_way is not None):
                raise
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
