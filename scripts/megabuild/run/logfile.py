"""One log file per run: every line with its time and its source, secrets masked."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path

from groundwork.errors import FULL
from groundwork.redact import Mask
from groundwork.text import plain


class LogFile(AbstractContextManager["LogFile"]):
    """The log of one run, whose name begins the file's; ``latest.log`` beside it points to it.

    Where it is not known yet whether the run will do anything (``latest`` is false), only after :meth:`become_latest`.
    """

    def __init__(self, folder: Path, run_name: str, mask: Mask, *, latest: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
        self.path = folder / f"{run_name}-{self.stamp}.log"
        self.mask = mask
        self._lock = threading.Lock()  # a task writes in its own thread, the run in another one
        self._file = self.path.open("xb", buffering=0)
        self._cut = False  # the last line has no end
        if latest:
            self.become_latest()

    def become_latest(self) -> None:
        """Have ``latest.log`` point to it."""
        link = self.path.with_name(f".latest-{os.getpid()}")
        link.unlink(missing_ok=True)
        link.symlink_to(self.path.name)
        os.replace(link, self.path.with_name("latest.log"))

    def write(self, source: str, text: str) -> str:
        """Write one line; return it masked, without control characters. A full disk costs lines, and not the run."""
        masked = plain(self.mask(text))
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        line = f"{now} {source:<16} {masked}\n".encode(errors="replace")
        with self._lock:
            line = b"\n" + line if self._cut else line
            try:
                self._cut = self._file.write(line) < len(line)
            except OSError as error:
                if error.errno not in FULL:
                    raise
        return masked

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()
