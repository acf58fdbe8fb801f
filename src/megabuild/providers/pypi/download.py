"""Download locked wheels, each file once and from any index that has it, and check the lock's hash."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path

from groundwork import files as disk
from groundwork.errors import IntegrityError, ProviderError
from groundwork.network.client import Client, NetworkError, Timeouts
from groundwork.network.index import Configured, File, local_path, offered, places
from groundwork.pip_settings import REMEDY
from groundwork.progress import Notes, preparing
from groundwork.text import counted
from megabuild.providers.command import each
from megabuild.providers.pypi.lock import Wheel

_AT_ONCE = 4
_HOURS = Timeouts(connect=10.0, read=60.0, total=3600.0)


def download(wheels: Iterable[Wheel], folder: Path, report: Notes, *, more: Sequence[str] = ()) -> None:
    """Download the wheels that are missing or damaged in `folder`.

    ``more`` adds simple indexes (URLs) and folders of wheels to pip's configuration.

    Raises ProviderError: A download failed.
    Raises IntegrityError: A file does not match its lock.
    """
    missing = [wheel for wheel in wheels if not disk.verified(wheel.path(folder), wheel.sha256)]
    for wheel in missing:
        if wheel.path(folder).exists():
            report(f"! {wheel.file_name}: damaged in the cache, downloading it again")
    if not missing:
        return
    what = f"downloading {counted(len(missing), 'wheel')}"
    where = places(more)
    sizes = [wheel.size or 1 for wheel in missing]
    # on the file system of `folder`, so that gigabytes are renamed, not copied
    with (
        preparing(report, what, total=sum(sizes), unit="bytes") as advance,
        disk.scratch(folder) as temporary,
    ):

        def fetch(wheel: Wheel) -> None:
            _fetch(wheel, where, temporary, wheel.path(folder))

        for done, _ in zip(accumulate(sizes), each(fetch, missing, _AT_ONCE), strict=True):
            advance(done)


def _fetch(wheel: Wheel, where: Configured, temporary: Path, final: Path) -> None:
    client = where.client(_HOURS)
    listed, troubles = offered(wheel.name, where, client.page)
    # other builds can have the same file name, for example in a folder of locally built wheels
    hashes = ("", wheel.sha256)
    same = [file for file in listed if file.name == wheel.file_name and file.sha256 in hashes]
    # those with this hash before those with an unknown one
    same.sort(key=lambda file: file.sha256 != wheel.sha256)
    locks = shlex.quote(str(final.parents[1] / "locks"))
    resolve_again = f"check pip's indexes (pip config list); or run: rm -r {locks}, then run again"
    if not same:
        problem = f"{wheel.file_name}: no index has it with the hash of its lock"
        raise ProviderError("; ".join([problem, *troubles]), resolve_again)
    partial = temporary / wheel.sha256
    final.parent.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    for file in same:
        try:
            _save(file, client, partial)
        except NetworkError as error:  # another index may have the same file
            failures.append(error.message)
            continue
        os.replace(partial, final)
        if disk.verified(final, wheel.sha256):
            return
        final.unlink()
    if failures:
        problem = f"{wheel.file_name}: its index lists it, but the file cannot be downloaded"
        raise ProviderError("; ".join([problem, *failures, *troubles]), resolve_again)
    raise IntegrityError(
        f"{final.name}: the download does not match the hash in its lock, which is the index's",
        resolve_again,
    )


def _save(file: File, client: Client, target: Path) -> None:
    """Write a file of an index, or of a folder, to ``target``; raises NetworkError if it cannot be read there."""
    if not file.url.startswith("file:"):
        client.save(file.url, target)
        return
    source = local_path(file.url)
    if not os.access(source, os.R_OK):
        raise NetworkError(f"{source}: missing, or not readable", REMEDY)
    shutil.copyfile(source, target)
