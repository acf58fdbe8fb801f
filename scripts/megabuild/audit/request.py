"""What every source of the audit is asked with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from megabuild.audit.model import Target, Tree
from megabuild.configs.config import Config
from megabuild.network.services import Services


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
        Cache, web and time limit.
    tree:
        Opens upstream's tree when it is first called, once for all threads. Raises AuditError.
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
