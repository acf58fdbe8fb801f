"""Prepares rattler-build's folders for a run: keeps matching packages, removes a killed run's unfinished files.

Measured with rattler-build 0.73: if a staging cache has no ``metadata.json``, it rebuilds everything and then fails. A
package appears by rename before its test has run. Files unpacked for a test stay in the temporary folder.

Build scripts can write to the output folder too. The driver follows no link in it, waits for no pipe and widens no
permissions: it first removes links and pipes from the folders that it reads.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from groundwork import channel_folder, files
from groundwork.errors import IntegrityError
from megabuild.engine import archive

#: Folders that only a running rattler-build needs.
_TRANSIENT = ("bld", "test", "broken")
_STAGINGS = "build_cache"
#: File in a task's state folder, which builds cannot write: names of the stagings that were flushed to the disk.
_SEALS = "stagings.json"
#: File next to the packages: each package's input fingerprint, written before rattler-build starts.
INPUTS = ".megabuild-inputs"
#: Folder in a task's state folder: tested packages while they are normalised and verified.
FINISHED = "finished"


def prepare_output(
    state: Path, *, inputs: Mapping[str, str], published: Sequence[Path], platform: str
) -> list[str]:
    """Remove unfinished files, and packages with other inputs, from a task's state folder.

    ``inputs`` maps file names of packages to input fingerprints. ``published`` packages are copied in, so that
    rattler-build can resolve the packages that need them. Returns paths below ``out`` of packages that an interrupted
    run built from the same inputs and may not have tested.
    """
    out = channel_folder.own_folder(state / "out")
    for leftover in (*state.glob(".removed-*"), state / "tmp", state / FINISHED):
        if leftover.is_symlink() or leftover.exists():
            files.remove(leftover)
    heal(out)
    former = _read_inputs(out)
    fitting = {name for name, value in inputs.items() if former.get(name) == value}
    fitting -= {path.name for path in published}
    # Keep packages outside this run's plan: a later run may need them.
    elsewhere = former.keys() - inputs.keys()
    channel_folder.drop_packages(out, keep=frozenset(fitting | elsewhere))
    noted = dict(inputs)
    untested: list[str] = []
    for path in channel_folder.package_files(out):
        if path.name in elsewhere:
            noted[path.name] = former[path.name]
        if path.name in fitting:
            untested.append(path.relative_to(out).as_posix())
    for path in published:
        files.copy(path, out / path.parent.name / path.name)  # builds could write through a link
    channel_folder.write_index(out, platform)
    lines = [f"{name} {value}\n" for name, value in sorted(noted.items())]
    files.write(out / INPUTS, "".join(lines))
    return untested


def _read_inputs(out: Path) -> dict[str, str]:
    """Return the input fingerprints of earlier runs' packages, by file name; empty if the file is damaged."""
    content = files.read_untrusted(out / INPUTS) or b""
    inputs: dict[str, str] = {}
    try:
        for line in content.decode().splitlines():
            name, value = line.split(" ", 1)
            inputs[name] = value
    except ValueError:
        return {}
    return inputs


def heal(output_dir: Path) -> None:
    """Remove unfinished and damaged files from rattler-build's output folder, which no process may be using."""
    for folder in (output_dir, *channel_folder.subdirs(output_dir), output_dir / _STAGINGS):
        for path in channel_folder.entries(folder):
            _remove_leftover(path)
    for name in _TRANSIENT:
        if (output_dir / name).exists() and not output_dir.is_symlink():
            files.remove(output_dir / name)
    sealed = staging_caches(output_dir)
    for staging in _stagings(output_dir):
        if staging not in sealed:
            files.remove(staging)
    if output_dir.is_dir():  # forget removed stagings: a half-written one may get the same name
        _write_seals(output_dir, sealed)
    for package in list(channel_folder.package_files(output_dir)):
        if not archive.is_readable(package):
            files.remove(package)


def _remove_leftover(path: Path) -> None:
    """Remove an entry of a folder if it is a link or a pipe, half removed, or temporary."""
    mode = path.lstat().st_mode
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        path.unlink()
    elif path.name.startswith(".removed-"):
        shutil.rmtree(path, ignore_errors=True)
    elif path.name.startswith(".tmp"):
        files.remove(path)


def _stagings(output_dir: Path) -> list[Path]:
    paths = channel_folder.entries(output_dir / _STAGINGS)
    return [path for path in paths if path.name.startswith("staging_")]


def _has_metadata(staging: Path) -> bool:
    try:
        metadata = json.loads(files.read_untrusted(staging / "metadata.json") or b"")
    except (ValueError, RecursionError):
        return False
    links = staging.is_symlink() or (staging / "prefix").is_symlink()
    return not links and isinstance(metadata, dict)


def _write_seals(output_dir: Path, stagings: Sequence[Path]) -> None:
    files.write(output_dir.parent / _SEALS, json.dumps([path.name for path in stagings]))


def seal_stagings(output_dir: Path) -> None:
    """Flush newly finished stagings and their tree to the disk, then record their names.

    After a power cut, unflushed files are empty but have their dates; packages would get empty headers.
    """
    finished = [staging for staging in _stagings(output_dir) if _has_metadata(staging)]
    if finished and finished != staging_caches(output_dir):
        os.sync()
        _write_seals(output_dir, finished)


def staging_caches(output_dir: Path) -> list[Path]:
    """Return the finished stagings that were flushed to the disk."""
    try:
        names = json.loads((output_dir.parent / _SEALS).read_bytes())
    except (OSError, ValueError):
        return []
    if not isinstance(names, list):
        return []
    return [path for path in _stagings(output_dir) if path.name in names and _has_metadata(path)]


def take_stagings(fetched: Path, output_dir: Path) -> None:
    """Move finished stagings of another machine to rattler-build's output folder."""
    target = channel_folder.own_folder(channel_folder.own_folder(output_dir) / _STAGINGS)
    for staging in channel_folder.entries(fetched):
        if staging.name.startswith("staging_") and _has_metadata(staging):
            staging.rename(target / staging.name)
    seal_stagings(output_dir)


def drop_stagings(output_dir: Path) -> None:
    """Remove all stagings."""
    for staging in _stagings(output_dir):
        files.remove(staging)
    (output_dir.parent / _SEALS).unlink(missing_ok=True)


def drop_unpacked(cache: Path, published: Mapping[str, bool]) -> None:
    """Remove former builds of packages, and half replaced ones, from rattler-build's cache of unpacked packages.

    rattler-build reads a package's tests from that cache by file name alone. To replace a package it first notes the
    new SHA-256, then unpacks to a hidden folder, then removes the former one; after a kill in between it takes the rest
    of the former for the new one, and fails (both measured with 0.73). Its lock is held meanwhile, by any of its runs.

    ``published`` says of each package's file name whether it is published: such a build is no former one.
    """
    with (
        suppress(OSError, IntegrityError),
        files.open_regular(cache / ".cache.lock", below=cache.parent) as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name, is_published in published.items():
            folder = cache / name.removesuffix(".conda")
            unfinished = list(cache.glob(f".{folder.name}??????"))
            if is_published and not unfinished:
                continue
            for path in (folder, *unfinished):
                files.remove(path)
