"""The request that every source gets: what is audited, and the services to use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from groundwork.errors import AuditError
from megabuild.configs.config import Config
from pin_audit.facts import AuditTarget
from pin_audit.repositories import Repository
from pin_audit.services import Services

Made = TypeVar("Made")


class Lazy(Generic[Made]):
    """A value made on first use; its AuditError is kept as well. Thread-safe."""

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
    """Local files to use instead; None for the network or the cache."""

    tree: Path | None = None  #: a folder with upstream's files, or a checkout
    pinning: Path | None = None  #: a ``conda_build_config.yaml`` or a folder with one and with migrations


class LocalTree:
    """A folder's files, such as an unpacked source archive; links are not followed."""

    commit = ""  #: a folder's files need not be those of a commit

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def names(self) -> Sequence[str]:
        """Return the paths of all regular files, sorted."""
        found = []
        for top, folders, files in os.walk(self._folder):
            folders[:] = [name for name in folders if name != ".git"]
            places = (Path(top, name) for name in files if name != ".git")
            found += [place for place in places if place.is_file() and not place.is_symlink()]
        return sorted(place.relative_to(self._folder).as_posix() for place in found)

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those files that exist."""
        try:
            return {path: (self._folder / path).read_bytes() for path in {*self.names()}.intersection(paths)}
        except OSError as error:
            raise AuditError(f"cannot read {self._folder}: {error}", "check its permissions") from error

    def url(self, path: str, line: int | None = None) -> str:
        """Return nothing: there is no page of it."""
        return ""


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """One package at one version, and the services to look it up."""

    target: AuditTarget
    services: Services
    repository: Callable[
        [], Repository
    ]  #: opens upstream's repository at the target's tag; raises AuditError
    configs: tuple[Config, ...]  #: those whose variants are audited
    root: Path  #: this repository
    local: Local = Local()
    foreign: bool = False  #: whether that is another feedstock, whose files are not laid out like this one's
    names: tuple[str, ...] = ()  #: conda names whose newest version and global pin are wanted

    def tree(self) -> Repository | LocalTree:
        """Return upstream's files: the repository's, or a local folder's; raises AuditError."""
        return LocalTree(self.local.tree) if self.local.tree is not None else self.repository()

    def shown(self, path: Path) -> str:
        """Return a file's path in this repository, or its name alone where it lies elsewhere."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else path.name
