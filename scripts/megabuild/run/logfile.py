"""One log file per run: every line with its time and its source, secrets masked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TextIO

_SECRET_NAME = re.compile(r"TOKEN|PASSWORD|PASSWD|SECRET|KEY", re.IGNORECASE)
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@'\"]+@", re.IGNORECASE)
#: Shorter values are everyday words and numbers, whose masking would make a log unreadable.
_SHORTEST_SECRET = 6
MASK = "***"


class Mask:
    """Takes secrets out of text: values of variables whose names sound secret, and names and passwords in URLs.

    Parameters
    ----------
    environ:
        The environment whose secrets must not be seen.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        secrets = {
            value
            for name, value in environ.items()
            if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET and not os.path.isabs(value)
        }
        longest_first = sorted(secrets, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, longest_first))) if secrets else None

    def __call__(self, text: str) -> str:
        """Return the text with every secret replaced."""
        if self._secrets:
            text = self._secrets.sub(MASK, text)
        return _USERINFO.sub(rf"\1{MASK}@", text) if "://" in text else text


class LogFile:
    """The log of one run; ``latest.log`` beside it points to it.

    Parameters
    ----------
    folder:
        Where logs of this config lie.
    config:
        The run's name, first part of the file's name.
    mask:
        Applied to every line.
    """

    def __init__(self, folder: Path, config: str, mask: Mask) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
        self.path = folder / f"{config}-{stamp}.log"
        self._mask = mask
        self._file: TextIO = self.path.open("x", encoding="utf-8", errors="replace", buffering=1)
        latest = folder / f".latest-{os.getpid()}"
        latest.unlink(missing_ok=True)
        latest.symlink_to(self.path.name)
        os.replace(latest, folder / "latest.log")

    def write(self, source: str, text: str) -> str:
        """Write one line; return it masked."""
        masked = self._mask(text)
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        self._file.write(f"{now} {source:<16} {masked}\n")
        return masked

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> LogFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
