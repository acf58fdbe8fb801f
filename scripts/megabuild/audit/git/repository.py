"""One remote repository, asked through everything that is kept of it."""

from __future__ import annotations

import contextlib
import re
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from megabuild.audit.git import clone_size, remote
from megabuild.audit.git.addresses import Address
from megabuild.audit.git.connection import Connection, Hosts, failure
from megabuild.audit.git.describe import Clone, Description, describe, shallow_clone
from megabuild.audit.git.listing import Listing, contents, listing, tagged
from megabuild.audit.git.partial import Refused, Spoilt, Store
from megabuild.audit.git.remote import Refs
from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.network.services import DAY, Services

_LIST_SECONDS = 40.0
_SIZE_AGE = 30 * DAY  # a short hash grows by a digit when a repository has grown fourfold
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SYMREF = re.compile(r"ref: refs/heads/(\S+)")

Result = TypeVar("Result")


class Repository:
    """One remote repository. Safe for threads.

    Parameters
    ----------
    address:
        Where it is.
    services:
        Cache, time limit, places per host.
    hosts:
        Shared by all repositories of a run.
    """

    def __init__(self, address: Address, services: Services, hosts: Hosts) -> None:
        self.address = address
        self.connection = Connection(address, services, hosts)
        self._services = services
        self._key = redact.address(address.text) if "://" in address.text else address.text
        self._age = (
            -1.0 if address.local else services.max_age
        )  # a folder of this machine costs nothing to ask
        self._lock = threading.Lock()
        self._listing = threading.Lock()
        self._refs: Refs | None = None
        self._filtered: bool | None = None
        self.fetched = ""  #: when its branches and tags were last asked for, ISO 8601 in UTC

    def refs(self) -> Refs:
        """Return its branches and tags, as young as the user wishes.

        Raises
        ------
        AuditError
            There is no such repository, or no answer.
        """
        with self._listing:  # once a run, however old it may be
            if self._refs is None:
                entry = self._services.cached(f"git refs {self._key}", self._age, self._list)
                self._refs = remote.unpack(entry.data)
                with self._lock:
                    self.fetched = entry.when
                    if self._filtered is None:
                        self._filtered = self._refs.partial
            return self._refs

    def describe(self, commit: str, *, shallow: bool = False) -> Description:
        """Return what ``git submodule status`` calls a commit in a fresh clone.

        Parameters
        ----------
        shallow:
            In a clone with a depth of 1, as .gitmodules may ask for.

        Raises
        ------
        Absent
            The repository does not have it (any more).
        AuditError
            No answer, or a refusal.
        """
        clone = Clone(refs=self.refs(), default=self._default, objects=lambda: self._objects("all"))
        if shallow:
            default = self._default()
            clone = replace(
                shallow_clone(clone, default), objects=lambda: self._shallow_objects(default, commit)
            )
        return self._within(lambda store: describe(store, clone, commit), commit)

    def listing(self, commit: str, *, everything: bool = False) -> Listing:
        """Return what is in a commit.

        Parameters
        ----------
        everything:
            Also where it has no .gitmodules; else only the top is then looked at.

        Raises
        ------
        Absent, AuditError
            As for :meth:`describe`.
        """
        return self._within(lambda store: listing(store, commit, everything=everything), commit)

    def read(self, found: Listing, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those files that a listing has; one request for all of them.

        Raises
        ------
        AuditError
            No answer, or a refusal.
        """
        return self._within(lambda store: contents(store, found, paths), found.commit)

    def commit(self, name: str) -> str:
        """Return the commit that a tag, or a commit's own hash, names.

        Raises
        ------
        Absent
            There is no such tag.
        AuditError
            No answer, or a refusal.
        """
        if _HASH.fullmatch(name):
            return name
        ref = f"refs/tags/{name}"
        if remote.misnamed(ref):
            raise AuditError(f"'{name}' cannot be a tag")

        def make() -> bytes:
            return self._within(lambda store: tagged(store, ref), name).encode()

        key = f"git tag {self._key} {name}"
        entry = self._services.cached(key, self._age, make)
        with self._lock:
            self.fetched = entry.when
        found = entry.data.decode(errors="replace")
        if not _HASH.fullmatch(found):
            raise AuditError(f"the cached commit of '{name}' makes no sense")
        return found

    def _within(self, work: Callable[[Store], Result], commit: str) -> Result:
        """Do something with the store; one that is spoilt is made again, one that the server does not allow changed."""
        spoilt = False
        while True:
            with self._lock:
                filtered = self._filtered is not False
            store = Store(self.connection, filtered=filtered)
            with store.held(len(commit) if _HASH.fullmatch(commit) else 40):
                try:
                    return work(store)
                except Refused:
                    if not filtered:
                        raise
                    with self._lock:
                        self._filtered = False
                except Spoilt:
                    if spoilt:
                        raise
                    spoilt = True
                    store.remove()

    def _list(self) -> bytes:
        answer = self.connection.ask(
            ["ls-remote", "--quiet", "--heads", "--tags", "--", self.address.text], seconds=_LIST_SECONDS
        )
        if answer.code != 0:
            raise failure(self.address, answer)
        text = answer.out.decode(errors="surrogateescape")
        remote.parse(text, answer.abilities)
        return remote.pack(text, answer.abilities)

    def _default(self) -> str:
        entry = self._services.cached(f"git head {self._key}", self._age, self._head)
        return entry.data.decode(errors="surrogateescape")

    def _head(self) -> bytes:
        """Ask which branch HEAD names: ls-remote would have to list everything for that, pull requests and all."""
        base = self.connection.folder
        try:
            base.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AuditError(f"the cache cannot be written: {error.strerror or error}") from error
        with tempfile.TemporaryDirectory(prefix=".head-", dir=base, ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary) / "head.git"
            words = ["clone", "--quiet", "--bare", "--template=", "--no-tags", "--depth=1", "--filter=tree:0"]
            words = words if self._filtered else words[:-1]
            answer = self.connection.ask(
                [*words, "--", self.address.text, str(folder)], seconds=_LIST_SECONDS
            )
            if answer.code != 0:
                raise failure(self.address, answer)
            for pack in (folder / "objects/pack").glob("*.pack"):
                self.connection.add(pack.stat().st_size)
            with contextlib.suppress(OSError):
                found = _SYMREF.fullmatch((folder / "HEAD").read_text(encoding="utf-8").strip())
                return found[1].encode() if found is not None else b""
        return b""

    def _objects(self, what: str, wanted: Sequence[str] = (), depth: int | None = None) -> int:
        def make() -> bytes:
            chosen = wanted or clone_size.EVERYTHING
            return str(clone_size.objects(self.connection, chosen, depth)).encode()

        found = self._services.cached(f"git objects {self._key} {what}", _SIZE_AGE, make).data
        if not found.isdigit():
            raise AuditError("the cached size of the clone makes no sense")
        return int(found)

    def _shallow_objects(self, default: str, commit: str) -> int:
        """Objects of a clone with depth 1, and of the history that git then fetches for another commit."""
        first = self._objects("tip", [f"refs/heads/{default}"], 1) if default else 0
        if self.refs().heads.get(default) == commit:
            return first
        return first + self._objects(commit, [commit])
