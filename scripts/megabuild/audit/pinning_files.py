"""The files of conda-forge-pinning: from a folder, or from its newest package."""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from rattler.package_streaming import PackageArchive

from megabuild.audit.channel_records import CONDA_FORGE, from_channel
from megabuild.audit.request import Services
from megabuild.errors import AuditError
from megabuild.network.client import within

REPOSITORY = "https://github.com/conda-forge/conda-forge-pinning-feedstock"
CONFIG = "conda_build_config.yaml"
_PACKAGE = "conda-forge-pinning"
_LARGEST_FILE, _LARGEST_ARCHIVE = 4 << 20, 32 << 20  # bytes
#: As the files lie in the package, in the repository, in a checkout of it, or beside each other.
_MEMBER = re.compile(
    r"(?:.*/)?(?:[\w.-]*(?P<config>conda_build_config\.yaml)"
    r"|(?:conda-forge-)?migrations/(?P<migration>[^/]+\.ya?ml))"
)
_REMEDY = "name a folder with conda_build_config.yaml and migrations: --pinning FOLDER"


class PinningFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The texts, those of migrations in progress by file name, and where they are from.

    Parameters
    ----------
    commit:
        Of the repository, or empty where it is not known.
    fetched:
        When it came; ISO 8601, or empty.
    package:
        The package's file name, or empty.
    """

    config: str
    migrations: Mapping[str, str]
    commit: str = ""
    fetched: str = ""
    package: str = ""


def from_local(path: Path) -> PinningFiles:
    """Return what a file or a folder has; of a file, no migrations. Raises AuditError where there is nothing."""
    try:
        if not path.is_dir():
            return PinningFiles(config=path.read_text(encoding="utf-8"), migrations={})
        members = {
            name: file.read_bytes()
            for file in path.rglob("*.y*ml")
            if _MEMBER.fullmatch(name := file.relative_to(path).as_posix())
        }
    except (OSError, UnicodeError) as error:
        raise AuditError(f"cannot read {path}: {error}", _REMEDY) from error
    return _files(members, str(path))


def from_network(services: Services) -> PinningFiles:
    """Return what the newest package in the channel has; kept in the cache.

    Raises
    ------
    MegabuildError
        It cannot be had, and nothing is in the cache.
    """
    entry = services.cached(_PACKAGE, services.max_age, lambda: msgspec.json.encode(_from_package(services)))
    return msgspec.structs.replace(msgspec.json.decode(entry.data, type=PinningFiles), fetched=entry.when)


def _from_package(services: Services) -> PinningFiles:
    url, found = from_channel("noarch", (_PACKAGE,), services)
    if not found:
        raise AuditError(f"{CONDA_FORGE} has no {_PACKAGE}", _REMEDY)
    name, said = found[0].file, found[0].sha256
    content = services.client.get(f"{url}/noarch/{name}", limit=_LARGEST_ARCHIVE).body
    digest = hashlib.sha256(content).hexdigest()
    if said not in ("", digest):
        raise AuditError(f"{name}: sha256 is {digest[:12]}…, the channel says {said[:12]}…", _REMEDY)
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
        path = Path(folder, Path(name).name)
        path.write_bytes(content)
        try:
            members, commit = within(services.remaining(), lambda: asyncio.run(_members(path)))
        except Exception as error:  # of rattler's own kinds, and of broken archives
            raise AuditError(f"{name} cannot be read: {error}", _REMEDY) from error
    return msgspec.structs.replace(_files(members, name), commit=commit, package=name)


async def _members(path: Path) -> tuple[dict[str, bytes], str]:
    archive = await PackageArchive.from_path(path)
    members: dict[str, bytes] = {}
    async for entry in archive.stream("pkg"):
        if entry.is_file and entry.size <= _LARGEST_FILE and _MEMBER.fullmatch(entry.name):
            members[entry.name] = await entry.read()
    about = msgspec.json.decode(await archive.read_file("info/about.json") or b"{}")
    commit = about.get("extra", {}).get("sha", "") if isinstance(about, dict) else ""
    return members, commit if re.fullmatch("[0-9a-f]{40}", str(commit)) else ""


def _files(members: Mapping[str, bytes], where: str) -> PinningFiles:
    configs, migrations = [], {}
    for name, content in sorted(members.items(), key=lambda item: (item[0].count("/"), item[0])):
        text = content.decode("utf-8", errors="replace")
        match = _MEMBER.fullmatch(name)
        if match and match["migration"]:
            migrations[match["migration"]] = text
        else:
            configs.append(text)
    if not configs:
        raise AuditError(f"{where} has no {CONFIG}", _REMEDY)
    return PinningFiles(config=configs[0], migrations=dict(sorted(migrations.items())))
