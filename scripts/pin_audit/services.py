"""The services that all sources of the audit share: HTTP client, cache and time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from groundwork import redact
from groundwork.network.cache import Cache
from groundwork.network.client import Client, Timeouts


class Services:
    """The HTTP client, its cache, and the time limit; shared by all sources, thread-safe.

    `offline`: use only the cache and local files. `seconds`: limit of the whole audit. `max_age`: seconds after which
    changeable data (an index page, repodata, a branch) is fetched again. `report` gets a source's name and a text.
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
        self.remaining = self.client.remaining  #: returns the seconds that are left, never below 0
        self._report, self._reporting = report, threading.Lock()

    def report(self, source: str, text: str) -> None:
        """Report progress, from any thread; secrets in addresses are removed."""
        with self._reporting:
            self._report(source, redact.text(text))
