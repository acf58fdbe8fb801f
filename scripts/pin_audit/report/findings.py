"""What somebody must look at, at lines of the recipes: as SARIF 2.1.0, or as annotations of GitHub Actions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from pin_audit.advice import DECISIONS, advice
from pin_audit.claims import AuditRow, Status
from pin_audit.facts import AuditTarget, RecipeArchs, RecipeCommit, RecipePin, Where
from pin_audit.report.jsonfile import Report
from pin_audit.targets import packages

Level = Literal["error", "warning", "note"]
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


@dataclass(frozen=True)
class Finding:
    """One sentence about a place in the repository."""

    rule: str  #: ``recipe-older``
    level: Level
    text: str
    file: str
    line: int | None


def of_report(report: Report) -> Iterator[Finding]:
    """Yield a finding for each row that needs a decision."""
    for audit in report.audits:
        for row in (*audit.rows, *audit.archs):
            if row.status in DECISIONS:
                where = _where(row)
                todo = advice(row)
                text = f"{audit.target.package} {audit.target.version}, {row.name}: {row.sentence}"
                yield Finding(
                    row.status.value.replace(" ", "-"),
                    "error" if row.status is Status.CONFLICT else "warning",
                    f"{text}. To do: {todo}" if todo else text,
                    where.file or _recipe(audit.target),  # GitHub takes no finding without a file
                    where.line,
                )


def _where(row: AuditRow) -> Where:
    """Return the line that a row is about, if it can be told."""
    pins = [one for one in row.all(RecipePin) if one.where.line]
    named = [one for one in pins if one.value != "*" and one.value.partition(" ")[0] in row.sentence]
    others = [one for one in row.all(RecipeArchs, RecipeCommit) if one.where.line]
    return next((one.where for one in (*named, *pins, *others)), Where())


def _recipe(target: AuditTarget) -> str:
    """Return the recipe of what was audited, below its repository."""
    beside = "recipe/" + (target.recipe.name if target.recipe else "recipe.yaml")
    return next((one.recipe for one in packages() if one.name == target.package), beside)


def sarif(found: Sequence[Finding]) -> str:
    """Return findings as a SARIF log; paths are relative to the repository's root."""
    rules = sorted({one.rule for one in found})
    results = [
        {
            "ruleId": one.rule,
            "ruleIndex": rules.index(one.rule),
            "level": one.level,
            "message": {"text": one.text},
            "locations": [_location(one)],
        }
        for one in found
    ]
    driver = {"name": "megabuild audit", "rules": [{"id": one} for one in rules]}
    run = {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False)


def _location(one: Finding) -> dict[str, object]:
    place: dict[str, object] = {"artifactLocation": {"uri": quote(one.file), "uriBaseId": "%SRCROOT%"}}
    if one.line:
        place["region"] = {"startLine": one.line}
    return {"physicalLocation": place}


def github(found: Sequence[Finding]) -> list[str]:
    """Return findings as workflow commands, which GitHub shows at the lines of a pull request."""
    lines = []
    for one in found:
        values = {"file": one.file, "line": str(one.line or ""), "title": f"audit: {one.rule}"}
        fields = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in values.items() if value)
        lines.append(f"::{_COMMANDS[one.level]} {fields}::{_escaped(one.text)}")
    return lines


def _escaped(text: str, more: str = "") -> str:
    for sign in f"%\r\n{more}":
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
