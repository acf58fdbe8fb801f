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
from pin_audit.facts import ANY_VERSION, CiPin, Requirement, Scope, SourceOutcome, Where, resolve_types
from pin_audit.request import AuditRequest, Source
from pin_audit.services import Services

_PYG = "pyg"  # PyG's index in packages.yaml
_FILE = "file"  # the scheme of local addresses
_CPYTHON = re.compile(r"cp3(?P<minor>\d+)\|cp3(?P=minor)(?P<free_threaded>t?)")
_HERE = re.compile(r"(many)?linux.*_x86_64|any")
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


@dataclass(frozen=True, kw_only=True)
class Offers:
    """A package's files on its indexes."""

    files: tuple[File, ...]
    problems: tuple[str, ...]  #: of indexes that did not answer
    client: Client  #: fetches the files

    @property
    def wheels(self) -> list[File]:
        """The files that are wheels, not source archives."""
        return [file for file in self.files if file.tags]


def read(request: AuditRequest) -> SourceOutcome:
    """Return one fact per requirement of the target's wheels, and one with the Pythons that have wheels."""
    target = request.target
    if not target.wheel:
        return SourceOutcome(applies=False)
    offers = offers_of(target.wheel, target.index, _torch(request), request.services)
    version = canonicalize_version(target.version)
    fitting = [file for file in offers.wheels if canonicalize_version(file.version.public) == version]
    if not fitting:
        newest = _newest(offers.wheels)
        reason = f"{target.wheel} {target.version}: no wheel; the newest version is {newest}"
        raise AuditError(reason, "pass a published version: --release X")
    metadata = _metadata(min(fitting, key=_rank), request, offers.client)
    texts = dict.fromkeys(metadata.requirements)
    facts: list[Requirement | CiPin] = [_parse(text, metadata.where) for text in texts]
    pythons = _pythons(fitting)
    if pythons:
        facts.append(CiPin(name="python", what="of the wheels", value=pythons, where=metadata.where))
    return SourceOutcome(facts=tuple(facts), trouble="; ".join(offers.problems))


def newest_version(request: AuditRequest) -> str:
    """Return the newest version of the target's distribution; extensions have an index per PyTorch version.

    Raises MegabuildError: no index answers, or none has the distribution.
    """
    target = request.target
    offers = offers_of(target.wheel, target.index, _torch(request), request.services)
    return str(_newest(offers.wheels))


@resolve_types
class _CachedPage(msgspec.Struct, frozen=True):
    """An index's page in the cache, and its address without credentials."""

    url: str
    page: str


def offers_of(wheel: str, index: str, torch: str, services: Services) -> Offers:
    """Return the files of a package on an index of packages.yaml; PyG's depend on the version of PyTorch."""
    where = Configured(links=(_page(torch),)) if index == _PYG else configured()
    client = Client(
        seconds=services.remaining(),
        offline=services.offline,
        timeouts=services.timeouts,
        trusted=where.certificates,
        proxy=where.proxy,
    )

    def fetch(url: str) -> Answer:
        def make() -> bytes:
            answer = client.page(url)
            text = answer.body.decode("utf-8", errors="replace")
            return msgspec.json.encode(_CachedPage(url=redact.address(answer.url), page=text))

        entry = services.cached(page_key(url), services.max_age, make)
        kept = msgspec.json.decode(entry.data, type=_CachedPage)
        return Answer(url=kept.url, body=kept.page.encode())

    services.report(f"looking for wheels of {wheel}")
    files, problems = offered(wheel, where, fetch)
    return Offers(files=files, problems=problems, client=client)


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
    pythons = set()
    for file in files:
        for tag in file.tags:
            match = _CPYTHON.fullmatch(f"{tag.interpreter}|{tag.abi}")
            if match is not None:
                pythons.add((int(match["minor"]), match["free_threaded"]))
    return ", ".join(f"3.{minor}{suffix}" for minor, suffix in sorted(pythons))


def _rank(file: File) -> tuple[str, bool, int, str]:
    """Return the sort key of a wheel: the first one is read."""
    abis = [_ABIS.index(tag.abi) for tag in file.tags if tag.abi in _ABIS]
    here = any(_HERE.fullmatch(tag.platform) for tag in file.tags)
    return (file.version.local or "", not here, min(abis, default=len(_ABIS)), file.name)


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """The requirements in a wheel's METADATA, with Requires-Python, and their location."""

    requirements: Sequence[str]
    where: Where


def _metadata(file: File, request: AuditRequest, client: Client) -> Metadata:
    """Read a wheel on an index, or on this machine."""
    folder = "-".join(file.name.split("-")[:2])
    where = Where(
        file=f"{file.name}/{folder}.dist-info/METADATA", package=file.project, version=str(file.version)
    )
    if urlsplit(file.url).scheme == _FILE:
        path = local_path(file.url)
        try:
            content = read_local(path).metadata.encode()
            return Metadata(requirements=_required(content, file), where=where)
        except (OSError, *BROKEN) as error:
            raise AuditError(f"{path}: not a readable wheel: {error}", "download the wheel again") from error

    def make() -> bytes:
        content = _download(file, client)
        _required(content, file)  # the cache must not keep a wrong answer
        return content

    entry = request.services.cached(metadata_key(file), math.inf, make)
    where = msgspec.structs.replace(where, index="pip's", fetched=entry.when)
    if request.target.index == _PYG:
        where = msgspec.structs.replace(where, index="PyG's", url=_page(_torch(request)))
    return Metadata(requirements=_required(entry.data, file), where=where)


def _download(file: File, client: Client) -> bytes:
    if file.metadata:  # the index offers METADATA as a file of its own (PEP 658)
        return metadata_beside(client, file)
    return read_remote(client, file).metadata.encode()


def _required(content: bytes, file: File) -> Sequence[str]:
    """Return the requirements in a METADATA; raises AuditError if it is of another version."""
    raw, _ = parse_email(content)
    version = canonicalize_version(raw.get("version", ""))
    if canonicalize_name(raw.get("name", "")) != file.project or version != canonicalize_version(
        file.version
    ):
        reason = f"the index's answer is not the metadata of {file.project} {file.version}"
        raise AuditError(reason, "check the index and the proxy: pip config list")
    required = raw.get("requires_dist", [])
    if raw.get("requires_python"):
        return [f"python {raw['requires_python']}", *required]
    return required


def _parse(text: str, where: Where) -> Requirement:
    try:
        known = Parsed(text)
    except InvalidRequirement:
        trouble = f"'{text}' is not a valid requirement"
        return Requirement(name=text.split()[0].rstrip(";"), where=where, trouble=trouble)
    value = str(known.specifier) or ANY_VERSION
    if known.url:
        value = f"@ {known.url}"
    holds = Scope(marker=str(known.marker or ""))
    return Requirement(name=canonicalize_name(known.name), value=value, holds=holds, where=where)


SOURCES = {"wheel_metadata": Source(read=read)}
