"""The newest version of each package on conda-forge, per platform, through py-rattler."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
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
#: ``1.0a1`` and ``1.0rc``; ``2024a`` and ``1.1.1b`` are releases.
_PRERELEASE = re.compile(r"\d[._-]?(?:[ab][._-]?\d+|(?:rc|alpha|beta|dev|pre)[._-]?\d*)\b")
_SECONDS = 60.0
_REMEDY = "check the network, or set CONDA_CHANNEL_ALIAS to a mirror"


@resolve_types
class NewestPackage(msgspec.Struct, frozen=True, kw_only=True):
    """The newest package of a name, its file in the channel, and the file's sha256 if the channel lists it."""

    name: str
    version: str
    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PlatformAnswer:
    """The newest packages of a platform by name, and the time of the request to the channel."""

    platform: str
    packages: Mapping[str, NewestPackage]
    when: str = ""
    trouble: str = ""  #: why there is no answer


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


def read(request: AuditRequest) -> SourceOutcome:
    """Return the newest version of each of the request's names: one fact per version that is newest on a platform.

    Platforms are those of the request's configs. A noarch package counts for each of them.
    """
    names = tuple(dict.fromkeys(request.names))
    platforms = sorted({config.platform for config in request.configs}) or ["linux-64"]
    if not names:
        return SourceOutcome()
    request.services.report(f"looking up {len(names)} packages for {', '.join(platforms)}")

    def ask(platform: str) -> PlatformAnswer:
        return _ask(platform, names, request.services)

    with ThreadPoolExecutor(max_workers=len(platforms)) as pool:
        answers = list(pool.map(ask, platforms))
    troubles = [f"{answer.platform}: {answer.trouble}" for answer in answers if answer.trouble]
    trouble = "; ".join(troubles)
    facts: list[Newest] = []
    for name in names:
        facts += _facts(name, answers, trouble)
    return SourceOutcome(facts=tuple(facts), trouble=trouble)


def _ask(platform: str, names: Sequence[str], services: Services) -> PlatformAnswer:
    """Ask the channel, or the cache."""

    def make() -> bytes:
        return msgspec.json.encode(newest(platform, names, services))

    try:
        entry = services.cached(newest_key(platform, names), services.max_age, make)
    except MegabuildError as error:
        return PlatformAnswer(platform=platform, packages={}, trouble=error.message)
    packages = msgspec.json.decode(entry.data, type=list[NewestPackage])
    by_name = {package.name: package for package in packages}
    return PlatformAnswer(platform=platform, packages=by_name, when=entry.when)


def newest(platform: str, names: Collection[str], services: Services) -> list[NewestPackage]:
    """Return the newest package of each name that conda-forge has for a platform, or noarch.

    Raises NetworkError: the channel gives no answer, or an invalid one.
    """
    by_name: dict[str, list[RepoDataRecord]] = {}
    for record in _records(platform, names, services):
        by_name.setdefault(record.name.normalized, []).append(record)
    return [_best(name, by_name[name]) for name in names if name in by_name]


def _records(platform: str, names: Collection[str], services: Services) -> list[RepoDataRecord]:
    """Return all records of packages in the channel."""
    url = channel_url(CONDA_FORGE)
    seconds = min(_SECONDS, services.remaining())
    if unreachable := why_channel_unreachable(url):
        raise NetworkError(f"{CONDA_FORGE}: cannot be used: {redact.text(unreachable)}", _REMEDY)

    async def ask(cache: str) -> list[RepoDataRecord]:
        # the caller caches answers; rattler's own cache would apply other rules
        gateway = Gateway(cache_dir=Path(cache), default_config=SourceConfig(cache_action="no-cache"))
        subdirs = cast(list[SubdirLiteral], sorted({platform, "noarch"}))
        query = gateway.query(
            [Channel(url)], subdirs, sorted(names), recursive=False, channel_relations="disabled"
        )
        answers = await asyncio.wait_for(query, seconds)
        return list(chain.from_iterable(answers))

    with tempfile.TemporaryDirectory(prefix="megabuild-audit-", ignore_cleanup_errors=True) as cache:
        try:
            return run_with_deadline(seconds + 1.0, lambda: asyncio.run(ask(cache)))
        except (TimeoutError, asyncio.TimeoutError):
            raise NetworkError(f"{CONDA_FORGE}: no answer within {seconds:.0f} s", _REMEDY) from None
        except Exception as error:  # rattler's own types
            reason = _first_and_last_cause(error) or type(error).__name__
            raise NetworkError(reason, _REMEDY) from error


def _first_and_last_cause(error: Exception) -> str:
    """Shorten rattler's message, which has one cause per line."""
    causes = []
    for line in redact.text(str(error)).splitlines():
        if line.strip():
            causes.append(line.strip().removeprefix("Caused by:").strip())
    return ": ".join(dict.fromkeys((*causes[:1], *causes[-1:])))


def _facts(name: str, answers: Sequence[PlatformAnswer], trouble: str) -> list[Newest]:
    """Return one fact for each version that is the newest on some platform; the newest of all comes first."""
    by_version: dict[str, list[PlatformAnswer]] = {}
    for answer in answers:
        if name in answer.packages:
            by_version.setdefault(answer.packages[name].version, []).append(answer)
    if not by_version:
        platforms = ", ".join(answer.platform for answer in answers)
        return [Newest(name=name, trouble=trouble or f"{CONDA_FORGE} has no {name} for {platforms}")]
    facts = []
    for version in sorted(by_version, key=Version, reverse=True):
        having = by_version[version]
        holds = Scope()
        if len(having) < len(answers):
            holds = Scope(platforms=tuple(answer.platform for answer in having))
        where = Where(
            file=having[0].packages[name].file,
            index=CONDA_FORGE,
            package=name,
            version=version,
            fetched=having[0].when,
        )
        facts.append(Newest(name=name, value=version, holds=holds, where=where))
    return facts


def _best(name: str, records: list[RepoDataRecord]) -> NewestPackage:
    released = [record for record in records if not _PRERELEASE.search(str(record.version))] or records
    best = max(released, key=lambda record: (record.version, record.build_number))
    digest = best.sha256.hex() if best.sha256 else ""
    return NewestPackage(name=name, version=str(best.version), file=best.file_name, sha256=digest)


SOURCES = {"channel": Source(read=read, about=About.CHANNEL)}
