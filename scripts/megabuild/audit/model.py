"""What the audit's parts hand to each other: a request goes to each source, findings with their origin come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol


class Kind(str, Enum):
    """What a finding says of a dependency."""

    SUBMODULE = "submodule"  #: commit that upstream vendors, described by the nearest tag
    COMMIT = "commit"  #: of upstream's tag
    REQUIREMENT = "requirement"  #: Requires-Dist of upstream's wheel
    CI_PIN = "ci-pin"  #: what upstream's CI builds and tests with
    RECIPE = "recipe"  #: what a variant of this recipe asks for
    RECIPE_COMMIT = "recipe-commit"  #: what a recipe of this repository takes from git
    GLOBAL_PIN = "global-pin"  #: conda-forge-pinning
    MIGRATION = "migration"  #: a pin that conda-forge is moving to
    NEWEST = "newest"  #: newest version in the channel
    UPSTREAM_ARCHS = "upstream-archs"  #: GPU architectures of upstream's wheels
    RECIPE_ARCHS = "recipe-archs"  #: those of this recipe's packages


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a value was read.

    Parameters
    ----------
    file:
        Path inside the tree, archive or index that ``url`` names, or in this repository.
    line:
        Counted from 1, or None where there are no lines.
    url:
        For a person to open; without credentials.
    commit:
        Of the tree, in full; empty where there is none.
    date:
        Of the thing itself (commit, upload), ISO 8601, or empty.
    fetched:
        When it came over the network, ISO 8601 in UTC; empty for local files.
    """

    file: str = ""
    line: int | None = None
    url: str = ""
    commit: str = ""
    date: str = ""
    fetched: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One value of one dependency, in one place.

    Parameters
    ----------
    name:
        As the source calls it: ``third_party/fmt``, ``typing-extensions``, ``libprotobuf``.
    kind:
        What it says.
    value:
        As it is shown: ``v2.1.0-705-ga6bfc23``, ``>=4.10.0``, ``13.0.2``; empty if there is ``trouble``.
    scope:
        Where it holds, if not everywhere: a marker, config names, a platform, a migration's name.
    origin:
        Where it was read.
    trouble:
        Why there is no value: a sentence for the cell; empty where there is one.
    details:
        More for the JSON report: a submodule's ``url`` and ``commit``.
    """

    name: str
    kind: Kind
    value: str
    scope: str = ""
    origin: Origin = field(default_factory=Origin)
    trouble: str = ""
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one source found.

    Parameters
    ----------
    source:
        Its module's name: ``submodules``.
    findings:
        In a stable order.
    trouble:
        Why the source as a whole says nothing, or less than it should; empty if all is well.
    received:
        Bytes that came over the network for it.
    """

    source: str
    findings: tuple[Finding, ...] = ()
    trouble: str = ""
    received: int = 0


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is audited.

    Parameters
    ----------
    package:
        ``pytorch``, ``pytorch_scatter``, …: as conda-forge calls it.
    version:
        ``2.13.0``.
    repository:
        Any address that git takes; a mirror may stand in.
    tag:
        Of the version in that repository: ``v2.13.0``, or a commit.
    wheel:
        The distribution on PyPI, or empty where there is none.
    recipe:
        Its recipe.yaml, or None where this repository has none.
    configs:
        Names of the configs whose variants are looked at.
    """

    package: str
    version: str
    repository: str
    tag: str
    wheel: str
    recipe: Path | None
    configs: tuple[str, ...]


class Tree(Protocol):
    """Upstream's files at the target's tag, whether from git or from a folder."""

    @property
    def commit(self) -> str:
        """Return the full commit, or an empty string where it is not known."""

    def names(self) -> Sequence[str]:
        """Return the paths of all files, sorted."""

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those files that exist; one request for all of them."""

    def url(self, path: str, line: int | None = None) -> str:
        """Return an address of a file for a person to open, or an empty string."""
