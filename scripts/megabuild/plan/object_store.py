"""Objects that several machines share: the address of their server, and who may write there."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from groundwork.errors import UsageError

#: Where the server is.
STORE = "MEGABUILD_OBJECT_STORE"
#: Set by whoever trusts what a run compiles: others then take its objects, those of other configs as well.
SHARE_OBJECTS = "MEGABUILD_SHARE_OBJECTS"
#: What ccache speaks by itself, with the port that each means (https://ccache.dev/manual/4.7.4.html, "Remote storage
#: backends"). It separates storages by blanks, their attributes by bars.
_PORTS = {"http": 80, "redis": 6379}
_ADDRESS = re.compile(r"[A-Za-z0-9._~:/@%+\[\]-]+")
#: Milliseconds. ccache's own 10 s are waited for each object where a server has stopped without a word.
_TIMEOUTS = "connect-timeout=500|operation-timeout=3000"
_ASKED_SECONDS = 1.0


@dataclass(frozen=True)
class ObjectStore:
    """A server that keeps objects for several machines."""

    address: str  #: as ccache takes it
    writes: bool  #: whether what is compiled here goes there

    @property
    def shown(self) -> str:
        """The address without user and password."""
        parts = urlsplit(self.address)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    def answers(self) -> str:
        """Return why nobody answers at the address, or nothing where somebody does."""
        parts = urlsplit(self.address)
        try:
            port = parts.port or _PORTS[parts.scheme]
            socket.create_connection((parts.hostname or "", port), _ASKED_SECONDS).close()
        except OSError as error:
            return error.strerror or str(error)
        return ""


def trusted(environ: Mapping[str, str]) -> bool:
    """Return whether others may take what a run compiles."""
    return environ.get(SHARE_OBJECTS, "") not in ("", "0")


def object_store(environ: Mapping[str, str]) -> ObjectStore | None:
    """Return the server that is named, if one is.

    Raises UsageError: An address that ccache cannot use.
    """
    address = environ.get(STORE, "")
    if not address:
        return None
    try:
        parts = urlsplit(address)
        usable = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, half a bracket
        usable = False
    if not usable or not _ADDRESS.fullmatch(address):
        raise UsageError(
            f"{STORE} is not an address that ccache can use",
            "http://HOST:PORT/FOLDER or redis://HOST:PORT, such as redis://cache.example.org",
        )
    return ObjectStore(address=address, writes=trusted(environ))


def remote_storage(folder: str, environ: Mapping[str, str]) -> str:
    """Return ccache's setting for what is looked for beside a config's own objects: a folder, and the server.

    Raises UsageError: An address that ccache cannot use.
    """
    access = "" if trusted(environ) else "|read-only"
    store = object_store(environ)
    places = [f"file:{quote(folder)}{access}"]
    if store is not None:
        places.append(f"{store.address}|{_TIMEOUTS}{access}")
    return " ".join(places)


def notes(environ: Mapping[str, str]) -> list[str]:
    """Return what a plan says of the server.

    Raises UsageError: An address that ccache cannot use.
    """
    store = object_store(environ)
    if store is None:
        return []
    if why := store.answers():
        return [f"the object store {store.shown} does not answer ({why}): what only it has is compiled"]
    access = "read, and written to" if store.writes else f"read only; {SHARE_OBJECTS}=1 writes to it, too"
    return [f"objects are shared through {store.shown} ({access})"]
