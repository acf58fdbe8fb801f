"""The request that every source gets, the audited package and the shared services, and what a source is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from groundwork import files
from groundwork.errors import AuditError, IntegrityError
from megabuild.configs.config import Config
from pin_audit.facts import AuditTarget, SourceOutcome
from pin_audit.repositories import Repositories, Repository
from pin_audit.services import Services


class LocalTree:
    """A folder's files, such as an unpacked source archive; links are not followed."""

    commit = ""  #: unknown: a folder need not match any commit

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those `paths` that are regular files."""
        contents = {}
        for path in paths:
            try:
                with files.open_regular(self._folder / path, below=self._folder) as file:
                    contents[path] = file.read()
            except (FileNotFoundError, NotADirectoryError, IntegrityError):
                continue  # missing, or behind a link
        return contents

    def url(self, path: str, line: int | None = None) -> str:
        """Return an empty string: local files have no web page."""
        return ""


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """One package at one version, and the services to look it up."""

    target: AuditTarget
    services: Services
    repositories: Repositories
    configs: tuple[Config, ...]  #: the audited ones
    root: Path  #: this repository
    local_tree: Path | None = None  #: a folder with upstream's files
    local_pinning: Path | None = None  #: a ``conda_build_config.yaml``, or a folder with it and migrations
    foreign: bool = False  #: whether `root` is another feedstock, with another layout
    names: tuple[str, ...] = ()  #: conda names whose newest version and global pin are wanted

    def repository(self) -> Repository:
        """Return upstream's repository at the target's tag; raises AuditError."""
        if not self.target.repository or not self.target.tag:
            reason = f"{self.target.package}: the recipe names no upstream repository and tag"
            raise AuditError(reason, "pass --upstream URL --ref TAG")
        return self.repositories.open(self.target.repository, self.target.tag)

    def tree(self) -> Repository | LocalTree:
        """Return upstream's files: the repository's, or a local folder's; raises AuditError."""
        return LocalTree(self.local_tree) if self.local_tree is not None else self.repository()


#: A source's function; its outcome needs no name.
Read = Callable[[AuditRequest], SourceOutcome]


class About(Enum):
    """The subject of a source's facts, which decides how long they hold."""

    RELEASE = "upstream's release, which never changes"
    CHANNEL = "conda-forge, which changes daily: the table shows old values, but ``--fail-on`` counts those as unread"
    REPOSITORY = "the audited repository, which is read without a network"


def _no_local_files(request: AuditRequest) -> Path | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A source of facts, as its module names it in ``SOURCES``."""

    read: Read
    about: About = About.RELEASE
    local_files: Callable[[AuditRequest], Path | None] = _no_local_files  #: files that replace it, if passed


def local_tree(request: AuditRequest) -> Path | None:
    """Return the folder of ``--tree``, for sources that read `AuditRequest.tree`."""
    return request.local_tree
