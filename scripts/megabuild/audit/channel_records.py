"""The newest package of each name in one platform's folder of a channel, through py-rattler, in bounded time."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import cast

import zstandard
from msgspec import Struct
from packaging.version import InvalidVersion
from packaging.version import Version as PythonVersion
from rattler import Channel, Gateway, RepoDataRecord, SourceConfig
from rattler.networking.fetch_repo_data import CacheAction
from rattler.platform.subdir import SubdirLiteral

from megabuild.audit.request import Services
from megabuild.network import redact
from megabuild.network.client import NetworkError, within

_SECONDS = 60.0
_REMEDY = "check the network and the channel"


class Package(Struct, frozen=True, kw_only=True):
    """The newest package of a name.

    Parameters
    ----------
    version:
        Empty if there is no package of that name.
    file:
        Its name in the channel.
    sha256:
        Of the file, or empty.
    date:
        When it was built, ISO 8601, or empty.
    """

    name: str
    version: str = ""
    file: str = ""
    sha256: str = ""
    date: str = ""


def from_channel(url: str, platform: str, names: Collection[str], services: Services) -> list[Package]:
    """Return the newest package of each name; offline, from what rattler kept.

    Parameters
    ----------
    url:
        The channel's.
    platform:
        conda's, or ``noarch``.
    names:
        Of packages. A name without a package is there, with an empty version.

    Raises
    ------
    NetworkError
        The channel does not answer, or answers nonsense.
    """
    cache = services.folder / "rattler"
    if services.offline:
        return _newest(_records(url, platform, names, cache, "force-cache-only", _SECONDS), names)
    seconds = min(_SECONDS, services.remaining())
    try:
        return _newest(_records(url, platform, names, cache, "cache-or-fetch", seconds), names)
    except NetworkError:
        seconds = min(_SECONDS, services.remaining())
        if seconds <= 1.0:
            raise
    # rattler's own cache may be spoilt, or its folder may not be writable
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as empty:
        return _newest(_records(url, platform, names, Path(empty), "no-cache", seconds), names)


def from_folder(folder: Path, platform: str, names: Collection[str], services: Services) -> list[Package]:
    """Return the same from ``<folder>/<platform>/repodata.json`` or ``.zst``, which rattler does not unpack.

    Raises
    ------
    NetworkError
        There is no such file, or it is broken.
    """
    file = repodata(folder, platform)
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as scratch:
        copy = Path(scratch, "channel", platform, "repodata.json")
        copy.parent.mkdir(parents=True)
        try:
            if file is None:
                raise FileNotFoundError("there is no repodata")
            if file.suffix == ".json":
                copy.symlink_to(file.absolute())
            else:
                with file.open("rb") as packed, zstandard.open(packed) as stream, copy.open("wb") as target:
                    shutil.copyfileobj(stream, target, 1 << 20)
        except (OSError, zstandard.ZstdError) as error:
            raise NetworkError(
                f"cannot read {file}: {error}", "check the folder named by --repodata"
            ) from error
        channel = copy.parent.parent.as_uri()
        try:
            found = _records(
                channel, platform, names, Path(scratch, "cache"), "no-cache", services.remaining()
            )
        except NetworkError as error:
            raise NetworkError(f"{file}: {error.message}", error.remedy) from error
    return _newest(found, names)


def repodata(folder: Path, platform: str) -> Path | None:
    """Return a channel's repodata file of a platform, or None where there is none."""
    files = (folder / platform / f"repodata.json{end}" for end in ("", ".zst"))
    return next((file for file in files if file.is_file()), None)


def _records(
    url: str, platform: str, names: Collection[str], cache: Path, action: CacheAction, seconds: float
) -> list[RepoDataRecord]:
    async def ask() -> list[RepoDataRecord]:
        gateway = Gateway(cache_dir=cache, default_config=SourceConfig(cache_action=action))
        query = gateway.query(
            [Channel(url)],
            [cast(SubdirLiteral, platform)],
            sorted(names),
            recursive=False,
            channel_relations="disabled",
        )
        return [record for records in await asyncio.wait_for(query, seconds) for record in records]

    try:
        return within(seconds + 1.0, lambda: asyncio.run(ask()))
    except (TimeoutError, asyncio.TimeoutError):
        raise NetworkError(f"no end after {seconds:.0f} s", _REMEDY) from None
    except Exception as error:  # of rattler's own kinds
        # what failed, and what was at the bottom of it
        lines = [line.strip() for line in redact.text(str(error)).splitlines() if line.strip()]
        ends = [lines[0], lines[-1].removeprefix("Caused by:").strip()] if lines else [type(error).__name__]
        raise NetworkError(": ".join(dict.fromkeys(ends)), _REMEDY) from error


def _newest(records: list[RepoDataRecord], names: Collection[str]) -> list[Package]:
    by_name: dict[str, list[RepoDataRecord]] = {name: [] for name in names}
    for record in records:
        by_name.setdefault(record.name.normalized, []).append(record)
    return [_package(name, by_name[name]) for name in names]


def _package(name: str, records: list[RepoDataRecord]) -> Package:
    if not records:
        return Package(name=name)
    released = [record for record in records if not _is_prerelease(str(record.version))] or records
    best = max(released, key=lambda record: (record.version, record.build_number))
    return Package(
        name=name,
        version=str(best.version),
        file=best.file_name,
        sha256=best.sha256.hex() if best.sha256 else "",
        date=best.timestamp.isoformat(timespec="seconds") if best.timestamp else "",
    )


def _is_prerelease(version: str) -> bool:
    try:
        return PythonVersion(version).is_prerelease
    except InvalidVersion:
        return False
