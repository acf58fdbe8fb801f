"""The report as JSON: sorted, versioned, with the provenance of every value; written whole, and read again."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from megabuild.audit.model import Finding, Kind, Origin, Outcome, Target
from megabuild.audit.names import Names
from megabuild.audit.report.document import Report
from megabuild.audit.rows import CONDA_FORGE, UPSTREAM, Audit, tabulate
from megabuild.errors import UsageError

FORMAT = 1
_COLUMNS = {
    "upstream": (*UPSTREAM, Kind.COMMIT),
    "recipe": (Kind.RECIPE, Kind.RECIPE_COMMIT),
    "conda-forge": CONDA_FORGE,
}


def document(report: Report) -> dict[str, Any]:
    """Return a report as JSON values."""
    return {
        "format": FORMAT,
        "made": report.made,
        "packages": [_audit(audit) for audit in report.audits],
    }


def text(report: Report) -> str:
    """Return a report as the text of a JSON file."""
    return json.dumps(document(report), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write(content: str, path: Path) -> None:
    """Write a file so that it appears whole or not at all.

    Raises
    ------
    UsageError
        It cannot be written.
    """
    partial: Path | None = None
    try:
        # through a link to the file that it means
        target = path.resolve()
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        partial = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            stream.write(content)
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        partial.chmod(mode)
        partial.replace(target)
    except OSError as error:
        if partial is not None:
            with suppress(OSError):
                partial.unlink()
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}", "name a file that can be written"
        ) from error


def read(path: Path, names: Names) -> Report:
    """Read a report, and judge its findings as this version does.

    Parameters
    ----------
    path:
        As `text` makes it.
    names:
        The mapping for its rows.

    Raises
    ------
    UsageError
        It cannot be read, is no report, or is one of a later format.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or "format" not in values:
            raise ValueError("it has no format")
        if values["format"] != FORMAT:
            raise UsageError(
                f"{path} has format {values['format']}, this program reads {FORMAT}",
                "make it anew, or use the program that made it",
            )
        audits = tuple(_audit_from(entry, names) for entry in values["packages"])
        report = Report(made=str(values["made"]), audits=audits)
        report.day  # noqa: B018 - a date that is none is noticed here
        return report
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror or error}", "name a report of --json"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no report of the audit: {error}", "name a report of --json") from error


def _audit(audit: Audit) -> dict[str, Any]:
    target = audit.target
    places = {
        id(finding): f"{outcome.source}/{number}"
        for outcome in audit.outcomes
        for number, finding in enumerate(outcome.findings)
    }
    return {
        "package": target.package,
        "version": target.version,
        "repository": target.repository,
        "tag": target.tag,
        "wheel": target.wheel,
        "commit": audit.commit,
        "configs": list(target.configs),
        "rows": [
            {
                "name": row.name,
                "use": row.use,
                "why": row.why,
                "status": row.status.value,
                "sentence": row.sentence,
                # each the source and, counted from 0, the number of its finding
                "cells": {
                    column: [places[id(one)] for one in row.of(*kinds)] for column, kinds in _COLUMNS.items()
                },
            }
            for row in audit.rows
        ],
        "archs": [
            {
                "cuda": row.cuda,
                "status": row.status.value,
                "sentence": row.sentence,
                "cells": {
                    "upstream": [places[id(one)] for one in row.upstream],
                    "recipe": [places[id(one)] for one in row.recipes],
                },
            }
            for row in audit.archs
        ],
        "sources": [
            {
                "source": outcome.source,
                "trouble": outcome.trouble,
                "received": outcome.received,
                "findings": [_finding(finding) for finding in outcome.findings],
            }
            for outcome in audit.outcomes
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    origin = finding.origin
    values: dict[str, Any] = {
        "name": finding.name,
        "kind": finding.kind.value,
        "value": finding.value,
        "scope": finding.scope,
        "trouble": finding.trouble,
        "details": dict(finding.details),
        "file": origin.file,
        "line": origin.line,
        "url": origin.url,
        "commit": origin.commit,
        "date": origin.date,
        "fetched": origin.fetched,
    }
    return {key: value for key, value in values.items() if value or key in ("name", "kind", "value")}


def _audit_from(entry: Mapping[str, Any], names: Names) -> Audit:
    target = Target(
        package=str(entry["package"]),
        version=str(entry["version"]),
        repository=str(entry["repository"]),
        tag=str(entry["tag"]),
        wheel=str(entry["wheel"]),
        recipe=None,
        configs=tuple(map(str, entry["configs"])),
    )
    outcomes = [
        Outcome(
            source=str(source["source"]),
            trouble=str(source["trouble"]),
            received=int(source["received"]),
            findings=tuple(_finding_from(one) for one in source["findings"]),
        )
        for source in entry["sources"]
    ]
    return tabulate(target, outcomes, names)


def _finding_from(values: Mapping[str, Any]) -> Finding:
    line = values.get("line")
    return Finding(
        name=str(values["name"]),
        kind=Kind(values["kind"]),
        value=str(values["value"]),
        scope=str(values.get("scope", "")),
        trouble=str(values.get("trouble", "")),
        details={str(key): str(value) for key, value in values.get("details", {}).items()},
        origin=Origin(
            file=str(values.get("file", "")),
            line=None if line is None else int(line),
            url=str(values.get("url", "")),
            commit=str(values.get("commit", "")),
            date=str(values.get("date", "")),
            fetched=str(values.get("fetched", "")),
        ),
    )


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
