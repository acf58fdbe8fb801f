"""A channel folder: chosen packages of the store, linked, indexed, and put in place in one step."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from rattler.index import index_fs

from megabuild.providers.store import Record, Store

#: In a channel of ours: by file name, the sha256 over what the package was made of.
MADE_OF = "made-of.json"


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
        The local channel's cache; the channel's name in it follows from the fingerprint.
    platform:
        Subdir of the machine, present in the channel even if empty.
    """
    # what else a channel holds is part of its name: one of another make may be in use by a run of another version
    name = hashlib.sha256(f"{fingerprint(records)} {MADE_OF}".encode()).hexdigest()[:16]
    channel = folder / "channels" / name
    made_of = json.dumps({record.file_name: record.key for record in records}, indent=1, sort_keys=True)
    if _is_whole(channel, records, store, made_of):
        return channel
    temporary = folder / "tmp" / uuid.uuid4().hex
    for subdir in (platform, "noarch"):
        (temporary / subdir).mkdir(parents=True)
    for record in records:
        os.link(store.path(record), temporary / record.subdir / record.file_name)
    asyncio.run(index_fs(temporary, force=True, write_zst=False, write_shards=False))
    (temporary / MADE_OF).write_text(made_of)
    channel.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(channel, ignore_errors=True)
    os.replace(temporary, channel)
    return channel


def _is_whole(channel: Path, records: Sequence[Record], store: Store, made_of: str) -> bool:
    """Say whether a channel is there, its files those of the store, and its index the one of those files."""
    try:
        if (channel / MADE_OF).read_text() != made_of:
            return False
        same = all(
            (channel / record.subdir / record.file_name).samefile(store.path(record)) for record in records
        )
    except (OSError, ValueError):
        return False
    return same and indexed(channel) == {record.file_name: record.sha256 for record in records}


def indexed(channel: Path) -> dict[str, str] | None:
    """Return what a channel's index says: file names with sha256, or None where a part of it cannot be read."""
    found: dict[str, str] = {}
    for subdir in channel.iterdir():
        if subdir.is_dir() and not subdir.name.startswith("."):
            try:
                packages = json.loads((subdir / "repodata.json").read_text())["packages.conda"]
                found |= {name: str(entry["sha256"]) for name, entry in packages.items()}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                return None
    return found


def made_of(channel: Path) -> dict[str, str]:
    """Return from what a local channel's packages were made, by file name; nothing for channels of other origin.

    The packages of two machines, or of two days, differ by time stamps although they were made of the same.
    """
    try:
        found = json.loads((channel / MADE_OF).read_text())
        return {str(name): str(key) for name, key in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}
