"""The newest package of each name in one platform's folder of a channel."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from packaging.version import InvalidVersion
from packaging.version import Version as PythonVersion
from rattler import RepoDataRecord

from megabuild.audit.conda.gateway import Records, ask
from megabuild.audit.conda.repodata_file import repodata_file, unpack
from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.network.services import Services
from megabuild.providers.reachability import why_unreachable

_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Package:
    """The newest package of a name.

    Parameters
    ----------
    version:
        Empty if there is no package of that name.
    file:
        Its name in the channel.
    url:
        Without credentials.
    sha256:
        Of the file, or empty.
    date:
        When it was built, ISO 8601, or empty.
    fetched:
        When the channel was asked, ISO 8601; empty for local files.
    """

    name: str
    version: str
    file: str = ""
    url: str = ""
    sha256: str = ""
    date: str = ""
    fetched: str = ""


def from_channel(
    url: str, platforms: Collection[str], names: Collection[str], services: Services
) -> tuple[dict[str, dict[str, Package]], dict[str, str]]:
    """Return the newest packages by platform and name, from the cache where that is fresh, and troubles by platform.

    Parameters
    ----------
    url:
        The channel's.
    platforms:
        conda's names, ``noarch`` among them.
    names:
        Of packages. A name without a package is there, with an empty version.
    """
    found: dict[str, dict[str, Package]] = {platform: {} for platform in platforms}
    old: dict[str, dict[str, Package]] = {platform: {} for platform in platforms}
    for platform in platforms:
        for name in names:
            package, fresh = _remembered(services, url, platform, name)
            if package is not None:
                (found if fresh else old)[platform][name] = package
    missing = {
        platform: frozenset(name for name in names if name not in found[platform]) for platform in platforms
    }
    missing = {platform: wanted for platform, wanted in missing.items() if wanted}
    if not missing:
        return found, {}
    answers = _asked(url, missing, services)
    troubles: dict[str, str] = {}
    for platform, answer in answers.items():
        if isinstance(answer, str):
            troubles[platform] = answer
            found[platform] |= old[platform]
            continue
        for name, package in _newest(answer, missing[platform]).items():
            found[platform][name] = (
                package if services.offline else _remember(services, url, platform, package)
            )
    return found, troubles


def from_folder(
    folder: Path, platforms: Collection[str], names: Collection[str], services: Services
) -> tuple[dict[str, dict[str, Package]], dict[str, str]]:
    """Return the same from ``<folder>/<platform>/repodata.json`` or ``.zst``; platforms without a file have none."""
    there = {platform: file for platform in platforms if (file := repodata_file(folder, platform))}
    if not there:
        problem = f"{folder} has no repodata.json or repodata.json.zst in {' or '.join(sorted(platforms))}"
        return {}, dict.fromkeys(platforms, problem)
    found, troubles = dict[str, dict[str, Package]](), dict[str, str]()
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as scratch:
        plain = Path(scratch, "channel")
        for platform, file in there.items():
            try:
                unpack(file, plain / platform / "repodata.json")
            except AuditError as error:
                troubles[platform] = error.message
        wanted = {platform: frozenset(names) for platform in there if platform not in troubles}
        answers = ask(plain.as_uri(), wanted, Path(scratch, "cache"), "no-cache", services.remaining())
    for platform, answer in answers.items():
        if isinstance(answer, str):
            troubles[platform] = f"{there[platform]}: {answer}"
        else:
            found[platform] = _newest(answer, names)
    return found, troubles


def _asked(url: str, wanted: Mapping[str, Collection[str]], services: Services) -> dict[str, Records | str]:
    """Ask the channel or, offline, what rattler kept of it."""
    seconds = min(_SECONDS, services.remaining())
    cache = services.cache.folder / "rattler"
    if services.offline:
        answers = ask(url, wanted, cache, "force-cache-only", seconds)
        return {
            platform: "not in the cache, and --offline forbids to ask" if isinstance(answer, str) else answer
            for platform, answer in answers.items()
        }
    unreachable = why_unreachable(url)
    if unreachable:
        return dict.fromkeys(wanted, f"{redact.address(url)} cannot be used: {redact.text(unreachable)}")
    answers = ask(url, wanted, cache, "cache-or-fetch", seconds)
    failed = {platform: wanted[platform] for platform, answer in answers.items() if isinstance(answer, str)}
    seconds = min(_SECONDS, services.remaining())
    if failed and seconds > 1.0:
        # rattler's own cache may be spoilt, or its folder may not be writable
        with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as empty:
            answers |= ask(url, failed, Path(empty), "no-cache", seconds)
    return answers


def _newest(records: Iterable[RepoDataRecord], names: Collection[str]) -> dict[str, Package]:
    by_name: dict[str, list[RepoDataRecord]] = {name: [] for name in names}
    for record in records:
        by_name.setdefault(record.name.normalized, []).append(record)
    return {name: _package(name, by_name[name]) for name in names}


def _package(name: str, records: list[RepoDataRecord]) -> Package:
    if not records:
        return Package(name=name, version="")
    released = [record for record in records if not _is_prerelease(str(record.version))] or records
    best = max(released, key=lambda record: (record.version, record.build_number))
    return Package(
        name=name,
        version=str(best.version),
        file=best.file_name,
        url=redact.address(best.url),
        sha256=best.sha256.hex() if best.sha256 else "",
        date=best.timestamp.isoformat(timespec="seconds") if best.timestamp else "",
    )


def _is_prerelease(version: str) -> bool:
    try:
        return PythonVersion(version).is_prerelease
    except InvalidVersion:
        return False


def _key(url: str, platform: str, name: str) -> str:
    return f"newest:{redact.address(url)}:{platform}:{name}"


def _remembered(services: Services, url: str, platform: str, name: str) -> tuple[Package | None, bool]:
    """Return what the cache has, and whether it may be used without asking."""
    entry = services.cache.read(_key(url, platform, name))
    if entry is None:
        return None, False
    package = replace(Package(**json.loads(entry.data)), fetched=entry.when)
    return package, services.offline or 0 <= entry.age <= services.max_age


def _remember(services: Services, url: str, platform: str, package: Package) -> Package:
    entry = services.cache.write(_key(url, platform, package.name), json.dumps(asdict(package)).encode())
    return replace(package, fetched=entry.when)
