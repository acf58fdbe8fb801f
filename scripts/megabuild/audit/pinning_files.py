"""The files of conda-forge-pinning: from a folder, or from its newest package."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rattler.package_streaming import PackageArchive

from megabuild.audit.channel_records import from_channel
from megabuild.audit.request import Services
from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.network.client import NetworkError, within
from megabuild.providers.conda_forge import channel_url, why_unreachable

REPOSITORY = "https://github.com/conda-forge/conda-forge-pinning-feedstock"
_PACKAGE = "conda-forge-pinning"
_CHANNEL = "conda-forge"
_LARGEST_FILE, _LARGEST_ARCHIVE = 4 << 20, 32 << 20  # bytes
_CONFIG = "conda_build_config.yaml"
#: Where the files lie in the package, in the repository, in a checkout of it, or beside each other.
_CONFIGS = (_CONFIG, f"recipe/{_CONFIG}", f"*{_CONFIG}")
_MIGRATIONS = ("migrations", "recipe/migrations", "share/conda-forge/migrations", "conda-forge-migrations")
_MEMBER = re.compile(rf"(?:.*/)?(?:(?P<config>{re.escape(_CONFIG)})|migrations/(?P<migration>[^/]+\.ya?ml))")
_REMEDY = "name a folder with conda_build_config.yaml and migrations: --pinning FOLDER"


@dataclass(frozen=True, kw_only=True)
class PinningFiles:
    """The texts.

    Parameters
    ----------
    config:
        conda_build_config.yaml.
    migrations:
        Texts by file name: those in progress.
    commit:
        Of the repository, or empty where it is not known.
    date, fetched:
        Of the package or commit, and when it came; ISO 8601, or empty.
    package:
        The package's file name, or empty.
    """

    config: str
    migrations: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    date: str = ""
    fetched: str = ""
    package: str = ""


def from_local(path: Path) -> PinningFiles:
    """Return what a file or a folder has; of a file, no migrations.

    Raises
    ------
    AuditError
        There is no such file, or no conda_build_config.yaml in the folder.
    """
    try:
        if not path.is_dir():
            return PinningFiles(config=path.read_text(encoding="utf-8"))
        configs = [file for pattern in _CONFIGS for file in sorted(path.glob(pattern))]
        if not configs:
            raise AuditError(f"{path} has no {_CONFIG}", _REMEDY)
        folders = (path / name for name in _MIGRATIONS)
        migrations = {
            file.name: file.read_text(encoding="utf-8")
            for folder in folders
            for file in sorted(folder.glob("*.y*ml"))
        }
        return PinningFiles(config=configs[0].read_text(encoding="utf-8"), migrations=migrations)
    except (OSError, UnicodeError) as error:
        raise AuditError(f"cannot read {path}: {error}", _REMEDY) from error


def from_network(services: Services) -> PinningFiles:
    """Return what the newest package in the channel has; kept in the cache.

    Raises
    ------
    MegabuildError
        It cannot be had, and nothing is in the cache.
    """

    def make() -> bytes:
        return json.dumps(asdict(_from_package(services))).encode()

    entry = services.cached(_PACKAGE, services.max_age, make)
    return PinningFiles(**{**json.loads(entry.data), "fetched": entry.when})


def _from_package(services: Services) -> PinningFiles:
    url = channel_url(_CHANNEL)
    if unreachable := why_unreachable(url):
        raise NetworkError(f"{_CHANNEL} cannot be used: {redact.text(unreachable)}")
    (package,) = from_channel(url, "noarch", (_PACKAGE,), services)
    if not package.version:
        raise AuditError(f"{_CHANNEL} has no {_PACKAGE}", _REMEDY)
    content = services.client.get(f"{url}/noarch/{package.file}", limit=_LARGEST_ARCHIVE).body
    digest = hashlib.sha256(content).hexdigest()
    if package.sha256 and digest != package.sha256:
        raise AuditError(
            f"{package.file}: sha256 is {digest[:12]}…, the channel says {package.sha256[:12]}…", _REMEDY
        )
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
        path = Path(folder, Path(package.file).name)
        path.write_bytes(content)
        try:
            members, commit = within(services.remaining(), lambda: asyncio.run(_members(path)))
        except Exception as error:  # of rattler's own kinds, and of broken archives
            raise AuditError(f"{package.file} cannot be read: {error}", _REMEDY) from error
    return _files(members, package.file, commit=commit, date=package.date, package=package.file)


async def _members(path: Path) -> tuple[dict[str, bytes], str]:
    archive = await PackageArchive.from_path(path)
    members: dict[str, bytes] = {}
    async for entry in archive.stream("pkg"):
        if entry.is_file and entry.size <= _LARGEST_FILE and _MEMBER.fullmatch(entry.name):
            members[entry.name] = await entry.read()
    about = json.loads(await archive.read_file("info/about.json") or b"{}")
    commit = about.get("extra", {}).get("sha", "") if isinstance(about, dict) else ""
    return members, commit if re.fullmatch("[0-9a-f]{40}", str(commit)) else ""


def _files(
    members: Mapping[str, bytes], where: str, *, commit: str, date: str, package: str = ""
) -> PinningFiles:
    configs, migrations = [], {}
    for name, content in sorted(members.items(), key=lambda item: item[0].count("/")):
        match = _MEMBER.fullmatch(name)
        assert match is not None
        if match["config"]:
            configs.append(content.decode("utf-8", errors="replace"))
        else:
            migrations[match["migration"]] = content.decode("utf-8", errors="replace")
    if not configs:
        raise AuditError(f"{where} holds no {_CONFIG}", _REMEDY)
    return PinningFiles(
        config=configs[0],
        migrations=dict(sorted(migrations.items())),
        commit=commit,
        date=date,
        package=package,
    )
