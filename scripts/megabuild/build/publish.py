"""The published channel of a config: packages that were verified, and from what they were made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from megabuild import files
from megabuild.configs.render import PlannedPackage
from megabuild.engine import archive, channel_folder
from megabuild.errors import IntegrityError
from megabuild.plan.published import RECORDS, Record, is_whole, records
from megabuild.providers.local.store import indexed


def heal(channel: Path, platform: str) -> list[str]:
    """Take out of a channel what is not what was published, and bring its index in line with the rest.

    Parameters
    ----------
    channel:
        The published channel; its config's lock is held.
    platform:
        conda's platform name.

    Returns
    -------
    list[str]
        What was wrong, in words.
    """
    known = records(channel)
    damaged = [name for name, record in known.items() if not is_whole(channel, record)]
    told = [f"{name} is damaged and no longer published" for name in damaged]
    gone = [known.pop(name) for name in damaged]
    if gone:
        _write(channel, known)
    for record in gone:
        (channel / record.path).unlink(missing_ok=True)
    for path in list(
        channel_folder.package_files(channel)
    ):  # a killed run's, or the records are gone: the index needs it whole
        if path.name not in known and not _can_be_read(path):
            path.unlink()
            told.append(f"{path.name}, which nobody recorded, was damaged and is removed")
    if channel.is_dir() and not _is_indexed(channel, known):
        channel_folder.index(channel, platform)
        if not told:
            told.append("the index of the published packages was damaged and is written anew")
    return told


def _can_be_read(path: Path) -> bool:
    try:
        archive.read(path)
    except IntegrityError:
        return False
    return True


def _is_indexed(channel: Path, known: Mapping[str, Record]) -> bool:
    """Say whether the index names everything that has a record, and nothing that is gone."""
    named = indexed(channel)
    there = {path.name for path in channel_folder.package_files(channel)}
    return (
        named is not None
        and named.keys() <= there
        and all(named.get(name) == record.sha256 for name, record in known.items())
    )


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


def foreign_bytecode(names: Sequence[str], python: str | None) -> list[str]:
    """Return the ``.pyc`` files whose source is not in the same package, or that are for another Python."""
    own = set(names)
    foreign = []
    for name in names:
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
        channel_folder.link(package.path, target)
        known[name] = Record(
            path=f"{package.path.parent.name}/{name}",
            size=target.stat().st_size,
            sha256=files.sha256(target),
            modified=files.modified(target),
            fingerprint=fingerprints[name],
            seconds=round(seconds.get(name, 0.0), 1),
        )
    channel_folder.index(channel, platform)
    _write(channel, known)
    return known


def _write(channel: Path, known: Mapping[str, Record]) -> None:
    document = {name: asdict(record) for name, record in known.items()}
    files.write(channel / RECORDS, json.dumps(document, indent=1, sort_keys=True))
