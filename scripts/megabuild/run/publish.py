"""The published channel of a config: packages that were verified, and from what they were made."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from megabuild.configs.render import PlannedPackage
from megabuild.engine import archive, cache
from megabuild.errors import IntegrityError

RECORDS = ".megabuild-packages.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """A published package.

    Parameters
    ----------
    path:
        Below the channel.
    size, sha256:
        Of the file.
    fingerprint:
        sha256 over what the package depends on.
    seconds:
        How long its build script took.
    """

    path: str
    size: int
    sha256: str
    fingerprint: str
    seconds: float = 0.0


def records(channel: Path) -> dict[str, Record]:
    """Return the published packages by file name; unreadable records count as none."""
    try:
        data = json.loads((channel / RECORDS).read_text())
        return {name: Record(**record) for name, record in data.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def is_published(channel: Path, record: Record | None, fingerprint: str) -> bool:
    """Say whether a package is there, whole, and made from the same inputs.

    Looks at the size and at the archive's directory: every byte was read when it was published.
    """
    if record is None or record.fingerprint != fingerprint:
        return False
    path = channel / record.path
    return path.is_file() and path.stat().st_size == record.size and zipfile.is_zipfile(path)


def verify(planned: PlannedPackage, path: Path) -> archive.Archive:
    """Look into a finished package and compare it with the plan.

    Raises
    ------
    IntegrityError
        It cannot be read, is another package, or holds a compiled file of another Python.
    """
    found = archive.read(path)
    wanted = (planned.name, planned.version, planned.build_string)
    if (found.name, found.version, found.build_string) != wanted:
        itself = f"{found.name} {found.version} {found.build_string}"
        raise IntegrityError(
            f"{path.name} says of itself {itself}, planned was {' '.join(wanted)}",
            "this is a fault of the recipe or the engine",
        )
    foreign = foreign_bytecode(found.files, planned.python)
    if foreign:
        raise IntegrityError(
            f"{path.name} holds compiled files that are not its own: {', '.join(foreign[:3])}",
            "tighten the output's file list, or set PYTHONDONTWRITEBYTECODE in its script",
        )
    return found


def foreign_bytecode(files: Sequence[str], python: str | None) -> list[str]:
    """Return the ``.pyc`` files whose source is not in the same package, or that are for another Python."""
    own = set(files)
    foreign = []
    for name in files:
        if name.endswith(".pyc"):
            path = Path(name)
            module, _, tag = path.stem.partition(".")
            source = (
                path.parent.parent / f"{module}.py"
                if path.parent.name == "__pycache__"
                else path.with_suffix(".py")
            )
            digits = (python or "").replace(".", "").rstrip("t")
            if source.as_posix() not in own or (tag and digits and f"-{digits}" not in tag):
                foreign.append(name)
    return foreign


def owners(archives: Iterable[archive.Archive]) -> dict[str, set[str]]:
    """Return the paths that packages of different names both install, with those names.

    Builds of one package may share paths: the solver never installs two of them.
    """
    owned: dict[str, set[str]] = {}
    for package in archives:
        for path in package.files:
            owned.setdefault(path, set()).add(package.name)
    return {path: names for path, names in owned.items() if len(names) > 1}


def check_owners(archives: Sequence[archive.Archive]) -> None:
    """Raise if a path belongs to more than one package.

    Raises
    ------
    IntegrityError
        Naming a few of the paths.
    """
    shared = owners(archives)
    if shared:
        examples = "; ".join(
            f"{path} ({', '.join(sorted(names))})" for path, names in sorted(shared.items())[:3]
        )
        raise IntegrityError(
            f"{len(shared)} files belong to more than one package: {examples}",
            "tighten the outputs' file lists",
        )


def publish(
    channel: Path,
    archives: Sequence[archive.Archive],
    *,
    platform: str,
    fingerprints: Mapping[str, str],
    seconds: Mapping[str, float],
) -> dict[str, Record]:
    """Put verified packages into the channel and index it.

    Files come by rename, then the index, then the records: what has a record can be installed.

    Parameters
    ----------
    channel:
        The published channel.
    archives:
        Verified packages.
    platform:
        conda's platform name.
    fingerprints:
        By file name: sha256 over what the package depends on.
    seconds:
        By file name: how long it took.

    Returns
    -------
    dict[str, Record]
        Everything that is published now.
    """
    known = records(channel)
    for package in archives:
        name = package.path.name
        target = channel / package.path.parent.name / name
        known.pop(name, None)
        _write(channel, known)  # a killed run must not leave the former record beside the new file
        cache.link(package.path, target)
        known[name] = Record(
            path=f"{package.path.parent.name}/{name}",
            size=target.stat().st_size,
            sha256=archive.sha256(target),
            fingerprint=fingerprints[name],
            seconds=round(seconds.get(name, 0.0), 1),
        )
    cache.index(channel, platform)
    _write(channel, known)
    return known


def _write(channel: Path, known: Mapping[str, Record]) -> None:
    channel.mkdir(parents=True, exist_ok=True)
    beside = channel / f"{RECORDS}.new"
    beside.write_text(
        json.dumps({name: asdict(record) for name, record in known.items()}, indent=1, sort_keys=True)
    )
    os.replace(beside, channel / RECORDS)
