"""Fetch locked wheels: each file once, from wherever an index has it, and checked against the lock's hash."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from groundwork import files as disk
from groundwork.errors import IntegrityError, ProviderError
from groundwork.network.client import NetworkError, Timeouts
from groundwork.network.index import HEADERS, Configured, local_path, offered, places
from groundwork.progress import Notes, Preparing
from groundwork.text import counted
from megabuild.providers.command import each
from megabuild.providers.pypi.lock import Lock, Wheel

_AT_ONCE, _TELL_SECONDS = 4, 1.0
_HOURS = Timeouts(connect=10.0, read=60.0, total=3600.0)
_REMEDY = "Check the network and pip's configuration (pip config list)."


def download(
    locks: Sequence[Lock],
    folder: Path,
    report: Notes,
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
        where, telling = places(more), _Telling(missing, report)

        def fetch(wheel: Wheel) -> None:
            _fetch(wheel, where, temporary, files[wheel.sha256], telling)

        # on the file system of their final place: gigabytes need not be copied
        with disk.scratch(folder) as temporary:
            list(each(fetch, missing, _AT_ONCE))
        telling.end()
    return files


class _Telling:
    """Tells how much has come of some wheels, once a second at most; threads take turns."""

    def __init__(self, wheels: Sequence[Wheel], report: Notes) -> None:
        self._what = f"downloading {counted(len(wheels), 'wheel')}"
        # indexes that tell no size leave it unknown
        self._total = sum(wheel.size for wheel in wheels) if all(wheel.size for wheel in wheels) else 0
        self._report = report
        self._there: dict[str, int] = {}
        self._next = time.monotonic() + _TELL_SECONDS
        self._lock = threading.Lock()
        report(Preparing(what=self._what, total=self._total, unit="bytes"))

    def so_far(self, wheel: Wheel, octets: int) -> None:
        """Take how much of a wheel is there."""
        with self._lock:
            self._there[wheel.sha256] = octets
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + _TELL_SECONDS
            done = sum(self._there.values())
            if self._total:
                done = min(done, self._total - 1)  # over is what was checked as well
            self._report(Preparing(what=self._what, done=done, total=self._total, unit="bytes"))

    def end(self) -> None:
        """Say that all are there."""
        total = self._total or max(1, sum(self._there.values()))
        self._report(Preparing(what=self._what, done=total, total=total, unit="bytes"))


def pending(locks: Sequence[Lock], folder: Path) -> dict[str, int]:
    """Return by sha256 the bytes of those wheels of some locks that are still to be downloaded."""
    wheels = {wheel.sha256: wheel for lock in locks for wheel in lock.wheels}
    return {
        sha256: wheel.size
        for sha256, wheel in wheels.items()
        if not (folder / sha256[:16] / wheel.file_name).is_file()
    }


def _fetch(wheel: Wheel, where: Configured, temporary: Path, final: Path, telling: _Telling) -> None:
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
            client.save(same[0].url, partial, so_far=lambda octets: telling.so_far(wheel, octets))
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
