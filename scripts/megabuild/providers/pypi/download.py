"""Fetch locked wheels: each file once, from wherever an index has it, and checked against the lock's hash."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from groundwork import files as disk
from groundwork.errors import IntegrityError, ProviderError
from groundwork.network.client import NetworkError, Timeouts
from groundwork.network.index import HEADERS, Configured, local_path, offered, places
from groundwork.wording import counted
from megabuild.providers.command import each
from megabuild.providers.pypi.lock import Lock, Wheel

_AT_ONCE = 4
_HOURS = Timeouts(connect=10.0, read=60.0, total=3600.0)
_REMEDY = "Check the network and pip's configuration (pip config list)."


def download(
    locks: Sequence[Lock],
    folder: Path,
    report: Callable[[str], None],
    *,
    only: Callable[[Wheel], bool] = lambda wheel: True,
    more: Sequence[str] = (),
) -> dict[str, Path]:
    """Return the files of all locks by sha256, downloading those that are missing from `folder`, or damaged.

    Wheels that ``only`` excludes are not downloaded, but their paths are returned. ``more`` are addresses of simple
    indexes, and folders with wheels, besides those that pip is configured with.

    Raises ProviderError: A download failed.
    Raises IntegrityError: A file does not match its lock.
    """
    wanted = {wheel.sha256: wheel for lock in locks for wheel in lock.wheels}
    files = {sha256: folder / sha256[:16] / wheel.file_name for sha256, wheel in wanted.items()}
    missing: list[Wheel] = []
    for sha256, wheel in wanted.items():
        if not only(wheel) or disk.verified(files[sha256], sha256):
            continue
        if files[sha256].exists():
            report(f"! {wheel.file_name} was damaged in the cache and is fetched again")
        missing.append(wheel)
    if missing:
        report(f"downloading {counted(len(missing), 'wheel')}")
        where = places(more)
        # on the file system of their final place: gigabytes need not be copied
        with disk.scratch(folder) as temporary:
            list(each(lambda wheel: _fetch(wheel, where, temporary, files[wheel.sha256]), missing, _AT_ONCE))
    return files


def pending(locks: Sequence[Lock], folder: Path) -> dict[str, int]:
    """Return by sha256 the bytes of those wheels of some locks that are still to be downloaded."""
    wheels = {wheel.sha256: wheel for lock in locks for wheel in lock.wheels}
    return {
        sha256: wheel.size
        for sha256, wheel in wheels.items()
        if not (folder / sha256[:16] / wheel.file_name).is_file()
    }


def _fetch(wheel: Wheel, where: Configured, temporary: Path, final: Path) -> None:
    """Fetch a wheel into the cache atomically; the next run verifies one without a note of its hash."""
    what, client = f"downloading {wheel.file_name}", where.client(_HOURS)
    try:
        found, troubles = offered(wheel.name, where, lambda url: client.get(url, headers=HEADERS))
    except NetworkError as error:
        raise ProviderError(f"{what}: {error.message}", _REMEDY) from error
    # another build may have the same name, as in a folder of locally built wheels
    same = [file for file in found if file.name == wheel.file_name and file.sha256 in ("", wheel.sha256)]
    if not same:
        raise ProviderError("; ".join([f"{what}: no index has it", *troubles]), _REMEDY)
    partial = temporary / wheel.sha256
    try:
        if same[0].url.startswith("file:"):
            shutil.copyfile(local_path(same[0].url), partial)
        else:
            client.save(same[0].url, partial)
    except NetworkError as error:
        raise ProviderError(f"{what}: {error.message}", _REMEDY) from error
    except OSError as error:
        raise ProviderError(f"{what}: {error.strerror or error}", "Check the disk, and the wheel.") from error
    final.parent.mkdir(parents=True, exist_ok=True)
    os.replace(partial, final)
    if not disk.verified(final, wheel.sha256):
        final.unlink()
        raise IntegrityError(
            f"{final.name} is not the file that was resolved", "Delete the cache's wheels folder."
        )
