"""The newest version of each package on conda-forge, per platform, through py-rattler."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import msgspec
from packaging.version import InvalidVersion
from packaging.version import Version as PythonVersion
from rattler import Channel, Gateway, RepoDataRecord, SourceConfig, Version
from rattler.platform.subdir import SubdirLiteral

from groundwork import redact
from groundwork.errors import MegabuildError
from groundwork.network.client import NetworkError, channel_url, run_with_deadline, why_channel_unreachable
from pin_audit.facts import Newest, Scope, SourceOutcome, Where, resolve_types
from pin_audit.request import AuditRequest
from pin_audit.services import Services

SOURCE = "channel"
CONDA_FORGE = "conda-forge"
_NOARCH = "noarch"
_SECONDS = 60.0
_REMEDY = "check the network and the channel"


@resolve_types
class NewestPackage(msgspec.Struct, frozen=True, kw_only=True):
    """The newest package of a name: its file in the channel, and that one's sha256 or nothing."""

    name: str
    version: str
    file: str
    sha256: str


#: By name, each with the time when the channel was asked.
_Found = Mapping[str, tuple[NewestPackage, str]]


def read(request: AuditRequest) -> SourceOutcome:
    """Return for each of the request's names what the channel has, one fact for each version that is the newest.

    Platforms are those of the request's configs. A package for all platforms (noarch) counts for each of them.
    """
    names = tuple(dict.fromkeys(request.names))
    platforms = tuple(sorted({config.platform for config in request.configs})) or ("linux-64",)
    if not names:
        return SourceOutcome(source=SOURCE)
    request.services.report(SOURCE, f"looking up {len(names)} packages for {', '.join(platforms)}")
    every: tuple[str, ...] = (*platforms, _NOARCH)
    found: dict[str, _Found] = {}
    reasons: dict[str, list[str]] = {}
    ask = functools.partial(_look_up, names=names, request=request)
    with ThreadPoolExecutor(max_workers=len(platforms) + 1) as pool:
        for platform, answer in zip(every, pool.map(ask, every), strict=True):
            if isinstance(answer, str):
                reasons.setdefault(answer, []).append(platform)
            else:
                found[platform] = answer
    trouble = "; ".join(f"{', '.join(where)}: {why}" for why, where in reasons.items())
    facts = tuple(fact for name in names for fact in _facts(name, platforms, found, trouble))
    return SourceOutcome(source=SOURCE, facts=facts, trouble=trouble)


def newest(platform: str, names: Collection[str], services: Services) -> tuple[str, list[NewestPackage]]:
    """Return conda-forge's address, and of each name that it has for a platform the newest package.

    Raises NetworkError: The channel does not answer, or answers nonsense.
    """
    url = channel_url(CONDA_FORGE)
    if unreachable := why_channel_unreachable(url):
        raise NetworkError(f"{CONDA_FORGE} cannot be used: {redact.text(unreachable)}")
    return url, _newest(url, platform, names, min(_SECONDS, services.remaining()))


def _look_up(platform: str, *, names: tuple[str, ...], request: AuditRequest) -> _Found | str:
    """Return the newest packages of a platform, from the cache if that is fresh, or the reason for a failure."""
    services = request.services
    key = f"newest {redact.address(channel_url(CONDA_FORGE))} {platform} {names}"
    try:
        entry = services.cached(
            key, services.max_age, lambda: msgspec.json.encode(newest(platform, names, services)[1])
        )
        return {
            one.name: (one, entry.when) for one in msgspec.json.decode(entry.data, type=list[NewestPackage])
        }
    except MegabuildError as error:
        return error.message


def _facts(name: str, platforms: Sequence[str], found: Mapping[str, _Found], trouble: str) -> list[Newest]:
    """Return one fact for each version that is the newest on some platform; the newest of all comes first."""
    by_version: dict[str, dict[str, tuple[NewestPackage, str]]] = {}
    known = [platform for platform in platforms if platform in found]
    for platform in known:
        here = [found[folder][name] for folder in (platform, _NOARCH) if name in found.get(folder, {})]
        if here:
            best = max(here, key=lambda one: Version(one[0].version))
            by_version.setdefault(best[0].version, {})[platform] = best
    if not by_version:
        nowhere = f"{CONDA_FORGE} has no {name} for {', '.join(platforms)}"
        why = nowhere if len(known) == len(platforms) else trouble or f"{name} was not looked up"
        return [Newest(name=name, trouble=why)]
    facts = []
    for version in sorted(by_version, key=Version, reverse=True):
        having = by_version[version]
        package, when = next(iter(having.values()))
        only = () if len(having) == len(platforms) else tuple(having)
        where = Where(file=package.file, index=CONDA_FORGE, package=name, version=version, fetched=when)
        facts.append(Newest(name=name, value=version, holds=Scope(platforms=only), where=where))
    return facts


def _newest(url: str, platform: str, names: Collection[str], seconds: float) -> list[NewestPackage]:
    async def ask(cache: str) -> list[RepoDataRecord]:
        # the caller caches answers; rattler's own cache has other rules
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
            records = run_with_deadline(seconds + 1.0, lambda: asyncio.run(ask(cache)))
        except (TimeoutError, asyncio.TimeoutError):
            raise NetworkError(f"no answer within {seconds:.0f} s", _REMEDY) from None
        except (
            Exception
        ) as error:  # rattler has types of its own; the message has the first and the last of its causes
            lines = [line.strip() for line in redact.text(str(error)).splitlines() if line.strip()]
            ends = [*lines[:1], *lines[-1:]] or [type(error).__name__]
            ends = [line.removeprefix("Caused by:").strip() for line in ends]
            raise NetworkError(": ".join(dict.fromkeys(ends)), _REMEDY) from error
    by_name: dict[str, list[RepoDataRecord]] = {}
    for record in records:
        by_name.setdefault(record.name.normalized, []).append(record)
    return [_best(name, by_name[name]) for name in names if name in by_name]


def _best(name: str, records: list[RepoDataRecord]) -> NewestPackage:
    released = [record for record in records if not _is_prerelease(str(record.version))] or records
    best = max(released, key=lambda record: (record.version, record.build_number))
    digest = best.sha256.hex() if best.sha256 else ""
    return NewestPackage(name=name, version=str(best.version), file=best.file_name, sha256=digest)


def _is_prerelease(version: str) -> bool:
    try:
        return PythonVersion(version).is_prerelease
    except InvalidVersion:
        return False
