"""The wheels and source archives of a project on the indexes that pip is configured to use."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.network.services import Services
from megabuild.network.simple.configured import Configured
from megabuild.network.simple.page import ACCEPT, File, files
from megabuild.network.web import NotFound, Web

_PAGE = 32 << 20  # bytes; torch's page has less than half a megabyte
_PYTHON = 12  # CPython 3.x whose wheel is read
_INTERPRETER = re.compile(r"cp3(\d+)")
#: conda's platforms by the end of a wheel's platform tag; musllinux has none.
_PLATFORMS = {
    re.compile(r"(many)?linux.*_x86_64"): "linux-64",
    re.compile(r"(many)?linux.*_aarch64"): "linux-aarch64",
    re.compile(r"macosx_.*_(arm64|universal2)"): "osx-arm64",
    re.compile(r"macosx_.*_x86_64"): "osx-64",
    re.compile(r"win_amd64"): "win-64",
    re.compile(r"win_arm64"): "win-arm64",
    re.compile(r"any"): "noarch",
}


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel that an index offers.

    Parameters
    ----------
    platform:
        conda's name for it; ``noarch`` for a wheel that fits all.
    distance:
        Between its CPython and 3.12, free-threaded ones behind all others.
    fetched:
        When the index was asked, ISO 8601.
    """

    file: File
    version: Version
    platform: str
    distance: int
    fetched: str = ""

    @property
    def local(self) -> str:
        """The version's local part, ``cpu`` of ``2.13.0+cpu``, or an empty string."""
        return self.version.local or ""


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A source archive that an index offers."""

    file: File
    version: Version


@dataclass(frozen=True, kw_only=True)
class Offers:
    """What the indexes have of a project.

    Parameters
    ----------
    troubles:
        Why some of the indexes say nothing.
    """

    wheels: tuple[Wheel, ...]
    archives: tuple[Archive, ...]
    troubles: tuple[str, ...] = ()


def offers(name: str, where: Configured, services: Services, web: Web) -> Offers:
    """Return all wheels and source archives of a project.

    Parameters
    ----------
    name:
        The project, ``torch``.
    where:
        Which indexes to ask; where two have the same file, the first counts.

    Raises
    ------
    AuditError
        No index answers, or none has anything of it.
    """
    wheels: dict[str, Wheel] = {}
    archives: dict[str, Archive] = {}
    troubles: list[str] = []
    project = canonicalize_name(name)
    for place in (*(f"{index}/{project}/" for index in where.indexes), *where.links):
        try:
            offered, fetched = _offered(place, services, web)
        except NotFound:
            continue
        except AuditError as error:
            troubles.append(error.message)
            continue
        for file in offered:
            wheel, archive = _wheel(file, project, fetched), _archive(file, project)
            if wheel is not None:
                wheels.setdefault(file.name, wheel)
            if archive is not None:
                archives.setdefault(file.name, archive)
    if not wheels and not archives:
        why = "; ".join(troubles) or f"no index that pip is configured to use has {project}"
        raise AuditError(why, "check pip's configuration (pip config list), or name a wheel: --wheel FILE")
    return Offers(wheels=tuple(wheels.values()), archives=tuple(archives.values()), troubles=tuple(troubles))


def newest(offered: Offers) -> Version:
    """Return the newest version that is neither a pre-release nor yanked, or the newest at all if there is none.

    Of wheels; of source archives where there is no wheel.
    """
    every: tuple[Wheel | Archive, ...] = offered.wheels or offered.archives
    good = [one for one in every if not one.version.is_prerelease and not one.file.yanked]
    return Version(max(one.version for one in good or every).public)


def one_per_platform(offered: Offers, version: Version, platforms: Collection[str]) -> dict[str, Wheel]:
    """Return for each platform the wheel to read: without a local version where there is one, for CPython 3.12 or next.

    Parameters
    ----------
    version:
        Without a local part.
    platforms:
        conda's names; wheels for others count only if none is for these. Empty for all.

    Raises
    ------
    AuditError
        There is no wheel of this version.
    """
    fitting = [wheel for wheel in offered.wheels if Version(wheel.version.public) == version]
    if not fitting:
        raise AuditError(
            f"there is no wheel of version {version}; the newest is {newest(offered)}", "check the version"
        )
    wanted = [wheel for wheel in fitting if not platforms or wheel.platform in {*platforms, "noarch"}]
    chosen: dict[str, Wheel] = {}
    for wheel in sorted(wanted or fitting, key=lambda wheel: (wheel.local, wheel.distance, wheel.file.name)):
        chosen.setdefault(wheel.platform, wheel)
    order = ("linux-64", "linux-aarch64", "osx-arm64", "osx-64", "win-64")
    return dict(
        sorted(chosen.items(), key=lambda item: (order.index(item[0]) if item[0] in order else 9, item[0]))
    )


def from_file_name(name: str) -> tuple[str, Version, str, int] | None:
    """Return project, version, platform and distance by a wheel's file name, or None if it is of no interest."""
    try:
        project, version, _, tags = parse_wheel_filename(name)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    platform = next((found for tag in tags if (found := _platform(tag))), None)
    if platform is None:
        return None
    return canonicalize_name(project), version, platform, min(_distance(tag) for tag in tags)


def _wheel(file: File, project: str, fetched: str) -> Wheel | None:
    parsed = from_file_name(file.name)
    if parsed is None or parsed[0] != project:
        return None
    return Wheel(file=file, version=parsed[1], platform=parsed[2], distance=parsed[3], fetched=fetched)


def _archive(file: File, project: str) -> Archive | None:
    try:
        name, version = parse_sdist_filename(file.name)
    except (InvalidSdistFilename, InvalidVersion):
        return None
    return Archive(file=file, version=version) if canonicalize_name(name) == project else None


def _platform(tag: Tag) -> str | None:
    return next((name for pattern, name in _PLATFORMS.items() if pattern.fullmatch(tag.platform)), None)


def _distance(tag: Tag) -> int:
    match = _INTERPRETER.fullmatch(tag.interpreter)
    minor = int(match[1]) if match else _PYTHON
    return 2 * abs(minor - _PYTHON) + (1 if minor > _PYTHON else 0) + (1000 if tag.abi.endswith("t") else 0)


def _offered(place: str, services: Services, web: Web) -> tuple[tuple[File, ...], str]:
    """Return the files at an address or in a folder, and when they were asked for."""
    if "://" not in place:
        folder = Path(place).expanduser()
        if folder.is_dir():
            return tuple(File(name=path.name, url=path.as_uri()) for path in sorted(folder.glob("*.whl"))), ""
        raise NotFound(f"there is no folder {folder}")
    if urlsplit(place).scheme == "file":
        path = f"{place}index.html" if place.endswith("/") else place
        return files(web.get(path, limit=_PAGE).body, path), ""

    def make() -> bytes:
        response = web.get(place, headers={"Accept": ACCEPT}, limit=_PAGE)
        offered = files(response.body, response.url)
        if not any(file.name.endswith((".whl", ".tar.gz", ".zip")) for file in offered):
            raise AuditError(
                f"{redact.address(place)} is no page of a package index", "check pip's configuration"
            )
        # credentials in the address are not kept on disk
        kept = {
            "address": redact.address(response.url),
            "page": response.body.decode("utf-8", errors="replace"),
        }
        return json.dumps(kept).encode()

    entry = services.cached(f"simple:{redact.address(place)}", services.max_age, make)
    kept = json.loads(entry.data)
    offered = files(str(kept["page"]).encode(), str(kept["address"]))
    # a page from the network must not lead to files of this machine
    remote = (file for file in offered if urlsplit(file.url).scheme in ("http", "https"))
    return tuple(replace(file, url=_with_user(file.url, place)) for file in remote), entry.when


def _with_user(url: str, place: str) -> str:
    """Give an address the credentials of its index if it lies on the same server, as pip does."""
    parts, (user, at, host) = urlsplit(url), urlsplit(place).netloc.rpartition("@")
    if not at or parts.netloc != host or parts.scheme != urlsplit(place).scheme:
        return url
    return urlunsplit(parts._replace(netloc=f"{user}@{host}"))
