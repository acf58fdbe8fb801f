"""A folder, an HTTP server or an S3 bucket that keeps finished work, and what is asked of it.

What is stored is described by a record under a key; its files are cut into parts that are named by their sha256. So no
server has to take gigabytes at once, what broke off goes on where it stopped, and nothing is ever there by half: the
record comes last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from groundwork import files, redact
from groundwork.errors import IntegrityError, UsageError
from megabuild.store import signature

#: Where the store is; whether what is built here goes there; the file with the private key that signs it, and the one
#: with the public keys of whoever may have signed what is fetched.
STORE, WRITES = "MEGABUILD_STORE", "MEGABUILD_STORE_WRITES"
KEY, SIGNERS = "MEGABUILD_STORE_KEY", "MEGABUILD_STORE_SIGNERS"
#: Bytes of a part: it is held in memory, and sent again where the connection breaks.
_PART = 64 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SCHEMES = ("http", "https", "s3")


class StoreError(Exception):
    """Raised where a store does not do what it is asked: it is not there, is full, or refuses."""


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


@dataclass(frozen=True)
class Store:
    """A store; nothing is asked of it before there is a question."""

    address: str
    writes: bool = False  #: whether what is built here goes there
    key: Path | None = None  #: what signs it
    signers: Path | None = None  #: whose signatures are asked for; None for nobody's
    _opened: list[Any] = field(default_factory=list, repr=False, compare=False)

    @property
    def shown(self) -> str:
        """The address without user and password."""
        return redact.address(self.address)

    def find(self, key: str) -> Record | None:
        """Return what is stored under a key, or None.

        Raises IntegrityError: It is no record of that key, or is not signed as it should be.
        Raises StoreError: The store cannot say.
        """
        content = self._get(f"{key}.json")
        if content is None:
            return None
        if self.signers is not None:
            signed = self._get(f"{key}.json.sig")
            if signed is None:
                raise IntegrityError(f"{self.shown}: {key} is not signed", f"{SIGNERS} asks for a signature")
            signature.check(content, signed, self.signers)
        try:
            record = msgspec.json.decode(content, type=Record)
        except msgspec.MsgspecError:
            record = None
        # one that was signed for another key would say that something else is what is wanted
        if record is None or record.key != key or not all(map(_is_sound, record.files.values())):
            raise IntegrityError(f"{self.shown}: {key} is no record of what it is named after", "remove it")
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
                    part = self._get(_place(digest))
                    if part is None:
                        raise StoreError(f"{self.shown}: a part of {target.name} is gone")
                    if hashlib.sha256(part).hexdigest() != digest:
                        raise IntegrityError(
                            f"{self.shown}: {_place(digest)} is not what it is named after",
                            "remove it there: it was damaged or exchanged",
                        )
                    out.write(part)
                    done += len(part)
                    came(done)
            if done != file.size:
                raise IntegrityError(
                    f"{self.shown}: {target.name} has {done} bytes, not {file.size}", "remove it there"
                )

    def put(self, key: str, content: Mapping[str, Path], went: Callable[[int], None]) -> None:
        """Store files under a key; parts that are there are not sent. ``went`` is told how many bytes have arrived.

        Raises StoreError: They cannot be stored.
        Raises PreflightError: They cannot be signed.
        """
        done, described = 0, {}
        for name, path in content.items():
            parts = []
            for part in _parts(path):
                parts.append(hashlib.sha256(part).hexdigest())
                self._put(_place(parts[-1]), part, again=False)
                done += len(part)
                went(done)
            described[name] = StoredFile(size=path.stat().st_size, parts=parts)
        record = msgspec.json.format(msgspec.json.encode(Record(key=key, files=described)))
        if self.key is not None:
            self._put(f"{key}.json.sig", signature.sign(record, self.key))
        self._put(f"{key}.json", record)

    def _get(self, path: str) -> bytes | None:
        try:
            return bytes(self._remote.get(path).bytes())
        except FileNotFoundError:
            return None
        except self._failures as error:
            raise StoreError(self._why(error)) from error

    def _put(self, path: str, content: bytes, *, again: bool = True) -> None:
        """Store bytes; where they are named after their content, only if nothing is there yet."""
        try:
            if not again and self._there(path, len(content)):
                return
            self._remote.put(path, content)
        except self._failures as error:
            raise StoreError(self._why(error)) from error

    def _there(self, path: str, size: int) -> bool:
        try:
            return bool(self._remote.head(path)["size"] == size)
        except FileNotFoundError:
            return False

    def _why(self, error: BaseException) -> str:
        """Return a failure in a line: the library's text goes on with its own innards."""
        lines = (line.strip() for line in str(error).splitlines())
        return f"{self.shown}: {redact.text(next(filter(None, lines), type(error).__name__))[:300]}"

    @property
    def _failures(self) -> tuple[type[BaseException], ...]:
        from obstore.exceptions import BaseError

        return (OSError, BaseError)

    @property
    def _remote(self) -> Any:
        if not self._opened:
            from obstore.store import LocalStore, from_url  # 30 ms, for those who have a store

            if urlsplit(self.address).scheme not in _SCHEMES:
                folder = Path(self.address).absolute()
                if not self.writes and not folder.is_dir():
                    raise StoreError(f"{folder} is no folder")
                self._opened.append(LocalStore(folder, mkdir=True))
            else:
                self._opened.append(
                    from_url(
                        self.address.rstrip("/"),
                        client_options={"allow_http": True, "connect_timeout": "3s", "timeout": "120s"},
                        retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
                    )
                )
        return self._opened[0]


def store(environ: Mapping[str, str]) -> Store | None:
    """Return the store that is named, if one is.

    Raises UsageError: An address that is none, or a file with keys that is not there.
    """
    address = environ.get(STORE, "")
    if not address:
        return None
    parts = urlsplit(address)
    if "://" in address and (parts.scheme not in _SCHEMES or not parts.hostname):
        raise UsageError(
            f"{STORE} is not an address of a store", "a folder, https://HOST/FOLDER, or s3://BUCKET/PREFIX"
        )
    keys = {name: Path(value).absolute() for name in (KEY, SIGNERS) if (value := environ.get(name))}
    for name, path in keys.items():
        if not path.is_file():
            raise UsageError(f"{name}: {path} is not there", "name a file, or leave it out")
    return Store(
        address=address,
        writes=environ.get(WRITES, "") not in ("", "0"),
        key=keys.get(KEY),
        signers=keys.get(SIGNERS),
    )


def _place(digest: str) -> str:
    return f"parts/{digest[:2]}/{digest}"


def _is_sound(file: StoredFile) -> bool:
    return file.size >= 0 and all(map(_DIGEST.fullmatch, file.parts))


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(_PART):
            yield part
