"""Findings, outcomes and targets for the tests of the audit's table."""

from __future__ import annotations

from collections.abc import Sequence

from megabuild.audit.gather import SOURCES
from megabuild.audit.model import Finding, Kind, Origin, Outcome, Target
from megabuild.audit.names import names
from megabuild.audit.report.document import Report
from megabuild.audit.rows import Audit, Row, tabulate

CONFIGS = ("linux_64_cpu", "linux_64_cuda129", "linux_64_cuda130", "linux_aarch64_cuda130", "osx_arm64_cpu")
MADE = "2026-11-21T08:00:00Z"
_SOURCES = {
    Kind.SUBMODULE: "submodules",
    Kind.COMMIT: "upstream_commit",
    Kind.REQUIREMENT: "wheel_metadata",
    Kind.CI_PIN: "ci_pins",
    Kind.RECIPE: "recipe_pins",
    Kind.RECIPE_COMMIT: "recipe_commits",
    Kind.GLOBAL_PIN: "pinning",
    Kind.MIGRATION: "pinning",
    Kind.NEWEST: "channel",
    Kind.UPSTREAM_ARCHS: "upstream_archs",
    Kind.RECIPE_ARCHS: "recipe_archs",
}


def target(package: str = "pytorch", configs: Sequence[str] = CONFIGS) -> Target:
    """A target that needs no repository."""
    return Target(
        package=package,
        version="2.13.0",
        repository="https://github.com/pytorch/pytorch.git",
        tag="v2.13.0",
        wheel="torch",
        recipe=None,
        configs=tuple(configs),
    )


def wheel(name: str, value: str, marker: str = "") -> Finding:
    """A requirement of the wheel."""
    return Finding(
        name=name,
        kind=Kind.REQUIREMENT,
        value=value,
        scope=marker,
        details={"marker": marker},
        origin=Origin(file="METADATA", line=7, url="https://index.example/torch/2.13.0/"),
    )


def asks(
    name: str, value: str, *, configs: Sequence[str] = CONFIGS, sections: str = "host run", scope: str = ""
) -> Finding:
    """A requirement of the recipe."""
    return Finding(
        name=name,
        kind=Kind.RECIPE,
        value=value,
        scope=scope,
        details={"configs": " ".join(configs), "sections": sections},
        origin=Origin(file="recipe/recipe.yaml", line=12),
    )


def switch(name: str, value: str, configs: Sequence[str] = CONFIGS) -> Finding:
    """A switch of the build."""
    return Finding(
        name=name,
        kind=Kind.RECIPE,
        value=value,
        details={"switch": "yes", "configs": " ".join(configs)},
        origin=Origin(file="recipe/build_env.sh", line=30),
    )


def said(kind: Kind, name: str, value: str, scope: str = "", **details: str) -> Finding:
    """A finding of any other kind."""
    return Finding(name=name, kind=kind, value=value, scope=scope, details=details)


def audit(*findings: Finding, package: str = "pytorch", troubles: dict[str, str] | None = None) -> Audit:
    """The table of some findings, with every source heard."""
    outcomes = [
        Outcome(
            source=source,
            findings=tuple(one for one in findings if _SOURCES[one.kind] == source),
            trouble=(troubles or {}).get(source, ""),
        )
        for source in SOURCES
    ]
    return tabulate(target(package), outcomes, names())


def row(name: str, *findings: Finding, troubles: dict[str, str] | None = None) -> Row:
    """One row of such a table."""
    return next(one for one in audit(*findings, troubles=troubles).rows if one.name == name)


def report(*findings: Finding, troubles: dict[str, str] | None = None) -> Report:
    """A report with such a table."""
    return Report(made=MADE, audits=(audit(*findings, troubles=troubles),))
