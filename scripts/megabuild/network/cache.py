"""Entries on disk, each one file that is complete and unharmed or does not count."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

_FORMAT = 1
_LARGEST = 1 << 30  # bytes; nothing that is kept here comes near


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Something fetched.

    Parameters
    ----------
    data:
        As it was stored.
    fetched:
        When, in UTC.
    facts:
        What else is known of it: the address without credentials, a hash, a date.
    """

    data: bytes
    fetched: datetime
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def age(self) -> float:
        """Seconds since it was fetched; negative if the clock has been set back."""
        return (datetime.now(timezone.utc) - self.fetched).total_seconds()

    @property
    def when(self) -> str:
        """ISO 8601 in UTC, to the second: what an Origin shows."""
        return self.fetched.isoformat(timespec="seconds").replace("+00:00", "Z")


class Cache:
    """Entries in a folder. Safe for threads and for several processes: files appear by atomic rename.

    Parameters
    ----------
    folder:
        Made when something is written. May be read-only or full: then nothing is kept, and that is told once.
    tell:
        Gets a sentence when an entry is spoilt or cannot be written.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self.folder = folder
        self._tell = tell
        self._lock = threading.Lock()
        self._told_unwritable = False

    def read(self, key: str) -> Entry | None:
        """Return an entry, or None where there is none; a spoilt one is removed and told."""
        path = self._path(key)
        try:
            if not path.is_file() or path.stat().st_size > _LARGEST:
                raise ValueError if os.path.lexists(path) else FileNotFoundError
            return _unpacked(path.read_bytes(), key)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._tell(f"cannot read the cache's {path.name[:12]}…: {error.strerror or error}")
        except (ValueError, KeyError, TypeError):
            self._tell(f"the cache's {path.name[:12]}… is spoilt ({key}): it is fetched again")
            with contextlib.suppress(OSError):
                path.unlink()
        return None

    def write(self, key: str, data: bytes, *, facts: Mapping[str, str] | None = None) -> Entry:
        """Keep something; where the disk refuses, the entry is returned all the same."""
        entry = Entry(data=data, fetched=datetime.now(timezone.utc), facts=dict(facts or {}))
        path = self._path(key)
        partial: Path | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
            partial = Path(name)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_packed(entry, key))
            partial.replace(path)
        except OSError as error:
            self._unwritable(error)
            if partial is not None:
                with contextlib.suppress(OSError):
                    partial.unlink()
        return entry

    def _path(self, key: str) -> Path:
        # the hash, since a key holds addresses that come from outside and must not lead anywhere
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / "entries" / name[:2] / name

    def _unwritable(self, error: OSError) -> None:
        with self._lock:
            told, self._told_unwritable = self._told_unwritable, True
        if not told:
            self._tell(f"nothing is kept, {self.folder} cannot be written: {error.strerror or error}")


def _packed(entry: Entry, key: str) -> bytes:
    head = {
        "format": _FORMAT,
        "key": key,
        "fetched": entry.fetched.isoformat(),
        "sha256": hashlib.sha256(entry.data).hexdigest(),
        "facts": dict(entry.facts),
    }
    return json.dumps(head).encode() + b"\n" + entry.data


def _unpacked(content: bytes, key: str) -> Entry:
    line, _, data = content.partition(b"\n")
    head = json.loads(line)
    if head["format"] != _FORMAT or head["key"] != key:
        raise ValueError("not this entry")
    if head["sha256"] != hashlib.sha256(data).hexdigest():
        raise ValueError("wrong hash")
    fetched = datetime.fromisoformat(head["fetched"])
    if fetched.tzinfo is None:
        raise ValueError("no time zone")
    facts = {str(name): str(value) for name, value in dict(head["facts"]).items()}
    return Entry(data=data, fetched=fetched, facts=facts)
