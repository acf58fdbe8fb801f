"""What every source of the audit is asked with: what is audited, and the means to ask about it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from megabuild.audit.facts import Target, Tree
from megabuild.configs.config import Config
from megabuild.network import redact
from megabuild.network.cache import Cache, Entry
from megabuild.network.client import Client, Patience

DAY = 86400.0


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
        self.offline = offline
        self.max_age = max_age
        self.patience = patience
        self.client = Client(seconds=seconds, offline=offline, patience=patience)
        self.cached: Callable[[str, float, Callable[[], bytes]], Entry] = Cache(
            folder, offline=offline, tell=lambda text: self.report("cache", text)
        ).cached
        self._report = report
        self._reporting = threading.Lock()

    def remaining(self) -> float:
        """Return the seconds that are left, never below 0."""
        return self.client.remaining()

    def report(self, source: str, text: str) -> None:
        """Tell what happens; secrets in addresses are taken out."""
        with self._reporting:
            self._report(source, redact.text(text))


@dataclass(frozen=True, kw_only=True)
class Local:
    """Local stand-ins that the user named; None where the network or the cache is asked.

    Parameters
    ----------
    wheel:
        A wheel of the package.
    tree:
        A folder with upstream's files.
    pinning:
        conda-forge-pinning: a ``conda_build_config.yaml`` or a folder with one and with migrations.
    repodata:
        A folder with ``<platform>/repodata.json`` or ``repodata.json.zst``.
    """

    wheel: Path | None = None
    tree: Path | None = None
    pinning: Path | None = None
    repodata: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """One package at one version, and the means to ask about it.

    Parameters
    ----------
    target:
        What is audited.
    services:
        Cache, network and time limit.
    tree:
        Opens upstream's tree when it is first called, once for all threads. Raises MegabuildError.
    configs:
        Those whose variants are looked at.
    root:
        This repository.
    local:
        Local stand-ins.
    names:
        conda names whose newest version and global pin are wanted.
    """

    target: Target
    services: Services
    tree: Callable[[], Tree]
    configs: tuple[Config, ...]
    root: Path
    local: Local = field(default_factory=Local)
    names: tuple[str, ...] = ()

    def shown(self, path: Path) -> str:
        """Return a file's path in this repository, or its name alone where it lies elsewhere."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else path.name
