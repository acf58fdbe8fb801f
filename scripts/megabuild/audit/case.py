"""A row before it is judged: what the recipe asks for in it, what conda-forge pins, and what the channel has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from megabuild.audit.claims import platforms_of
from megabuild.audit.model import Finding, Kind
from megabuild.audit.names import Entry
from megabuild.audit.specs import Spec, is_version, newest, pin


class Status(str, Enum):
    """A row's status, the gravest first."""

    CONFLICT = "conflict"
    OLDER = "recipe older"
    NEWER = "recipe newer"
    MISSING = "pin missing"
    UNKNOWN = "unknown"
    UNPINNED = "upstream unpinned"
    IN_STEP = "in step"


GRAVITY = tuple(Status)
Judged = tuple[Status, str]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row before it is judged; the fields are those of `megabuild.audit.rows.Row`.

    Parameters
    ----------
    configs:
        Names of all that are looked at.
    wheel_cuda:
        The CUDA version that upstream's wheels are for, or empty.
    troubles:
        Why a kind of findings is missing from the whole table.
    decided_by:
        The row that decides this one's version, or empty.
    torch:
        The PyTorch that an extension's recipe asks for, or empty.
    """

    entry: Entry
    use: str
    why: str
    findings: tuple[Finding, ...]
    configs: tuple[str, ...]
    wheel_cuda: str
    troubles: Mapping[Kind, str]
    decided_by: str
    torch: str = ""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What the recipe asks for, for some configs."""

    finding: Finding
    spec: Spec
    configs: frozenset[str]
    sections: frozenset[str]

    @property
    def text(self) -> str:
        """What it asks for, without a build string that comes with a version."""
        if self.finding.value == "*":
            return "any version"
        return self.finding.value if self.spec.any else self.finding.value.partition(" ")[0]


def asks_of(case: Case) -> list[Ask]:
    found = [
        Ask(
            finding=one,
            spec=Spec(one.value),
            configs=frozenset(one.details.get("configs", "").split()) or frozenset(case.configs),
            sections=frozenset(one.details.get("sections", "").split()),
        )
        for one in case.findings
        if one.kind is Kind.RECIPE and not one.value.startswith("<0.0a") and Spec(one.value).readable
    ]
    pinned = frozenset[str]().union(*(ask.configs for ask in found if not ask.spec.any))
    # a bare name beside a pinned one of the same row means what the pinned one lets it
    return [
        replace(ask, configs=ask.configs - pinned) if ask.spec.any else ask
        for ask in found
        if not ask.spec.any or ask.configs - pinned
    ]


def pins(case: Case, configs: frozenset[str], of: str = "") -> list[str]:
    """Return the values of conda-forge's pins that hold for any of the configs; all, or those ``of`` one package."""
    found = [
        one
        for one in case.findings
        if one.kind in (Kind.GLOBAL_PIN, Kind.MIGRATION) and not one.trouble and _meets(one.scope, configs)
    ]
    word = of.replace("-", "_")
    return [
        value
        for one in found
        if not word or one.name.replace("-", "_") == word or one.name in case.entry.keys
        for value in one.value.split(", ")
        if pin(value).readable
    ]


def _meets(scope: str, configs: frozenset[str]) -> bool:
    """Whether a pin's scope, which may name platforms, meets some configs."""
    platforms = {"linux-64", "linux-aarch64", "osx-64", "osx-arm64", "win-64"}
    named = {word for word in scope.replace(",", " ").split() if word in platforms}
    return not named or bool(named & platforms_of(configs))


def newest_versions(case: Case) -> list[tuple[frozenset[str], str]]:
    """Return the newest versions of the row's first package, each with the platforms that have it (none: all)."""
    first = case.entry.conda[:1] or (case.entry.name,)
    return [
        (frozenset(one.details.get("platforms", "").replace(",", " ").split()), one.value)
        for one in case.findings
        if one.kind is Kind.NEWEST and not one.trouble and one.name in first and is_version(one.value)
    ]


def best_for(case: Case, configs: frozenset[str]) -> str:
    wanted = platforms_of(configs) | {"noarch"}
    return newest(value for platforms, value in newest_versions(case) if not platforms or platforms & wanted)
