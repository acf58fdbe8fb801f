"""A channel folder: chosen packages of the store, linked, indexed, and put in place in one step."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from rattler.index import index_fs

from megabuild.errors import IntegrityError
from megabuild.providers.store import Record, Store, file_sha256


def fingerprint(records: Sequence[Record]) -> str:
    """sha256 over the inputs of all packages; the order does not matter."""
    return hashlib.sha256("\n".join(sorted(record.key for record in records)).encode()).hexdigest()


def publish(records: Sequence[Record], store: Store, folder: Path, platform: str) -> Path:
    """Return the channel that holds exactly `records`, making it below `folder` if it is not there yet.

    Parameters
    ----------
    records:
        Packages of `store`.
    folder:
        The local channel's cache; the channel's name in it is the fingerprint's beginning.
    platform:
        Subdir of the machine, present in the channel even if empty.

    Raises
    ------
    IntegrityError
        A package file is not what its record says.
    """
    channel = folder / "channels" / fingerprint(records)[:16]
    if channel.is_dir():
        return channel
    temporary = folder / "tmp" / uuid.uuid4().hex
    for subdir in (platform, "noarch"):
        (temporary / subdir).mkdir(parents=True)
    for record in records:
        source = store.path(record)
        if file_sha256(source) != record.sha256:
            raise IntegrityError(
                f"{source} has changed since it was built", f"Delete {source.parent} and run again."
            )
        os.link(source, temporary / record.subdir / record.file_name)
    asyncio.run(index_fs(temporary, force=True, write_shards=False))
    channel.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(channel, ignore_errors=True)
    os.replace(temporary, channel)
    return channel
