"""The newest version of each package on conda-forge, per platform, from the channel or from a folder with repodata."""

from __future__ import annotations

from collections.abc import Mapping

from rattler import Version

from megabuild.audit.conda.newest import Package, from_channel, from_folder
from megabuild.audit.model import Finding, Kind, Origin, Outcome
from megabuild.audit.request import Request
from megabuild.providers.reachability import channel_url

SOURCE = "channel"
CHANNEL = "conda-forge"
_NOARCH = "noarch"

ByPlatform = Mapping[str, Mapping[str, Package]]


def read(request: Request) -> Outcome:
    """Return for each of the request's names what the channel has, one finding for each version that is the newest.

    Platforms are those of the request's configs. A package for all platforms (noarch) counts for each of them. Bytes
    are not counted: rattler does not tell them.
    """
    services, names = request.services, tuple(dict.fromkeys(request.names))
    platforms = tuple(sorted({config.platform for config in request.configs})) or ("linux-64",)
    if not names:
        return Outcome(source=SOURCE)
    folder = request.local.repodata
    every = (*platforms, _NOARCH)
    if folder is not None:
        found, troubles = from_folder(folder, every, names, services)
    else:
        url = channel_url(CHANNEL)
        services.report(SOURCE, f"looking up {len(names)} packages for {', '.join(platforms)}")
        found, troubles = from_channel(url, every, names, services)
    trouble = _summary(troubles)
    return Outcome(
        source=SOURCE,
        findings=tuple(finding for name in names for finding in _findings(name, platforms, found, trouble)),
        trouble=trouble,
    )


def _findings(name: str, platforms: tuple[str, ...], found: ByPlatform, trouble: str) -> list[Finding]:
    """Return one finding for each version that is the newest on some platform; the newest of all comes first."""
    by_version: dict[str, dict[str, Package]] = {}
    known = [platform for platform in platforms if name in found.get(platform, {})]
    for platform in known:
        here = [found[folder][name] for folder in (platform, _NOARCH) if name in found.get(folder, {})]
        best = max((package for package in here if package.version), key=_order, default=None)
        if best is not None:
            by_version.setdefault(best.version, {})[platform] = best
    if not by_version:
        if len(known) < len(platforms):
            why = trouble or f"nothing is known of {name}"
        else:
            why = f"{CHANNEL} has no {name} for {', '.join(platforms)}"
        return [Finding(name=name, kind=Kind.NEWEST, value="", trouble=why)]
    return [
        _finding(by_version[version], everywhere=len(by_version[version]) == len(platforms))
        for version in sorted(by_version, key=Version, reverse=True)
    ]


def _finding(packages: Mapping[str, Package], *, everywhere: bool) -> Finding:
    package = next(iter(packages.values()))
    return Finding(
        name=package.name,
        kind=Kind.NEWEST,
        value=package.version,
        scope="" if everywhere else ", ".join(packages),
        origin=Origin(
            file=package.file,
            url=f"https://anaconda.org/{CHANNEL}/{package.name}",
            date=package.date,
            fetched=package.fetched,
        ),
        details={"platforms": ", ".join(packages), "channel": CHANNEL},
    )


def _order(package: Package) -> Version:
    return Version(package.version)


def _summary(troubles: Mapping[str, str]) -> str:
    """Return a sentence for each trouble, with the platforms that have it."""
    by_reason: dict[str, list[str]] = {}
    for platform, why in troubles.items():
        by_reason.setdefault(why, []).append(platform)
    return "; ".join(f"{', '.join(where)}: {why}" for why, where in by_reason.items())
