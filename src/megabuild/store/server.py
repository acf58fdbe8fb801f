"""Uploads to and downloads from a store: a folder, an HTTP server or an S3 bucket.

A record under a key describes the stored file, which is split into parts named by their SHA-256. So no server has to
take gigabytes at once, and an interrupted upload resumes. The record is written last: a stored key is always complete.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from groundwork import files, redact
from groundwork.address import is_on_server
from groundwork.errors import IntegrityError, UsageError
from groundwork.network import certificates
from groundwork.network.client import run_with_deadline

#: Variables: the store's address, and whether this machine uploads its builds.
STORE = "MEGABUILD_STORE"
WRITES = "MEGABUILD_STORE_WRITES"
#: Bytes of a part, which is held in memory and resent if the connection breaks.
_PART = 64 << 20
#: Maximum bytes of a record.
_RECORD = 1 << 20
#: Time limit to read a record or look up a part.
_ANSWER_SECONDS = 10.0
#: Time limit to transfer a part.
_PART_SECONDS = 600.0
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SCHEMES = ("http", "https", "s3")
#: Addresses of stores that timed out; this process does not ask them again.
_silent: set[str] = set()
Answer = TypeVar("Answer")


class StoreError(Exception):
    """The store is missing or full, or refuses a request."""


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """The file stored under a key."""

    key: str
    size: int
    parts: list[str]  #: SHA-256 of each


#: Created at import, because msgspec's first use of a class is not thread-safe.
_RECORDS = msgspec.json.Decoder(Record)


@dataclass(frozen=True)
class Store:
    """A store; the first request opens the connection."""

    address: str
    writes: bool = False  #: whether to upload builds

    @property
    def shown(self) -> str:
        """The address without user and password."""
        return redact.address(self.address)

    def find(self, key: str) -> Record | None:
        """Return the record of a key, or None.

        Raises IntegrityError: The content is not a record of that key.
        Raises StoreError: The store does not answer or refuses.
        """
        content = self._get(f"{key}.json", _RECORD, _ANSWER_SECONDS)
        if content is None:
            return None
        try:
            record = _RECORDS.decode(content)
        except msgspec.MsgspecError:
            record = None
        # a record of another key would deliver the wrong file
        if record is None or record.key != key or not all(map(_DIGEST.fullmatch, record.parts)):
            raise self._damaged(key, "not a record of this key")
        return record

    def fetch(self, record: Record, target: Path) -> Iterator[int]:
        """Download a record's file to ``target``, atomically; yield the bytes downloaded after each part.

        Raises IntegrityError: A part does not match the record.
        Raises StoreError: A part cannot be downloaded.
        """
        done = 0
        with files.replacing(target) as temporary:
            with temporary.open("xb") as out:
                for digest in record.parts:
                    part = self._get(_part_path(digest), _PART, _PART_SECONDS)
                    if part is None:
                        raise StoreError(f"{self.shown}: a part of {target.name} is missing")
                    if hashlib.sha256(part).hexdigest() != digest:
                        raise self._damaged(_part_path(digest), "its SHA-256 differs")
                    out.write(part)
                    done += len(part)
                    yield done
            if done != record.size:
                raise self._damaged(target.name, f"{done} bytes, not {record.size}")

    def put(self, key: str, path: Path) -> Iterator[int]:
        """Upload a file under a key, except parts that the store has; yield the bytes uploaded after each part.

        Raises StoreError: The upload failed.
        """
        record = Record(key=key, size=0, parts=[])
        with path.open("rb") as file:
            while part := file.read(_PART):
                record.parts.append(hashlib.sha256(part).hexdigest())
                self._put_part(_part_path(record.parts[-1]), part)
                record.size += len(part)
                yield record.size
        self._send(f"{key}.json", msgspec.json.format(msgspec.json.encode(record)))

    def _put_part(self, path: str, content: bytes) -> None:
        """Upload a part unless the store has it."""
        try:
            if self._ask(lambda: self._remote.head(path)["size"] == len(content), _ANSWER_SECONDS):
                return
        except FileNotFoundError:
            pass
        self._send(path, content)

    def _send(self, path: str, content: bytes) -> None:
        try:
            self._ask(lambda: self._remote.put(path, content), _PART_SECONDS)
        except FileNotFoundError as error:  # for a bucket's name with a typing error, for example
            raise StoreError(f"{self.shown}: no such bucket or folder") from error

    def _damaged(self, name: str, why: str) -> IntegrityError:
        return IntegrityError(f"{self.shown}: {name} is damaged: {why}", "delete it from the store")

    def _get(self, path: str, limit: int, seconds: float) -> bytes | None:
        def get() -> bytes:
            answer = self._remote.get(path)
            size = answer.meta["size"]
            if size > limit:  # checked before reading: a huge object would exhaust the memory
                raise self._damaged(path, f"{size} bytes, more than {limit}")
            return bytes(answer.bytes())

        try:
            return self._ask(get, seconds)
        except FileNotFoundError:
            return None

    def _ask(self, ask: Callable[[], Answer], seconds: float) -> Answer:
        """Send a request in a thread, because obstore's own waiting ignores Ctrl-C, and return the answer."""
        from obstore.exceptions import BaseError  # the import takes 30 ms, so only users of a store pay it

        if self.address in _silent:
            raise StoreError(f"{self.shown}: not asked again after a timeout")
        try:
            return run_with_deadline(seconds, ask)
        except FileNotFoundError:
            raise
        except TimeoutError as error:
            _silent.add(self.address)
            raise StoreError(f"{self.shown}: no answer within {seconds:.0f} s") from error
        except (OSError, BaseError) as error:
            if certificates.is_untrusted(str(error)):
                why = f"untrusted certificate; {certificates.REMEDY}"
            else:
                first_line = (
                    str(error).strip().partition("\n")[0]
                )  # obstore's further lines are internal details
                why = redact.text(first_line or type(error).__name__)[:300]
            raise StoreError(f"{self.shown}: {why}") from error

    @cached_property
    def _remote(self) -> Any:
        from obstore.store import LocalStore, from_url

        if urlsplit(self.address).scheme not in _SCHEMES:
            folder = Path(self.address).absolute()
            if not self.writes and not folder.is_dir():
                raise StoreError(f"{folder}: not a folder")
            return LocalStore(folder, mkdir=True)
        client: Any = {"allow_http": True, "connect_timeout": "3s", "timeout": "120s"}
        retries: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
        return from_url(self.address.rstrip("/"), client_options=client, retry_config=retries)


def named_store(environ: Mapping[str, str]) -> Store | None:
    """Return the store that ``MEGABUILD_STORE`` names, or None.

    Raises UsageError: The address is invalid.
    """
    address = environ.get(STORE, "")
    if not address:
        return None
    if "://" in address and not is_on_server(address, _SCHEMES):
        raise UsageError(
            f"{STORE}: invalid address of a store",
            "set it to a folder, https://HOST/FOLDER or s3://BUCKET/PREFIX",
        )
    return Store(address=address, writes=environ.get(WRITES, "") not in ("", "0"))


def _part_path(digest: str) -> str:
    return f"parts/{digest[:2]}/{digest}"
