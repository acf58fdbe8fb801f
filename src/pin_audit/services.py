"""The services that all sources of the audit share: HTTP client, cache and time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from groundwork import redact
from groundwork.network.cache import Cache
from groundwork.network.client import Client, Timeouts

#: Shows a text to the user.
Tell = Callable[[str], None]


class Services:
    """The HTTP client, its cache, and the time limit; shared by all sources, thread-safe.

    `offline`: use only the cache and local files. `seconds`: limit of the whole audit. `max_age`: seconds after which
    changeable data (an index page, repodata, a branch) is fetched again. `progress`: gets a text for every step.
    """

    def __init__(
        self,
        folder: Path,
        *,
        offline: bool = False,
        seconds: float = 300.0,
        max_age: float = 86400.0,
        progress: Tell = lambda _: None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.offline = offline
        self.max_age = max_age
        self.timeouts = timeouts
        self.client = Client(seconds=seconds, offline=offline, timeouts=timeouts)
        self.cached = Cache(folder, offline=offline, tell=self.warn).cached
        self.remaining = self.client.remaining  #: returns the seconds that are left, never below 0
        self.warnings: list[str] = []  #: about the cache: old or unwritable
        self._progress = progress
        self._reporting = threading.Lock()

    def report(self, text: str) -> None:
        """Report progress, from any thread; secrets in addresses are removed."""
        with self._reporting:
            self._progress(redact.text(text))

    def warn(self, text: str) -> None:
        """Keep a warning, and report it, from any thread."""
        self.warnings.append(redact.text(text))
        self.report(text)
