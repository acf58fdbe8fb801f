"""The request that every source gets: what is audited, and the services to use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from groundwork.errors import AuditError
from megabuild.configs.config import Config
from pin_audit.facts import AuditTarget
from pin_audit.repositories import Repositories, Repository
from pin_audit.services import Services


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """One package at one version, and the services to look it up."""

    target: AuditTarget
    services: Services
    repositories: Repositories
    configs: tuple[Config, ...]  #: those whose variants are audited
    root: Path  #: this repository
    foreign: bool = False  #: whether that is another feedstock, whose files are not laid out like this one's
    names: tuple[str, ...] = ()  #: conda names whose newest version and global pin are wanted

    def repository(self) -> Repository:
        """Return upstream's repository at the target's tag; raises AuditError."""
        if not self.target.repository or not self.target.tag:
            raise AuditError("the recipe names no upstream repository with a tag", "add it to about:")
        return self.repositories.open(self.target.repository, self.target.tag)

    def shown(self, path: Path) -> str:
        """Return a file's path in this repository, or its name alone where it lies elsewhere."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else path.name

    def wanted_keys(self) -> set[str]:
        """Return the keys of conda_build_config.yaml whose values are wanted."""
        named = {re.sub("[-.]", "_", name).lower() for name in self.names}
        return named | {key for config in self.configs for key in config.variant}
