"""The newest version of each package on conda-forge, per platform, from the channel or from a folder with repodata."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec
from rattler import Version

from megabuild.audit.channel_records import CONDA_FORGE, Package, from_channel, from_folder, repodata
from megabuild.audit.facts import Holds, Newest, Outcome, Where
from megabuild.audit.request import Request
from megabuild.errors import MegabuildError
from megabuild.network import redact
from megabuild.providers.conda_forge import channel_url

SOURCE = "channel"
_NOARCH = "noarch"

#: By name, each with the time when the channel was asked.
_Found = Mapping[str, tuple[Package, str]]


def read(request: Request) -> Outcome:
    """Return for each of the request's names what the channel has, one fact for each version that is the newest.

    Platforms are those of the request's configs. A package for all platforms (noarch) counts for each of them.
    """
    names = tuple(dict.fromkeys(request.names))
    platforms = tuple(sorted({config.platform for config in request.configs})) or ("linux-64",)
    if not names:
        return Outcome(source=SOURCE)
    request.services.report(SOURCE, f"looking up {len(names)} packages for {', '.join(platforms)}")
    every: tuple[str, ...] = (*platforms, _NOARCH)
    found: dict[str, _Found] = {}
    reasons: dict[str, list[str]] = {}
    folder = request.local.repodata
    if folder is not None:
        there = tuple(platform for platform in every if repodata(folder, platform))
        if not there:
            nothing = f"{folder} has no repodata.json or repodata.json.zst in {' or '.join(sorted(every))}"
            reasons[nothing] = [*every]
        every = there
    ask = functools.partial(_asked, names=names, request=request)
    with ThreadPoolExecutor(max_workers=len(platforms) + 1) as pool:
        for platform, answer in zip(every, pool.map(ask, every), strict=True):
            if isinstance(answer, str):
                reasons.setdefault(answer, []).append(platform)
            else:
                found[platform] = answer
    trouble = "; ".join(f"{', '.join(where)}: {why}" for why, where in reasons.items())
    facts = tuple(fact for name in names for fact in _facts(name, platforms, found, trouble))
    return Outcome(source=SOURCE, facts=facts, trouble=trouble)


def _asked(platform: str, *, names: tuple[str, ...], request: Request) -> _Found | str:
    """Return the newest packages of a platform, from the cache where that is young enough, or why there are none."""
    services, folder = request.services, request.local.repodata
    key = f"newest {redact.address(channel_url(CONDA_FORGE))} {platform} {names}"
    try:
        if folder is not None:
            return {one.name: (one, "") for one in from_folder(folder, platform, names, services)}
        entry = services.cached(
            key, services.max_age, lambda: msgspec.json.encode(from_channel(platform, names, services)[1])
        )
        return {one.name: (one, entry.when) for one in msgspec.json.decode(entry.data, type=list[Package])}
    except MegabuildError as error:
        return error.message


def _facts(name: str, platforms: tuple[str, ...], found: Mapping[str, _Found], trouble: str) -> list[Newest]:
    """Return one fact for each version that is the newest on some platform; the newest of all comes first."""
    by_version: dict[str, dict[str, tuple[Package, str]]] = {}
    known = [platform for platform in platforms if platform in found]
    for platform in known:
        here = [found[folder][name] for folder in (platform, _NOARCH) if name in found.get(folder, {})]
        if here:
            best = max(here, key=lambda one: Version(one[0].version))
            by_version.setdefault(best[0].version, {})[platform] = best
    if not by_version:
        nowhere = f"{CONDA_FORGE} has no {name} for {', '.join(platforms)}"
        why = nowhere if len(known) == len(platforms) else trouble or f"nothing is known of {name}"
        return [Newest(name=name, trouble=why)]
    facts = []
    for version in sorted(by_version, key=Version, reverse=True):
        having = by_version[version]
        package, when = next(iter(having.values()))
        only = () if len(having) == len(platforms) else tuple(having)
        where = Where(file=package.file, index=CONDA_FORGE, package=name, version=version, fetched=when)
        facts.append(Newest(name=name, value=version, holds=Holds(platforms=only), where=where))
    return facts
