"""What all sources of the audit share: the HTTP client, its cache, and the time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from groundwork import redact
from groundwork.network.cache import Cache
from groundwork.network.client import Client, Timeouts


class Services:
    """The HTTP client, its cache, and the time limit; shared by all sources, thread-safe.

    Offline, only the cache and local files are used. The seconds are for everything; after `max_age` seconds what can
    change (an index page, repodata, a branch) is fetched again. `report` gets a source's name and a sentence.
    """

    def __init__(
        self,
        folder: Path,
        *,
        offline: bool = False,
        seconds: float = 300.0,
        max_age: float = 86400.0,
        report: Callable[[str, str], None] = lambda _source, _text: None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.offline, self.max_age, self.timeouts = offline, max_age, timeouts
        self.client = Client(seconds=seconds, offline=offline, timeouts=timeouts)
        self.cached = Cache(folder, offline=offline, tell=lambda text: self.report("cache", text)).cached
        self.remaining = self.client.remaining  #: the seconds that are left, never below 0
        self._report, self._reporting = report, threading.Lock()

    def report(self, source: str, text: str) -> None:
        """Report progress, from any thread; secrets in addresses are removed."""
        with self._reporting:
            self._report(source, redact.text(text))
