"""The newest version of each package on conda-forge, per platform, through py-rattler."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec
from rattler import Channel, Gateway, RepoDataRecord, SourceConfig, Version
from rattler.platform.subdir import SubdirLiteral

from groundwork import redact
from groundwork.errors import MegabuildError
from groundwork.keys import Key
from groundwork.network.client import NetworkError, channel_url, run_with_deadline, why_channel_unreachable
from pin_audit.facts import Newest, Scope, SourceOutcome, Where, resolve_types
from pin_audit.request import About, AuditRequest, Source
from pin_audit.services import Services

CONDA_FORGE = "conda-forge"
_PRERELEASE = re.compile(r"\d[._-]?(a|b|rc|alpha|beta|dev|pre)[._-]?\d*\b")
_SECONDS = 60.0
_REMEDY = "check the network, or set CONDA_CHANNEL_ALIAS to a mirror"


@resolve_types
class NewestPackage(msgspec.Struct, frozen=True, kw_only=True):
    """The newest package of a name, its file in the channel, and the file's sha256 if the channel lists it."""

    name: str
    version: str
    file: str
    sha256: str


#: The packages of a platform by name, each with the time of the request to the channel.
@dataclass(frozen=True, kw_only=True)
class NewestPackages(Key):
    """A cached answer of the channel."""

    channel: str  #: address without credentials
    platform: str
    names: Sequence[str]  #: sorted


def newest_key(platform: str, names: Collection[str]) -> NewestPackages:
    """Return the key of the channel's cached answer."""
    channel = redact.address(channel_url(CONDA_FORGE))
    return NewestPackages(channel=channel, platform=platform, names=sorted(names))


_Packages = Mapping[str, tuple[NewestPackage, str]]


def read(request: AuditRequest) -> SourceOutcome:
    """Return the newest version of each of the request's names: one fact per version that is newest on a platform.

    Platforms are those of the request's configs. A noarch package counts for each of them.
    """
    names, services = tuple(dict.fromkeys(request.names)), request.services
    platforms = tuple(sorted({config.platform for config in request.configs})) or ("linux-64",)
    if not names:
        return SourceOutcome()
    services.report(f"looking up {len(names)} packages for {', '.join(platforms)}")
    packages_of: dict[str, _Packages] = {}
    troubles: list[str] = []

    def look_up(platform: str) -> None:
        key = newest_key(platform, names)
        try:
            entry = services.cached(
                key, services.max_age, lambda: msgspec.json.encode(newest(platform, names, services)[1])
            )
            packages = msgspec.json.decode(entry.data, type=list[NewestPackage])
            packages_of[platform] = {package.name: (package, entry.when) for package in packages}
        except MegabuildError as error:
            troubles.append(f"{platform}: {error.message}")

    with ThreadPoolExecutor(max_workers=len(platforms)) as pool:
        list(pool.map(look_up, platforms))
    trouble = "; ".join(sorted(troubles))
    facts = tuple(fact for name in names for fact in _facts(name, platforms, packages_of, trouble))
    return SourceOutcome(facts=facts, trouble=trouble)


def newest(platform: str, names: Collection[str], services: Services) -> tuple[str, list[NewestPackage]]:
    """Return conda-forge's address, and the newest package of each name that it has for a platform, or noarch.

    Raises NetworkError: the channel gives no answer, or an invalid one.
    """
    url, seconds = channel_url(CONDA_FORGE), min(_SECONDS, services.remaining())
    if unreachable := why_channel_unreachable(url):
        raise NetworkError(f"{CONDA_FORGE}: cannot be used: {redact.text(unreachable)}", _REMEDY)

    async def ask(cache: str) -> list[RepoDataRecord]:
        # the caller caches answers; rattler's own cache would apply other rules
        gateway = Gateway(cache_dir=Path(cache), default_config=SourceConfig(cache_action="no-cache"))
        subdirs = cast(list[SubdirLiteral], sorted({platform, "noarch"}))
        query = gateway.query(
            [Channel(url)], subdirs, sorted(names), recursive=False, channel_relations="disabled"
        )
        return [record for records in await asyncio.wait_for(query, seconds) for record in records]

    with tempfile.TemporaryDirectory(prefix="megabuild-audit-", ignore_cleanup_errors=True) as cache:
        try:
            records = run_with_deadline(seconds + 1.0, lambda: asyncio.run(ask(cache)))
        except (TimeoutError, asyncio.TimeoutError):
            raise NetworkError(f"{CONDA_FORGE}: no answer within {seconds:.0f} s", _REMEDY) from None
        except Exception as error:  # rattler's own types; the message has one cause per line
            lines = [line.strip() for line in redact.text(str(error)).splitlines() if line.strip()]
            ends = [line.removeprefix("Caused by:").strip() for line in (*lines[:1], *lines[-1:])]
            raise NetworkError(": ".join(dict.fromkeys(ends)) or type(error).__name__, _REMEDY) from error
    by_name: dict[str, list[RepoDataRecord]] = {}
    for record in records:
        by_name.setdefault(record.name.normalized, []).append(record)
    return url, [_best(name, by_name[name]) for name in names if name in by_name]


def _facts(
    name: str, platforms: Sequence[str], packages_of: Mapping[str, _Packages], trouble: str
) -> list[Newest]:
    """Return one fact for each version that is the newest on some platform; the newest of all comes first."""
    by_version: dict[str, dict[str, tuple[NewestPackage, str]]] = {}
    for platform in platforms:
        if best := packages_of.get(platform, {}).get(name):
            by_version.setdefault(best[0].version, {})[platform] = best
    if not by_version:
        nowhere = f"{CONDA_FORGE} has no {name} for {', '.join(platforms)}"
        return [Newest(name=name, trouble=trouble or nowhere)]
    facts = []
    for version in sorted(by_version, key=Version, reverse=True):
        having = by_version[version]
        package, when = next(iter(having.values()))
        holds = Scope(platforms=() if len(having) == len(platforms) else tuple(having))
        where = Where(file=package.file, index=CONDA_FORGE, package=name, version=version, fetched=when)
        facts.append(Newest(name=name, value=version, holds=holds, where=where))
    return facts


def _best(name: str, records: list[RepoDataRecord]) -> NewestPackage:
    released = [record for record in records if not _PRERELEASE.search(str(record.version))] or records
    best = max(released, key=lambda record: (record.version, record.build_number))
    digest = best.sha256.hex() if best.sha256 else ""
    return NewestPackage(name=name, version=str(best.version), file=best.file_name, sha256=digest)


SOURCES = {"channel": Source(read=read, about=About.CHANNEL)}
