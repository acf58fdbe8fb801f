"""A disk cache whose entries expire by the user's --max-age, not by servers' headers.

It also holds answers of rattler and git. Offline, entries of any age are used; online, a stale entry is used if
fetching a new one fails.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import msgspec

from groundwork import files
from groundwork.errors import MegabuildError
from groundwork.keys import Key
from groundwork.network.client import NetworkError


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Fetched data, and the time of fetching (ISO 8601 in UTC, to the second)."""

    when: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-[01]\d-[0-3]\dT\d\d:\d\d:\d\dZ$")]
    data: bytes


_ENTRIES = msgspec.json.Decoder(Entry)


class Cache:
    """Entries in a folder, each a file. Safe for threads and several processes.

    `folder`: created at the first write. If it is read-only or full, nothing is cached, and ``tell`` is called once.
    `tell`: called with a message on a stale or unwritable entry.
    """

    def __init__(
        self, folder: Path, *, offline: bool = False, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.folder = folder
        self._offline = offline
        self._tell = tell
        self._locks: dict[str, threading.Lock] = {}
        self._unwritable = False

    def cached(self, key: Key, max_age: float, make: Callable[[], bytes]) -> Entry:
        """Return an entry of at most ``max_age`` seconds, else a new one, else a stale one.

        Threads that want the same entry wait for the thread that makes it.

        Raises MegabuildError: ``make`` failed, or was not called because of ``offline``, and there is no stale entry.
        """
        # all kinds of answers share the folder
        name = hashlib.sha256(f"{type(key).__qualname__} {key.digest}".encode()).hexdigest()
        path = self.folder / "entries" / name[:2] / name
        with self._locks.setdefault(name, threading.Lock()):
            old = files.read_record(path, _ENTRIES)
            if old is not None and (self._offline or 0 <= age(old.when) <= max_age):
                return old
            if self._offline:
                raise NetworkError(
                    "not in the cache, and not fetched because of --offline", "run once without --offline"
                )
            try:
                new = Entry(when=now(), data=make())
            except MegabuildError as error:
                if old is None:
                    raise
                self._tell(f"{error.message}; using the answer of {old.when}")
                return old
            self._write(path, new)
            return new

    def _write(self, path: Path, entry: Entry) -> None:
        try:
            files.write(path, msgspec.json.encode(entry))
        except OSError as error:
            if not self._unwritable:
                self._tell(
                    f"{self.folder} cannot be written to ({error.strerror or error}); nothing is cached"
                )
            self._unwritable = True


def now() -> str:
    """Return the current time, ISO 8601 in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def age(when: str) -> float:
    """Return the seconds since a time of `now`; negative if the clock was set back. Raises ValueError."""
    then = datetime.fromisoformat(when.replace("Z", "+00:00"))
    if then.tzinfo is None:
        raise ValueError(f"{when} has no time zone")
    return (datetime.now(timezone.utc) - then).total_seconds()
