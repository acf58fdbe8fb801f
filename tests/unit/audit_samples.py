"""Facts, outcomes and targets for the tests of the audit's table."""

from __future__ import annotations

from collections.abc import Sequence

from pin_audit.audit_report import Report
from pin_audit.facts import (
    AnyFact,
    AuditTarget,
    Build,
    CiPin,
    GlobalPin,
    Migration,
    Newest,
    RecipeArchs,
    RecipeCommit,
    RecipePin,
    Requirement,
    Scope,
    Section,
    SourceOutcome,
    Submodule,
    TagCommit,
    UpstreamArchs,
    Where,
)
from pin_audit.name_map import names
from pin_audit.rows import AuditRow
from pin_audit.run_sources import SOURCES
from pin_audit.table import Audit, tabulate

CONFIGS = ("linux_64_cpu", "linux_64_cuda129", "linux_64_cuda130", "linux_aarch64_cuda130", "osx_arm64_cpu")
MADE = "2026-11-21T08:00:00Z"
_SOURCES = {
    Submodule: "submodules",
    TagCommit: "upstream_commit",
    Requirement: "wheel_metadata",
    CiPin: "ci_pins",
    RecipePin: "recipe_pins",
    RecipeCommit: "recipe_commits",
    GlobalPin: "pinning",
    Migration: "pinning",
    Newest: "channel",
    UpstreamArchs: "upstream_archs",
    RecipeArchs: "recipe_archs",
}


def build(name: str) -> Build:
    """A config as facts depend on it."""
    platform, _, accelerator = name.rpartition("_")
    cuda = f"{accelerator[4:6]}.{accelerator[6:]}" if accelerator.startswith("cuda") else ""
    return Build(
        name=name,
        platform=platform.replace("_", "-"),
        accelerator=accelerator,
        cuda=cuda,
        blas="generic",
        provider="conda-forge",
    )


def target(package: str = "pytorch", configs: Sequence[str] = CONFIGS) -> AuditTarget:
    """A target that needs no repository."""
    return AuditTarget(
        package=package, version="2.13.0", repository="https://github.com/pytorch/pytorch.git", tag="v2.13.0",
        wheel="torch", builds=tuple(map(build, configs)),
    )  # fmt: skip


def wheel(name: str, value: str, marker: str = "") -> Requirement:
    """A requirement of the wheel."""
    return Requirement(
        name=name,
        value=value,
        holds=Scope(marker=marker),
        where=Where(file="METADATA", line=7, url="https://index.example/torch/2.13.0/"),
    )


def asks(
    name: str, value: str, *, configs: Sequence[str] = CONFIGS, sections: Sequence[str] = ("host", "run")
) -> RecipePin:
    """A requirement of the recipe."""
    return RecipePin(
        name=name,
        value=value,
        holds=Scope(configs=tuple(configs)),
        sections=tuple(map(Section, sections)),
        where=Where(file="recipe/recipe.yaml", line=12),
    )


def vendors(path: str, value: str, commit: str = "", url: str = "") -> Submodule:
    """A submodule of upstream's."""
    return Submodule(name=path, value=value, commit=commit, address=url)


def ci_has(name: str, value: str, *cuda: str) -> CiPin:
    """What upstream's CI has."""
    return CiPin(name=name, value=value, holds=Scope(cuda=cuda))


def pinned(name: str, value: str, *platforms: str, migration: str = "") -> GlobalPin:
    """A pin of conda-forge's, or where it is migrated to."""
    fields = {"name": name, "value": value, "values": (value,), "holds": Scope(platforms=platforms)}
    return Migration(**fields, migration=migration) if migration else GlobalPin(**fields)  # type: ignore[arg-type]


def has(name: str, value: str) -> Newest:
    """What the channel has."""
    return Newest(name=name, value=value)


def audit(
    *facts: AnyFact,
    package: str = "pytorch",
    troubles: dict[str, str] | None = None,
    configs: Sequence[str] = CONFIGS,
) -> Audit:
    """The table of some facts, with every source heard."""
    outcomes = [
        SourceOutcome(
            source=source,
            facts=tuple(one for one in facts if _SOURCES[type(one)] == source),
            trouble=(troubles or {}).get(source, ""),
        )
        for source in SOURCES
    ]
    return tabulate(target(package, configs), outcomes, names())


def row(
    name: str,
    *facts: AnyFact,
    troubles: dict[str, str] | None = None,
    configs: Sequence[str] = CONFIGS,
) -> AuditRow:
    """One row of such a table."""
    return next(one for one in audit(*facts, troubles=troubles, configs=configs).rows if one.name == name)


def report(*facts: AnyFact, troubles: dict[str, str] | None = None) -> Report:
    """A report with such a table."""
    return Report(made=MADE, audits=(audit(*facts, troubles=troubles),))
