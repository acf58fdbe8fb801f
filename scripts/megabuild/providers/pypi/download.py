"""Fetch locked wheels: each file once, checked by pip against the lock's hash and by us once more."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename

from megabuild import files as disk
from megabuild.errors import IntegrityError
from megabuild.providers.command import each
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.pypi.lock import Lock, Wheel, pip
from megabuild.wording import counted

_AT_ONCE = 3


def download(
    locks: Sequence[Lock],
    interpreters: Mapping[str, Interpreter],
    folder: Path,
    report: Callable[[str], None],
    *,
    only: Callable[[Wheel], bool] = lambda wheel: True,
    more: Sequence[str] = (),
) -> dict[str, Path]:
    """Return the files of all locks by sha256, downloading what `folder` does not have, or has no longer whole.

    Parameters
    ----------
    locks, interpreters:
        What is wanted, and by X.Y(t) whom pip is to download it for.
    folder, report:
        Where wheels are kept; told what takes time.
    only:
        Says which wheels are wanted now; the paths of others are returned, too, whether they are there or not.
    more:
        Addresses of simple indexes, and folders with wheels, besides those that pip is configured with.

    Raises
    ------
    ProviderError
        A download failed.
    IntegrityError
        A file differs from what its lock says.
    """
    wanted: dict[str, tuple[Wheel, str]] = {}
    for lock in locks:
        for wheel in lock.wheels:
            wanted.setdefault(wheel.sha256, (wheel, lock.python))
    files = {sha256: folder / sha256[:16] / wheel.file_name for sha256, (wheel, _) in wanted.items()}
    missing: dict[str, list[Wheel]] = {}
    for sha256, (wheel, python) in wanted.items():
        if not only(wheel) or disk.verified(files[sha256], sha256):
            continue
        if files[sha256].exists():
            report(f"! {wheel.file_name} was damaged in the cache and is fetched again")
        missing.setdefault(python, []).append(wheel)
    if missing:
        count = sum(map(len, missing.values()))
        report(f"downloading {counted(count, 'wheel')}")

    def fetch(python: str) -> None:
        # beside their final place: gigabytes need not be copied
        with disk.scratch(folder) as temporary:
            _fetch(missing[python], interpreters[python], files, temporary, more)

    list(each(fetch, missing, _AT_ONCE))
    return files


def pending(locks: Sequence[Lock], folder: Path) -> dict[str, int]:
    """Return by sha256 the bytes of those wheels of some locks that are still to be downloaded."""
    wheels = {wheel.sha256: wheel for lock in locks for wheel in lock.wheels}
    return {
        sha256: wheel.size
        for sha256, wheel in wheels.items()
        if not (folder / sha256[:16] / wheel.file_name).is_file()
    }


def _fetch(
    wheels: Sequence[Wheel],
    interpreter: Interpreter,
    files: Mapping[str, Path],
    temporary: Path,
    more: Sequence[str],
) -> None:
    requirements, target = temporary / "requirements.txt", temporary / "wheels"
    # the version as "===" compares it, by which 2.0 cannot turn out to be 2.0+cpu
    lines = [
        f"{wheel.name}==={parse_wheel_filename(wheel.file_name)[1]} --hash=sha256:{wheel.sha256}"
        for wheel in wheels
    ]
    requirements.write_text("\n".join(lines) + "\n")
    pip(
        interpreter,
        "download",
        [
            "--retries=2",
            "--no-deps",
            "--require-hashes",
            *(f"--{'extra-index-url' if '://' in place else 'find-links'}={place}" for place in more),
            "--dest",
            str(target),
            "--requirement",
            str(requirements),
        ],
        temporary=temporary,
        what=f"downloading wheels for Python {interpreter.python}",
        remedy="Check the network and pip's configuration (pip config list).",
        timeout=3600,
    )
    for wheel in wheels:
        _keep(target / wheel.file_name, files[wheel.sha256], wheel.sha256)


def _keep(source: Path, final: Path, sha256: str) -> None:
    """Move into the cache in one step, and check: what is there without its note is looked into by the next run."""
    final.parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, final)
    if not disk.verified(final, sha256):
        final.unlink()
        raise IntegrityError(
            f"{final.name} is not the file that was resolved", "Delete the cache's wheels folder."
        )
