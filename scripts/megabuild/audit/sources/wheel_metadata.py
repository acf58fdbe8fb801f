"""Requires-Dist of upstream's released wheels: from the metadata beside them, or their own end; or of a local wheel.

Of a version's many wheels one is read per platform: the one for CPython 3.12, else for the CPython next to it. Where
platforms do not agree on a requirement, the fact names those that have it. Extensions are looked for on PyG's
own index.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import zipfile
import zlib
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import msgspec
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from megabuild.audit.facts import Holds, Outcome, Requirement, Where
from megabuild.audit.request import Request, Services
from megabuild.errors import AuditError, MegabuildError
from megabuild.extensions.index import INDEX
from megabuild.network import redact
from megabuild.network.client import Answer, Client
from megabuild.network.index import HEADERS, Configured, File, configured, local_path, offered, parsed
from megabuild.network.parts import PartialFile

SOURCE = "wheel_metadata"
ANY = "*"  #: the value where upstream names no version
_LARGEST = 4 << 20  # bytes of metadata
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_PYTHON = 12  # CPython 3.x whose wheel is read
#: conda's platforms by the end of a wheel's platform tag, in the order in which they are read; musllinux has none.
_PLATFORMS = {
    "linux-64": r"(many)?linux.*_x86_64",
    "linux-aarch64": r"(many)?linux.*_aarch64",
    "osx-arm64": r"macosx_.*_(arm64|universal2)",
    "osx-64": r"macosx_.*_x86_64",
    "win-64": r"win_amd64",
    "noarch": r"any",
}


@dataclass(frozen=True, kw_only=True)
class _Metadata:
    """What a METADATA says: requirements with their lines, and where that is."""

    platform: str
    requirements: tuple[tuple[int, str], ...]
    where: Where


def read(request: Request) -> Outcome:
    """Return every Requires-Dist of the target's wheels, one fact each."""
    troubles: Sequence[str] = ()
    try:
        if request.local.wheel is not None:
            found: Sequence[_Metadata] = [_local(request.local.wheel, request)]
        else:
            found, troubles = _from_index(request)
    except MegabuildError as error:
        return Outcome(source=SOURCE, trouble=error.message)
    return Outcome(source=SOURCE, facts=_facts(found), trouble="; ".join(troubles))


def newest_version(wheel: str, index: str, torch: str, services: Services) -> str:
    """Return the newest version that an index has of a distribution.

    Parameters
    ----------
    wheel, index:
        As in packages.yaml.
    torch:
        The PyTorch that extensions are looked for beside.

    Raises
    ------
    MegabuildError
        No index answers, or none has it.
    """
    return str(_newest(_offered(wheel, index, torch, services)[0]))


def _offered(
    wheel: str, index: str, torch: str, services: Services
) -> tuple[list[File], tuple[str, ...], Client]:
    """Return the wheels of a package on the indexes where it is looked for, and the way to them; pages are cached."""
    where = Configured(links=(_page(torch),)) if index == "pyg" else configured()
    client = Client(
        seconds=services.remaining(),
        offline=services.offline,
        patience=services.patience,
        certificates=where.certificates,
        proxy=where.proxy,
    )

    def fetch(url: str) -> Answer:
        def make() -> bytes:
            answer = client.get(url, headers=HEADERS)
            # credentials in the address are not kept on disk
            kept = {"url": redact.address(answer.url), "page": answer.body.decode("utf-8", errors="replace")}
            return msgspec.json.encode(kept)

        kept = msgspec.json.decode(
            services.cached(f"index page {redact.address(url)}", services.max_age, make).data
        )
        return Answer(url=kept["url"], body=kept["page"].encode())

    services.report(SOURCE, f"looking for wheels of {wheel}")
    files, troubles = offered(wheel, where, fetch)
    return [file for file in files if file.tags], troubles, client


def _page(torch: str) -> str:
    return f"{INDEX}/torch-{torch}%2Bcpu.html"


def _torch(request: Request) -> str:
    return next((config.torch_version for config in request.configs), "")


def _newest(files: Sequence[File]) -> Version:
    """Return the newest version that is neither a pre-release nor yanked, or the newest at all if there is none."""
    if not files:
        raise AuditError("no index has a wheel of it", "check pip's configuration (pip config list)")
    good = [one for one in files if not one.version.is_prerelease and not one.yanked]
    return Version(max(one.version for one in good or files).public)


def _from_index(request: Request) -> tuple[tuple[_Metadata, ...], tuple[str, ...]]:
    target, services = request.target, request.services
    files, troubles, client = _offered(target.wheel, target.index, _torch(request), services)
    try:
        version = Version(target.version)
    except InvalidVersion as error:
        raise AuditError(
            f"'{target.version}' is no version that a wheel can have", "check --version"
        ) from error
    fitting = [file for file in files if Version(file.version.public) == version]
    if not fitting:
        raise AuditError(
            f"there is no wheel of version {version}; the newest is {_newest(files)}", "check the version"
        )
    chosen = _one_per_platform(fitting, {config.platform for config in request.configs})

    def one(item: tuple[str, File]) -> _Metadata | MegabuildError:
        try:
            return _remote(*item, request, client)
        except MegabuildError as error:
            return error

    with ThreadPoolExecutor(max_workers=4) as pool:
        results = list(pool.map(one, chosen.items()))
    reasons: dict[str, list[str]] = {}
    for platform, result in zip(chosen, results, strict=True):
        if isinstance(result, MegabuildError):
            reasons.setdefault(result.message, []).append(platform)
    failed = (f"{', '.join(platforms)}: {reason}" for reason, platforms in reasons.items())
    return tuple(result for result in results if isinstance(result, _Metadata)), (*troubles, *failed)


def _one_per_platform(files: Sequence[File], platforms: Collection[str]) -> dict[str, File]:
    """Return for each platform the wheel to read: without a local version where there is one, for CPython 3.12 or next.

    Parameters
    ----------
    platforms:
        conda's names; wheels for others count only if none is for these. Empty for all.
    """

    def distance(file: File) -> int:
        minors = [
            (int(tag.interpreter[3:]), tag) for tag in file.tags if re.fullmatch(r"cp3\d+", tag.interpreter)
        ]
        near = (2 * abs(n - _PYTHON) + (n > _PYTHON) + 1000 * tag.abi.endswith("t") for n, tag in minors)
        return min(near, default=0)

    ordered = sorted(files, key=lambda file: (file.version.local or "", distance(file), file.name))
    found: dict[str, File] = {}
    for platform, pattern in _PLATFORMS.items():
        for file in ordered:
            if any(_is_for(tag, pattern) for tag in file.tags):
                found.setdefault(platform, file)
    wanted = {platform: found[platform] for platform in found if platform in {*platforms, "noarch"}}
    return wanted if platforms and wanted else found


def _is_for(tag: Tag, pattern: str) -> bool:
    return re.fullmatch(pattern, tag.platform) is not None


def _remote(platform: str, file: File, request: Request, client: Client) -> _Metadata:
    pyg = request.target.index == "pyg"

    def make() -> bytes:
        if file.metadata:
            parts = urlsplit(file.url)
            content = client.get(parts._replace(path=f"{parts.path}.metadata").geturl(), limit=_LARGEST).body
            _same(content, file.metadata_sha256, f"{file.name}.metadata")
        else:
            content = _metadata(io.BufferedReader(PartialFile(client, file.url), 1 << 14), file.name)
        _checked(content, file.project, file.version)
        return content

    if urlsplit(file.url).scheme == "file":
        path = local_path(file.url)
        return replace(_local(path, request), platform=platform)
    key = f"wheel metadata {file.name} {file.sha256 or redact.address(file.url)}"
    entry = request.services.cached(key, math.inf, make)
    where = Where(
        file=f"{file.name}/{_inside(file.name)}",
        url=_page(_torch(request)) if pyg else "",
        index="PyG's" if pyg else "pip's",
        package=file.project,
        version=str(file.version),
        fetched=entry.when,
    )
    return _Metadata(platform=platform, requirements=_required(entry.data), where=where)


def _local(path: Path, request: Request) -> _Metadata:
    """Return the metadata of a wheel on this machine, if it is one of the target."""
    known = parsed(path.name)
    if known is None or not known[2]:
        raise AuditError(f"{path.name} is not named like a wheel", "name a file *.whl: --wheel FILE")
    project, version, _ = known
    wanted = canonicalize_name(request.target.wheel or project)
    if project != wanted or version.public != request.target.version:
        raise AuditError(
            f"{path.name} is not a wheel of {wanted} {request.target.version}",
            "name the right one: --wheel FILE",
        )
    try:
        with path.open("rb") as stream:
            content = _metadata(stream, str(path))
    except OSError as error:
        raise AuditError(
            f"cannot read {path}: {error.strerror or error}", "check the file named by --wheel"
        ) from error
    _checked(content, project, version)
    where = Where(file=f"{path.name}/{_inside(path.name)}", package=project, version=str(version))
    return _Metadata(platform="", requirements=_required(content), where=where)


def _inside(wheel: str) -> str:
    return f"{'-'.join(wheel.split('-')[:2])}.dist-info/METADATA"


def _metadata(file: IO[bytes], name: str) -> bytes:
    """Return the METADATA of a wheel."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if _METADATA.fullmatch(member.filename)]
            if len(members) != 1 or members[0].file_size > _LARGEST:
                raise ValueError("it has no METADATA, several, or an unreasonably long one")
            return archive.read(members[0])
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise AuditError(f"{name} is no wheel, or a broken one: {error}", "check the wheel") from error


def _same(content: bytes, sha256: str, name: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if sha256 and found != sha256:
        raise AuditError(
            f"{name}: sha256 is {found[:12]}…, the index says {sha256[:12]}…",
            "the index or a proxy in between is at fault",
        )


def _checked(content: bytes, project: str, version: Version) -> None:
    raw, _ = parse_email(content)
    try:
        fits = (
            canonicalize_name(raw.get("name", "")) == project and Version(raw.get("version", "")) == version
        )
    except InvalidVersion:
        fits = False
    if not fits:
        raise AuditError(
            f"what came is not the metadata of {project} {version}", "the index or a proxy is at fault"
        )


def _required(content: bytes) -> tuple[tuple[int, str], ...]:
    """Return the requirements in the head of a METADATA, with their lines."""
    found = []
    for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), start=1):
        if not line.strip():
            break  # the description follows
        key, _, value = line.partition(":")
        if key.lower() == "requires-dist":
            found.append((number, value.strip()))
    return tuple(found)


def _facts(found: Sequence[_Metadata]) -> tuple[Requirement, ...]:
    """Return one fact for each requirement, wherever it stands, in the order of the first wheel."""
    places: dict[str, list[tuple[_Metadata, int]]] = {}
    for metadata in found:
        for line, requirement in metadata.requirements:
            places.setdefault(requirement, []).append((metadata, line))
    facts = []
    for requirement, having in places.items():
        platforms = tuple(dict.fromkeys(metadata.platform for metadata, _ in having))
        where = msgspec.structs.replace(having[0][0].where, line=having[0][1])
        only = platforms if len(platforms) < len(found) else ()
        facts.append(_fact(requirement, Holds(platforms=only), where))
    return tuple(facts)


def _fact(requirement: str, holds: Holds, where: Where) -> Requirement:
    try:
        parsed = Parsed(requirement)
    except InvalidRequirement:
        return Requirement(
            name=requirement.split()[0].rstrip(";"),
            holds=holds,
            where=where,
            trouble=f"'{requirement}' is no requirement that can be understood",
            requirement=requirement,
        )
    return Requirement(
        name=canonicalize_name(parsed.name),
        value=f"@ {parsed.url}" if parsed.url else str(parsed.specifier) or ANY,
        holds=msgspec.structs.replace(holds, marker=str(parsed.marker or "")),
        where=where,
        requirement=requirement,
    )
