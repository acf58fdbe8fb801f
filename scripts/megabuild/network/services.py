"""What the CLI makes once and hands to every source: cache, web, time limit, progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.network.cache import Cache, Entry
from megabuild.network.web import Patience, Web

DAY = 86400.0
_AT_ONCE = 4  # per host
_OFFLINE = "run it once with the network, without --offline"


class Services:
    """Shared by all sources; safe for threads.

    Parameters
    ----------
    folder:
        Of the cache.
    offline:
        Only the cache and local files are asked.
    seconds:
        For everything.
    max_age:
        Seconds after which an entry that can change (an index page, repodata) is asked for again.
    report:
        Gets a source's name and a sentence, from any thread.
    patience:
        Time limits of single requests.
    """

    def __init__(
        self,
        folder: Path,
        *,
        offline: bool = False,
        seconds: float = 300.0,
        max_age: float = DAY,
        report: Callable[[str, str], None] = lambda _source, _text: None,
        patience: Patience | None = None,
    ) -> None:
        self.offline = offline
        self.max_age = max_age
        self.cache = Cache(folder, lambda text: self.report("cache", text))
        self.web = Web(self.remaining, self.host, offline=offline, patience=patience or Patience())
        self._end = time.monotonic() + seconds
        self._report = report
        self._reporting = threading.Lock()
        self._locks = threading.Lock()
        self._hosts: dict[str, threading.Semaphore] = {}
        self._keys: dict[str, threading.Lock] = {}

    def remaining(self) -> float:
        """Return the seconds that are left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    def report(self, source: str, text: str) -> None:
        """Tell what happens; secrets in addresses are taken out."""
        with self._reporting:
            self._report(source, redact.text(text))

    @contextmanager
    def host(self, name: str) -> Iterator[None]:
        """Hold one of the four places that a host has.

        Raises
        ------
        AuditError
            None became free in time.
        """
        with self._locks:
            places = self._hosts.setdefault(name, threading.Semaphore(_AT_ONCE))
        if not places.acquire(timeout=self.remaining()):
            raise AuditError(f"{name}: the time was over first", "allow more: --timeout SECONDS")
        try:
            yield
        finally:
            places.release()

    def cached(self, key: str, max_age: float, make: Callable[[], bytes]) -> Entry:
        """Return an entry of the cache if it is fresh, else a new one, else an old one.

        Threads that want the same entry wait for the one that makes it.

        Parameters
        ----------
        key:
            Says what it is; without secrets.
        max_age:
            Seconds; ``math.inf`` for what never changes. ``self.max_age`` is the user's wish for what may.
        make:
            Fetches it.

        Raises
        ------
        AuditError
            It cannot be made, or must not be (offline), and there is no old one.
        """
        with self._locks:
            lock = self._keys.setdefault(key, threading.Lock())
        if not lock.acquire(timeout=self.remaining()):
            raise AuditError("the time was over first", "allow more: --timeout SECONDS")
        try:
            old = self.cache.read(key)
            if old is not None and (self.offline or 0 <= old.age <= max_age):
                return old
            if self.offline:
                raise AuditError("not in the cache, and --offline forbids to fetch it", _OFFLINE)
            try:
                return self.cache.write(key, make())
            except AuditError as error:
                if old is None:
                    raise
                self.report("cache", f"{error.message}: what was fetched at {old.when} is used")
                return old
        finally:
            lock.release()
