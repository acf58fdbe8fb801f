"""What every source of the audit is asked with: what is audited, and the means to ask about it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from megabuild.audit.facts import Target
from megabuild.configs.config import Config
from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.network.cache import Cache
from megabuild.network.client import Client, Patience

if TYPE_CHECKING:
    from megabuild.audit.trees import GitTree, Tree

DAY = 86400.0
Made = TypeVar("Made")


class Services:
    """The way to servers, the cache before it, and the time for all of it; shared by all sources, safe for threads.

    Parameters
    ----------
    folder:
        Of the cache.
    offline:
        Only the cache and local files are asked.
    seconds:
        For everything.
    max_age:
        Seconds after which what can change (an index page, repodata, a branch) is asked for again.
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
        self.folder = folder.absolute()
        self.offline, self.max_age, self.patience = offline, max_age, patience
        self.client = Client(seconds=seconds, offline=offline, patience=patience)
        self.cached = Cache(folder, offline=offline, tell=lambda text: self.report("cache", text)).cached
        self.remaining = self.client.remaining  #: the seconds that are left, never below 0
        self._report, self._reporting = report, threading.Lock()

    def report(self, source: str, text: str) -> None:
        """Tell what happens; secrets in addresses are taken out."""
        with self._reporting:
            self._report(source, redact.text(text))


class Once(Generic[Made]):
    """Makes something when it is first wanted; whoever comes later gets the same, or the same refusal."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made: Made | AuditError | None = None

    def __call__(self) -> Made:
        with self._lock:
            if self._made is None:
                try:
                    self._made = self._make()
                except AuditError as error:
                    self._made = error
            if isinstance(self._made, AuditError):
                raise self._made
            return self._made


@dataclass(frozen=True, kw_only=True)
class Local:
    """Local stand-ins that the user named; None where the network or the cache is asked."""

    wheel: Path | None = None  #: of the package
    tree: Path | None = None  #: a folder with upstream's files
    pinning: Path | None = None  #: a ``conda_build_config.yaml`` or a folder with one and with migrations
    repodata: Path | None = None  #: a folder with ``<platform>/repodata.json`` or ``repodata.json.zst``


@dataclass(frozen=True, kw_only=True)
class Request:
    """One package at one version, and the means to ask about it."""

    target: Target
    services: Services
    repository: Callable[[], GitTree]  #: opens upstream's repository at the target's tag; raises AuditError
    configs: tuple[Config, ...]  #: those whose variants are looked at
    root: Path  #: this repository
    local: Local = Local()
    names: tuple[str, ...] = ()  #: conda names whose newest version and global pin are wanted

    def tree(self) -> Tree:
        """Return upstream's files: those of the repository, or of a folder that stands in; raises AuditError."""
        from megabuild.audit.trees import LocalTree

        return LocalTree(self.local.tree) if self.local.tree is not None else self.repository()

    def shown(self, path: Path) -> str:
        """Return a file's path in this repository, or its name alone where it lies elsewhere."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else path.name
