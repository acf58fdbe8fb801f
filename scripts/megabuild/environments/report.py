"""The report on an environment that is planned or was created, as text and as JSON."""

from __future__ import annotations

import shlex
from pathlib import Path

from groundwork.result import Result
from groundwork.text import UNICODE, display, duration, size, table
from groundwork.wording import counted
from megabuild.environments.install import ACTIVATE
from megabuild.environments.prefix import Solution
from megabuild.plan.solving import url


def summary(solution: Solution) -> str:
    """Return how many packages there are, and how large their files."""
    return f"{counted(len(solution.records), 'package')}, {size(solution.size)} of files"


def planned(folder: Path, solution: Solution) -> Result:
    """Return what would be installed."""
    rows = [
        (record.name.normalized, str(record.version), str(record.build), size(record.size or 0))
        for record in solution.records
    ]
    channels = [display(channel) if isinstance(channel, Path) else channel for channel in solution.channels]
    heads = ("package", "version", "build", "size")
    lines = [*table(heads, rows, right=frozenset({3})), "", summary(solution)]
    return _result(folder, solution, [*lines, *(f"from {channel}" for channel in channels)])


def created(folder: Path, solution: Solution, seconds: float) -> Result:
    """Return what was installed, and how it is used."""
    path = shlex.quote(display(folder.absolute()))
    lines = [
        f"{UNICODE.done} {counted(len(solution.records), 'package')} in {duration(seconds)}",
        f"activate it:  . {path}/{ACTIVATE}",
        f"or just run:  {path}/bin/python",
    ]
    return _result(folder, solution, lines)


def _result(folder: Path, solution: Solution, lines: list[str]) -> Result:
    path = folder.absolute()
    packages = [
        {
            "name": record.name.normalized,
            "version": str(record.version),
            "build_string": str(record.build),
            "url": record.url,
            "sha256": record.sha256.hex() if record.sha256 else "",
        }
        for record in solution.records
    ]
    document = {
        "environment": str(path),
        "activate": str(path / ACTIVATE),
        "channels": [url(channel) for channel in solution.channels],
        "bytes": solution.size,
        "packages": packages,
    }
    return Result(format="environment", document=document, lines=lines)
