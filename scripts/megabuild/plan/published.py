"""What is published in a config's channel, and from what it was made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from megabuild import files

RECORDS = ".megabuild-packages.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """A published package."""

    #: below the channel
    path: str
    #: of the file; the last one in nanoseconds: a file that was not written to since need not be read again
    size: int
    sha256: str
    #: sha256 over what the package depends on
    fingerprint: str
    #: how long its build script took
    seconds: float = 0.0
    modified: int = 0


def records(channel: Path) -> dict[str, Record]:
    """Return the published packages by file name; unreadable records count as none."""
    try:
        data = json.loads((channel / RECORDS).read_text())
        return {name: Record(**record) for name, record in data.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def paths(channel: Path, names: Iterable[str]) -> list[Path]:
    """Return the files of some published packages, by their file names."""
    known = records(channel)
    return [channel / known[name].path for name in names]


def is_published(channel: Path, record: Record | None, fingerprint: str) -> bool:
    """Say whether a package is there, what was published, and made from the same inputs."""
    return record is not None and record.fingerprint == fingerprint and is_whole(channel, record)


def is_whole(channel: Path, record: Record) -> bool:
    """Say whether the file of a record is there, and what was published."""
    return files.intact(channel / record.path, digest=record.sha256, size=record.size, when=record.modified)
