"""Standard output and error: nothing secret, no commands to the terminal but our own, and no errors once it is gone."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from groundwork.redact import Mask

#: What this program writes itself, through rich: styles, links, erased and former lines, and whether the cursor shows;
#: or else a character that steers a terminal, or the direction of writing.
_COMMAND = re.compile(
    r"(\x1b\[[0-9;]*[ABKm]|\x1b\[\?25[hl]|\x1b\]8;[^\x00-\x1f\x7f-\x9f]*\x1b\\)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


class Output:
    """A text stream to which secrets and foreign commands are not written; everything else is the stream's own.

    A terminal that is gone takes everything in silence: a build goes on for hours without one, and an error under way
    keeps its exit code. A pipe that nobody reads any more ends the program, as it does everywhere, unless an error is
    under way. The mask is applied to every piece of text; the command line writes whole lines.
    """

    def __init__(self, stream: TextIO, mask: Mask) -> None:
        self._stream = stream
        self._mask = mask
        self._terminal = stream.isatty()
        self._on_github = os.environ.get("GITHUB_ACTIONS") == "true"

    def write(self, text: str) -> int:
        """Write text without secrets; return its length, as streams do."""
        shown = _COMMAND.sub(lambda found: found[1] or "?", self._mask(text))
        if self._on_github:
            shown = shown.replace("##[", "# #[")  # a command of GitHub's, anywhere in a line
        self._attempt(lambda: self._stream.write(shown))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write pieces of text without secrets."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Write out what is held back."""
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[[], object]) -> None:
        under_way = sys.exc_info()[1]
        try:
            action()
        except OSError as error:
            gone = error.errno == errno.EIO and self._terminal
            if not gone and not (error.errno == errno.EPIPE and under_way is not None):
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
