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
from rattler.platform.subdir import SubdirLiteral

from megabuild.audit.request import Services
from megabuild.network import redact
from megabuild.network.client import NetworkError, within
from megabuild.providers.conda_forge import channel_url, why_unreachable

CONDA_FORGE = "conda-forge"
_SECONDS = 60.0
_REMEDY = "check the network and the channel"


class Package(Struct, frozen=True, kw_only=True):
    """The newest package of a name: its file in the channel, and that one's sha256 or nothing."""

    name: str
    version: str
    file: str
    sha256: str


def from_channel(platform: str, names: Collection[str], services: Services) -> tuple[str, list[Package]]:
    """Return conda-forge's address, and of each name that it has the newest package.

    Parameters
    ----------
    platform:
        conda's, or ``noarch``.

    Raises
    ------
    NetworkError
        The channel does not answer, or answers nonsense.
    """
    url = channel_url(CONDA_FORGE)
    if unreachable := why_unreachable(url):
        raise NetworkError(f"{CONDA_FORGE} cannot be used: {redact.text(unreachable)}")
    return url, _newest(url, platform, names, min(_SECONDS, services.remaining()))


def from_folder(folder: Path, platform: str, names: Collection[str], services: Services) -> list[Package]:
    """Return the same from ``<folder>/<platform>/repodata.json`` or ``.zst``, which rattler does not unpack.

    Raises
    ------
    NetworkError
        There is no such file, or it is broken.
    """
    file = repodata(folder, platform)
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as scratch:
        copy = Path(scratch, platform, "repodata.json")
        copy.parent.mkdir()
        try:
            if file is None:
                raise FileNotFoundError("there is no repodata")
            if file.suffix == ".json":
                copy.symlink_to(file.absolute())
            else:
                with file.open("rb") as packed, zstandard.open(packed) as stream, copy.open("wb") as target:
                    shutil.copyfileobj(stream, target, 1 << 20)
        except (OSError, zstandard.ZstdError) as error:
            remedy = "check the folder named by --repodata"
            raise NetworkError(f"cannot read {file}: {error}", remedy) from error
        try:
            return _newest(Path(scratch).as_uri(), platform, names, services.remaining())
        except NetworkError as error:
            raise NetworkError(f"{file}: {error.message}", error.remedy) from error


def repodata(folder: Path, platform: str) -> Path | None:
    """Return a channel's repodata file of a platform, or None where there is none."""
    files = (folder / platform / f"repodata.json{end}" for end in ("", ".zst"))
    return next((file for file in files if file.is_file()), None)


def _newest(url: str, platform: str, names: Collection[str], seconds: float) -> list[Package]:
    async def ask(cache: str) -> list[RepoDataRecord]:
        # what was found is kept by who asks: rattler's own cache would be another one, with rules of its own
        gateway = Gateway(cache_dir=Path(cache), default_config=SourceConfig(cache_action="no-cache"))
        query = gateway.query(
            [Channel(url)],
            [cast(SubdirLiteral, platform)],
            sorted(names),
            recursive=False,
            channel_relations="disabled",
        )
        return [record for records in await asyncio.wait_for(query, seconds) for record in records]

    with tempfile.TemporaryDirectory(prefix="megabuild-audit-", ignore_cleanup_errors=True) as cache:
        try:
            records = within(seconds + 1.0, lambda: asyncio.run(ask(cache)))
        except (TimeoutError, asyncio.TimeoutError):
            raise NetworkError(f"no end after {seconds:.0f} s", _REMEDY) from None
        except Exception as error:  # of rattler's own kinds
            # what failed, and what was at the bottom of it
            lines = [line.strip() for line in redact.text(str(error)).splitlines() if line.strip()]
            ends = (
                [lines[0], lines[-1].removeprefix("Caused by:").strip()] if lines else [type(error).__name__]
            )
            raise NetworkError(": ".join(dict.fromkeys(ends)), _REMEDY) from error
    by_name: dict[str, list[RepoDataRecord]] = {}
    for record in records:
        by_name.setdefault(record.name.normalized, []).append(record)
    return [_package(name, by_name[name]) for name in names if name in by_name]


def _package(name: str, records: list[RepoDataRecord]) -> Package:
    released = [record for record in records if not _is_prerelease(str(record.version))] or records
    best = max(released, key=lambda record: (record.version, record.build_number))
    digest = best.sha256.hex() if best.sha256 else ""
    return Package(name=name, version=str(best.version), file=best.file_name, sha256=digest)


def _is_prerelease(version: str) -> bool:
    try:
        return PythonVersion(version).is_prerelease
    except InvalidVersion:
        return False
