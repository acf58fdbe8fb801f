"""A conda channel for the audit's tests, indexed by py-rattler, shards included."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from rattler.index import index_fs


def add(
    channel: Path,
    platform: str,
    name: str,
    version: str,
    files: Mapping[str, str] | None = None,
    **about: object,
) -> Path:
    """Write a package into a channel, in the old form."""
    entry = {
        "name": name,
        "version": version,
        "build": "h0_0",
        "build_number": 0,
        "depends": [],
        "subdir": platform,
        "timestamp": 1_780_000_000_000,
        **({"noarch": "generic"} if platform == "noarch" else {}),
    }
    content = {
        "info/index.json": json.dumps(entry),
        "info/about.json": json.dumps(about),
        "info/paths.json": '{"paths": [], "paths_version": 1}',
        **(files or {}),
    }
    path = channel / platform / f"{name}-{version}-h0_0.tar.bz2"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:bz2") as archive:
        for member, text in content.items():
            info = tarfile.TarInfo(member)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def index(channel: Path) -> None:
    """Write the channel's repodata."""
    (channel / "noarch").mkdir(parents=True, exist_ok=True)
    asyncio.run(index_fs(channel, write_zst=True, write_shards=True))
