"""One log file per run: every line with its time and its source, secrets masked."""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path

from groundwork import files
from groundwork.errors import FULL
from groundwork.redact import Mask
from groundwork.text import plain, plain_lines
from megabuild.status.status import logger


class LogFile(logging.Handler, AbstractContextManager["LogFile"]):
    """The log of one run: a file named after the run and its start, to which ``latest.log`` points.

    As a handler of ``logging``, which it is until the end of its context, it writes the driver's sentences.
    Only :meth:`become_latest` sets that link: a run may have nothing to do.
    """

    def __init__(self, folder: Path, run_name: str, mask: Mask) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self.stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
        self.path = folder / f"{run_name}-{self.stamp}.log"
        self.mask = mask
        self._lock = threading.Lock()  # tasks and the run write from different threads
        self._file = self.path.open("xb", buffering=0)
        self._cut = False  # whether the last line is incomplete

    def become_latest(self) -> None:
        """Point ``latest.log`` to this file, atomically."""
        files.replace_link(self.path.with_name("latest.log"), self.path.name)

    def write(self, source: str, text: str) -> str:
        """Write one line; return it masked, without control characters. On a full disk the line is lost."""
        masked = plain(self.hide(text))
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        line = f"{now} {source:<16} {masked}\n".encode(errors="replace")
        with self._lock:
            if self._cut:
                line = b"\n" + line
            try:
                self._cut = self._file.write(line) < len(line)
            except OSError as error:
                if error.errno not in FULL:
                    raise
        return masked

    def hide(self, text: str) -> str:
        """Return lines without secrets and control characters."""
        # a secret may contain control characters, and a program that colours its output may cut one into pieces
        return self.mask(plain_lines(self.mask(text)))

    def emit(self, record: logging.LogRecord) -> None:
        self.write("driver", record.getMessage())

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        logger.removeHandler(self)
        self._file.close()
