"""What a release of a package asks for and is made of: the audit's sources, its wheel's head, its archives' hashes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from packaging.metadata import parse_email
from packaging.version import Version

from groundwork import redact
from groundwork.errors import AuditError, MegabuildError
from groundwork.network import core_metadata
from groundwork.network.index import File, best_first, local_path
from megabuild.configs.tarballs import TARBALLS
from pin_audit import snapshots
from pin_audit.bump.changes import Said
from pin_audit.claims import cuda_of_wheel
from pin_audit.facts import Fact, Requirement, SourceOutcome, Where
from pin_audit.gather import gather, sources
from pin_audit.request import AuditRequest
from pin_audit.snapshots import OF_RELEASE
from pin_audit.sources.wheel_metadata import files_of

_GITHUB = "https://api.github.com"
_ASSET = re.compile(r"https://github\.com/([^/]+/[^/]+)/releases/download/([^/]+)/([^/?#]+)")
_MORE = r"[^/]+\.dist-info/WHEEL|torch/version\.py"
_GIT_VERSION = re.compile(r"^git_version\s*=\s*'([0-9a-f]{40})'", re.MULTILINE)
_CPYTHON = re.compile(r"cp(\d)(\d+)(t?)")
#: Of the wheel that is read; all of a release say the same of what is asked here.
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64", "linux_x86_64", "any")

Kind = TypeVar("Kind", bound=Fact)


@dataclass(frozen=True, kw_only=True)
class Release:
    """One version of a package, as far as it could be read."""

    version: str
    outcomes: tuple[SourceOutcome, ...]  #: of the audit's sources
    unread: Mapping[str, str]  #: by source: why
    requires_python: Said
    wheels: tuple[File, ...] = ()
    back_end: Said  #: what made the wheel: ``scikit-build-core``
    commit: Said

    def all(self, kind: type[Kind]) -> list[Kind]:
        """Return the facts of a kind that have a value."""
        return [
            one
            for outcome in self.outcomes
            for one in outcome.facts
            if isinstance(one, kind) and not one.trouble
        ]

    @property
    def pythons(self) -> tuple[str, ...]:
        """The Pythons that its wheels are for: ``3.12``, ``3.14t``."""
        abis = (_CPYTHON.fullmatch(tag.abi) for wheel in self.wheels for tag in wheel.tags)
        found = {(int(one[1]), int(one[2]), one[3]) for one in abis if one}
        return tuple(f"{major}.{minor}{free}" for major, minor, free in sorted(found))

    @property
    def cuda(self) -> str:
        """The CUDA version of its wheels: ``13.0``, or an empty string."""
        return cuda_of_wheel(self.all(Requirement))


class _Head(msgspec.Struct):
    """What the end of a wheel says."""

    metadata: str
    more: dict[str, str]


def read(request: AuditRequest) -> Release:
    """Read a release: what cannot be read now is the snapshot's, if there is one."""
    target = request.target
    snapshot = snapshots.load(target.package, target.version)
    found = gather([request], sources(OF_RELEASE))[target.package]
    outcomes = tuple(snapshots.fill(one, [snapshot]) for one in found)
    unread = {
        one.source: one.trouble for one in outcomes if one.applies and all(fact.trouble for fact in one.facts)
    }
    stated = [one for one in outcomes if one.source == "wheel_metadata"]
    python = next((fact for one in stated for fact in one.facts if fact.name == "python"), None)
    known = Said(python.value, shown(python.where)) if python else Said("")
    wheels: tuple[File, ...] = ()
    back_end = commit = Said("")
    try:
        source, head, wheels = _wheel(request)
        known = Said(parse_email(head.metadata)[0].get("requires_python", ""), f"{source}, METADATA")
        for name, text in head.more.items():
            if name.endswith("/WHEEL"):
                maker = parse_email(text)[1].get("generator", [""])[0]
                back_end = Said(re.split(r"[\s(]", maker.strip(), maxsplit=1)[0], f"{source}, WHEEL")
            elif made_of := _GIT_VERSION.search(text):
                commit = Said(made_of[1], f"{source}, torch/version.py")
    except MegabuildError as error:
        unread = {**unread, "wheel": error.message}
    return Release(
        version=target.version,
        outcomes=outcomes,
        unread=unread,
        requires_python=known,
        wheels=wheels,
        back_end=back_end,
        commit=commit,
    )


def sha256_of(urls: Sequence[str], request: AuditRequest) -> Said:
    """Return the sha256 that somebody published for a source archive, or why none is known; nothing is downloaded."""
    version = request.target.version
    for url in urls:
        if asset := _ASSET.fullmatch(url):
            known = TARBALLS.get(version)
            if known and asset[1] == "pytorch/pytorch" and asset[3] == f"pytorch-v{version}.tar.gz":
                return Said(known.sha256, known.source)
            return _of_asset(asset, request)
    reasons = []
    for url in urls:
        name = urlsplit(url).path.rpartition("/")[2]
        project = name.rpartition(f"-{version}")[0]
        if not project or not re.search(r"pypi|pythonhosted|source_base", url):
            continue
        try:
            for file in files_of(project, "pip", "", request.services)[0]:
                if file.name.lower() == name.lower() and file.sha256:
                    return Said(file.sha256, f"{file.name} on pip's index")
            reasons.append(f"pip's index has no {name}")
        except MegabuildError as error:
            reasons.append(error.message)
    return Said("", "; ".join(dict.fromkeys(reasons)) or "nobody is known to publish one")


def shown(where: Where) -> str:
    """Return where a fact was read, in a few words."""
    parts = [where.file.rpartition("/")[2] if where.package else where.file]
    if where.package and where.file:
        parts.insert(0, where.file.partition("/")[0])
    elif where.commit:
        parts.append(f"at {where.commit[:10]}")
    return ", ".join(filter(None, [*parts, where.inferred])) or where.url


def _of_asset(asset: re.Match[str], request: AuditRequest) -> Said:
    """Ask GitHub, which computes a digest of what is uploaded to a release."""
    services = request.services
    url = f"{_GITHUB}/repos/{asset[1]}/releases/tags/{asset[2]}"
    try:
        entry = services.cached(f"release {url}", services.max_age, lambda: services.client.get(url).body)
        named = msgspec.json.decode(entry.data)["assets"]
        digest = next((one["digest"] for one in named if one["name"] == asset[3]), None)
    except MegabuildError as error:
        return Said("", error.message)
    except (msgspec.MsgspecError, KeyError, TypeError):
        return Said("", f"{url} is not the list of a release's files")
    if isinstance(digest, str) and re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        return Said(digest.removeprefix("sha256:"), f"GitHub's digest of {asset[3]}")
    return Said("", f"GitHub names no digest of {asset[3]}")


def _wheel(request: AuditRequest) -> tuple[str, _Head, tuple[File, ...]]:
    """Return the name of the wheel that is read, what its end says, and all wheels of the release."""
    local, version = request.local.wheel, Version(request.target.version)
    if local is not None:
        found = _local(local)
        head = _Head(found.content.decode(errors="replace"), _texts(found.more))
        return local.name, head, ()
    torch = next((config.torch_version for config in request.configs), "")
    every, _, client = files_of(request.target.wheel, request.target.index, torch, request.services)
    files = tuple(one for one in every if one.tags and Version(one.version.public) == version)
    plain = [one for one in files if one.version.local is None] or files
    fitting = best_first(plain, "3.12", _PLATFORMS) or plain
    if not fitting:
        raise AuditError(f"no index has a wheel of {request.target.wheel} {version}", "check the version")
    chosen = fitting[0]

    def make() -> bytes:
        if urlsplit(chosen.url).scheme == "file":
            found = _local(local_path(chosen.url))
        else:
            found = core_metadata.inside(client, chosen, _MORE)
        return msgspec.json.encode(_Head(found.content.decode(errors="replace"), _texts(found.more)))

    key = f"wheel head {chosen.name} {chosen.sha256 or redact.address(chosen.url)}"
    head = msgspec.json.decode(request.services.cached(key, math.inf, make).data, type=_Head)
    return chosen.name, head, files


def _local(path: Path) -> core_metadata.Directory:
    try:
        return core_metadata.of_file(path, _MORE)
    except (OSError, *core_metadata.BROKEN) as error:
        raise AuditError(f"cannot read {path}: {error}", "check the wheel") from error


def _texts(more: Mapping[str, bytes]) -> dict[str, str]:
    return {name: content.decode(errors="replace") for name, content in more.items()}
