"""A folder, an HTTP server or an S3 bucket that keeps finished work, and what is asked of it.

What is stored is described by a record under a key; its files are cut into parts that are named by their sha256. So no
server has to take gigabytes at once, what broke off goes on where it stopped, and nothing is ever there by half: the
record comes last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from groundwork import files, redact
from groundwork.errors import IntegrityError, UsageError
from groundwork.network import certificates
from groundwork.network.client import run_with_deadline

#: Where the store is; whether what is built here goes there.
STORE, WRITES = "MEGABUILD_STORE", "MEGABUILD_STORE_WRITES"
#: Bytes of a part, which is held in memory and sent again where the connection breaks, and of a record at most.
_PART, _RECORD = 64 << 20, 1 << 20
#: How long an answer may take: whether a part is there or what a record says, and the 64 MiB themselves.
_ANSWER_SECONDS, _PART_SECONDS = 10.0, 600.0
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SCHEMES = ("http", "https", "s3")
#: Addresses of stores that gave no answer in time: they are not asked again by this process.
_silent: set[str] = set()
Answer = TypeVar("Answer")


class StoreError(Exception):
    """A store that is not there, is full, or refuses."""


class StoredFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file of a record."""

    size: int
    parts: list[str]  #: the sha256 of each


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """What is stored under a key."""

    key: str
    files: dict[str, StoredFile]

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files.values())


#: Made here: what msgspec makes of a class at its first use is not safe in several threads.
_RECORDS = msgspec.json.Decoder(Record)


@dataclass(frozen=True)
class Store:
    """A store; nothing is asked of it before there is a question."""

    address: str
    writes: bool = False  #: whether what is built here goes there
    _opened: list[Any] = field(default_factory=list, repr=False, compare=False)

    @property
    def shown(self) -> str:
        """The address without user and password."""
        return redact.address(self.address)

    def find(self, key: str) -> Record | None:
        """Return what is stored under a key, or None.

        Raises IntegrityError: It is no record of that key.
        Raises StoreError: The store cannot say.
        """
        content = self._get(f"{key}.json", _RECORD, _ANSWER_SECONDS)
        if content is None:
            return None
        try:
            record = _RECORDS.decode(content)
        except msgspec.MsgspecError:
            record = None
        digests = [part for file in record.files.values() for part in file.parts] if record else []
        # a record of another key would pass something else off as what was asked for
        if record is None or record.key != key or not all(map(_DIGEST.fullmatch, digests)):
            raise self._damaged(key, "it is no record of that")
        return record

    def fetch(self, file: StoredFile, target: Path, came: Callable[[int], None]) -> None:
        """Write a file of a record into place, atomically; ``came`` is told how many bytes are there.

        Raises IntegrityError: A part is not what the record says.
        Raises StoreError: A part cannot be had.
        """
        done = 0
        with files.replacing(target) as beside:
            with beside.open("xb") as out:
                for digest in file.parts:
                    part = self._get(_part_path(digest), _PART, _PART_SECONDS)
                    if part is None:
                        raise StoreError(f"{self.shown}: a part of {target.name} is gone")
                    if hashlib.sha256(part).hexdigest() != digest:
                        raise self._damaged(_part_path(digest), "it was damaged or exchanged")
                    out.write(part)
                    done += len(part)
                    came(done)
            if done != file.size:
                raise self._damaged(target.name, f"it has {done} bytes, not {file.size}")

    def put(self, key: str, content: Mapping[str, Path], went: Callable[[int], None]) -> None:
        """Store files under a key; parts that are there are not sent. ``went`` is told how many bytes have arrived.

        Raises StoreError: They cannot be stored.
        """
        done, described = 0, {}
        for name, path in content.items():
            parts = []
            with path.open("rb") as file:
                while part := file.read(_PART):
                    parts.append(hashlib.sha256(part).hexdigest())
                    self._put_part(_part_path(parts[-1]), part)
                    done += len(part)
                    went(done)
            described[name] = StoredFile(size=path.stat().st_size, parts=parts)
        record = msgspec.json.format(msgspec.json.encode(Record(key=key, files=described)))
        self._ask(lambda: self._remote.put(f"{key}.json", record), _PART_SECONDS)

    def _put_part(self, path: str, content: bytes) -> None:
        """Store a part, unless it is there."""
        try:
            if self._ask(lambda: self._remote.head(path)["size"] == len(content), _ANSWER_SECONDS):
                return
        except FileNotFoundError:
            pass
        self._ask(lambda: self._remote.put(path, content), _PART_SECONDS)

    def _damaged(self, name: str, why: str) -> IntegrityError:
        return IntegrityError(f"{self.shown}: {name} is not what it is named after: {why}", "remove it there")

    def _get(self, path: str, limit: int, seconds: float) -> bytes | None:
        def get() -> bytes:
            answer = self._remote.get(path)
            size = answer.meta["size"]
            if size > limit:  # before it is read: a length that no memory holds ends the process
                raise self._damaged(path, f"it has {size} bytes, more than {limit}")
            return bytes(answer.bytes())

        try:
            return self._ask(get, seconds)
        except FileNotFoundError:
            return None

    def _ask(self, ask: Callable[[], Answer], seconds: float) -> Answer:
        """Return an answer; in a thread, as the library's own waiting takes notice of no Ctrl-C."""
        from obstore.exceptions import BaseError  # 30 ms, for those who have a store

        if self.address in _silent:
            raise StoreError(f"{self.shown} did not answer in time, and is not asked again")
        try:
            return run_with_deadline(seconds, ask)
        except FileNotFoundError:
            raise
        except TimeoutError as error:
            _silent.add(self.address)
            raise StoreError(f"{self.shown} did not answer within {seconds:.0f} s") from error
        except (OSError, BaseError) as error:
            if certificates.is_untrusted(str(error)):
                why = f"its certificate is not trusted: {certificates.REMEDY}"
            else:  # the library's text goes on with its own innards
                why = redact.text(str(error).strip().partition("\n")[0] or type(error).__name__)[:300]
            raise StoreError(f"{self.shown}: {why}") from error

    @property
    def _remote(self) -> Any:
        if self._opened:
            return self._opened[0]
        from obstore.store import LocalStore, from_url

        if urlsplit(self.address).scheme not in _SCHEMES:
            folder = Path(self.address).absolute()
            if not self.writes and not folder.is_dir():
                raise StoreError(f"{folder} is no folder")
            self._opened.append(LocalStore(folder, mkdir=True))
        else:
            client: Any = {"allow_http": True, "connect_timeout": "3s", "timeout": "120s"}
            retries: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
            self._opened.append(
                from_url(self.address.rstrip("/"), client_options=client, retry_config=retries)
            )
        return self._opened[0]


def named_store(environ: Mapping[str, str]) -> Store | None:
    """Return the store that is named, if one is.

    Raises UsageError: An address that is none.
    """
    address = environ.get(STORE, "")
    if not address:
        return None
    parts = urlsplit(address)
    if "://" in address and (parts.scheme not in _SCHEMES or not parts.hostname):
        raise UsageError(
            f"{STORE} is not an address of a store", "a folder, https://HOST/FOLDER, or s3://BUCKET/PREFIX"
        )
    return Store(address=address, writes=environ.get(WRITES, "") not in ("", "0"))


def _part_path(digest: str) -> str:
    return f"parts/{digest[:2]}/{digest}"
