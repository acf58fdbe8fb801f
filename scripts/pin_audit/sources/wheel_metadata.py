"""Requires-Dist and Requires-Python of upstream's wheels, from the index's metadata file or the end of the wheel.

The audit reads one wheel of a version, preferably without a local version, for linux-64 and CPython 3.12: markers say
what other platforms require. Extensions are on PyG's own index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import Version

from groundwork import redact
from groundwork.errors import AuditError
from groundwork.keys import Key
from groundwork.network.client import Answer, Client
from groundwork.network.index import (
    PYG_INDEX,
    Configured,
    File,
    configured,
    local_path,
    offered,
)
from groundwork.network.wheel_contents import BROKEN, metadata_beside, read_local, read_remote
from pin_audit.facts import CiPin, Requirement, Scope, SourceOutcome, Where
from pin_audit.request import AuditRequest, Source
from pin_audit.services import Services

_ABIS = ("cp312", "abi3", "none")  # the ABIs of the wheel that is read


@dataclass(frozen=True, kw_only=True)
class IndexPage(Key):
    """A cached page of an index."""

    url: str  #: without credentials


@dataclass(frozen=True, kw_only=True)
class WheelMetadata(Key):
    """The cached METADATA of a wheel."""

    file_name: str
    content: str  #: the wheel's sha256, or its address if the index lists none


def page_key(url: str) -> IndexPage:
    """Return the key of a cached page."""
    return IndexPage(url=redact.address(url))


def metadata_key(file: File) -> WheelMetadata:
    """Return the key of a wheel's cached METADATA."""
    return WheelMetadata(file_name=file.name, content=file.sha256 or redact.address(file.url))


def read(request: AuditRequest) -> SourceOutcome:
    """Return one fact per requirement of the target's wheels, and one with the Pythons that have wheels."""
    target, services = request.target, request.services
    if not target.wheel:
        return SourceOutcome(applies=False)
    files, problems, client = files_of(target.wheel, target.index, _torch(request), services)
    wheels = [file for file in files if file.tags]
    version = canonicalize_version(target.version)
    fitting = [file for file in wheels if canonicalize_version(file.version.public) == version]
    if not fitting:
        reason = f"{target.wheel} {target.version}: no wheel; the newest version is {_newest(wheels)}"
        raise AuditError(reason, "pass a published version: --release X")
    requirements, where = _metadata(min(fitting, key=_rank), request, client)
    facts: list[Requirement | CiPin] = [_parse(text, where) for text in dict.fromkeys(requirements)]
    if pythons := _pythons(fitting):
        facts.append(CiPin(name="python", what="of the wheels", value=pythons, where=where))
    return SourceOutcome(facts=tuple(facts), trouble="; ".join(problems))


def newest_version(request: AuditRequest) -> str:
    """Return the newest version of the target's distribution; extensions have an index per PyTorch version.

    Raises MegabuildError: no index answers, or none has the distribution.
    """
    files, _, _ = files_of(request.target.wheel, request.target.index, _torch(request), request.services)
    return str(_newest([file for file in files if file.tags]))


def files_of(
    wheel: str, index: str, torch: str, services: Services
) -> tuple[tuple[File, ...], tuple[str, ...], Client]:
    """Return a package's wheels and source archives, the problems of its indexes, and a client to fetch the files."""
    where = Configured(links=(_page(torch),)) if index == "pyg" else configured()
    client = Client(
        seconds=services.remaining(), offline=services.offline, timeouts=services.timeouts,
        trusted=where.certificates, proxy=where.proxy,
    )  # fmt: skip

    def fetch(url: str) -> Answer:
        def make() -> bytes:
            answer = client.page(url)
            # credentials in the address are not kept on disk
            kept = {"url": redact.address(answer.url), "page": answer.body.decode("utf-8", errors="replace")}
            return msgspec.json.encode(kept)

        entry = services.cached(page_key(url), services.max_age, make)
        kept = msgspec.json.decode(entry.data)
        return Answer(url=kept["url"], body=kept["page"].encode())

    services.report(f"looking for wheels of {wheel}")
    return *offered(wheel, where, fetch), client


def _page(torch: str) -> str:
    return f"{PYG_INDEX}/torch-{torch}%2Bcpu.html"


def _torch(request: AuditRequest) -> str:
    return next((config.torch_version for config in request.configs), "")


def _newest(files: Sequence[File]) -> Version:
    """Return the newest version that is neither a pre-release nor yanked, else the newest of all."""
    if not files:
        raise AuditError("no index has a wheel of the package", "check the indexes: pip config list")
    good = [file for file in files if not file.version.is_prerelease and not file.yanked]
    return Version(max(file.version for file in good or files).public)


def _pythons(files: Sequence[File]) -> str:
    """Return the wheels' Pythons, the oldest first: ``3.13, 3.14, 3.14t``; empty for abi3."""
    tags = {(tag.interpreter, tag.abi) for file in files for tag in file.tags}
    matches = (re.fullmatch(r"cp3(\d+)\|cp3\1(t?)", f"{interpreter}|{abi}") for interpreter, abi in tags)
    pythons = sorted((int(match[1]), match[2]) for match in matches if match)
    return ", ".join(f"3.{minor}{free}" for minor, free in pythons)


def _rank(file: File) -> tuple[str, bool, int, str]:
    """Return the sort key of a wheel: the first one is read."""
    abis = [_ABIS.index(tag.abi) for tag in file.tags if tag.abi in _ABIS]
    elsewhere = not any(re.fullmatch(r"(many)?linux.*_x86_64|any", tag.platform) for tag in file.tags)
    return file.version.local or "", elsewhere, min(abis, default=len(_ABIS)), file.name


def _metadata(file: File, request: AuditRequest, client: Client) -> tuple[Sequence[str], Where]:
    """Return the requirements of a wheel on an index, or on this machine, and their location."""

    def make() -> bytes:
        has_file = file.metadata  # the index offers METADATA as a file of its own (PEP 658)
        content = metadata_beside(client, file) if has_file else read_remote(client, file).metadata.encode()
        _required(content, file.project, file.version)  # the cache must not keep a wrong answer
        return content

    member = f"{file.name}/{'-'.join(file.name.split('-')[:2])}.dist-info/METADATA"
    where = Where(file=member, package=file.project, version=str(file.version))
    if urlsplit(file.url).scheme == "file":
        path = local_path(file.url)
        try:
            return _required(read_local(path).metadata.encode(), file.project, file.version), where
        except (OSError, *BROKEN) as error:
            raise AuditError(f"{path}: not a readable wheel: {error}", "download the wheel again") from error
    entry = request.services.cached(metadata_key(file), math.inf, make)
    pyg = request.target.index == "pyg"
    url, index = (_page(_torch(request)), "PyG's") if pyg else ("", "pip's")
    where = msgspec.structs.replace(where, url=url, index=index, fetched=entry.when)
    return _required(entry.data, file.project, file.version), where


def _required(content: bytes, project: str, version: Version) -> Sequence[str]:
    """Return the requirements in a METADATA, with Requires-Python; raises AuditError if it is of another version."""
    raw, _ = parse_email(content)
    named = canonicalize_name(raw.get("name", "")), canonicalize_version(raw.get("version", ""))
    if named != (project, canonicalize_version(version)):
        reason = f"the index's answer is not the metadata of {project} {version}"
        raise AuditError(reason, "check the index and the proxy: pip config list")
    python = raw.get("requires_python")
    return [*([f"python {python}"] if python else []), *raw.get("requires_dist", [])]


def _parse(text: str, where: Where) -> Requirement:
    try:
        known = Parsed(text)
    except InvalidRequirement:
        trouble = f"'{text}' is not a valid requirement"
        return Requirement(name=text.split()[0].rstrip(";"), where=where, trouble=trouble)
    value = f"@ {known.url}" if known.url else str(known.specifier) or "*"
    holds = Scope(marker=str(known.marker or ""))
    return Requirement(name=canonicalize_name(known.name), value=value, holds=holds, where=where)


SOURCES = {"wheel_metadata": Source(read=read)}
