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
from pin_audit.facts import CiPin, Fact, Requirement, SourceOutcome, Where
from pin_audit.gather import gather, sources
from pin_audit.request import AuditRequest
from pin_audit.snapshots import OF_RELEASE
from pin_audit.sources.wheel_metadata import files_of

_GITHUB = "https://api.github.com"
_ASSET = re.compile(r"https://github\.com/([^/]+/[^/]+)/releases/download/([^/]+)/([^/?#]+)")
_MORE = r"[^/]+\.dist-info/WHEEL|torch/version\.py"
_GIT_VERSION = re.compile(r"^git_version\s*=\s*'([0-9a-f]{40})'", re.MULTILINE)
#: Of the wheel that is read; all of a release say the same of what is asked here.
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64", "linux_x86_64", "any")

Kind = TypeVar("Kind", bound=Fact)


@dataclass(frozen=True, kw_only=True)
class Release:
    """One version of a package, as far as it could be read."""

    version: str
    outcomes: tuple[SourceOutcome, ...]  #: of the audit's sources
    unread: Mapping[str, str]  #: by source: why
    wheels: tuple[File, ...]
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

    def complete(self, source: str) -> bool:
        """Whether all was read now that a source has, so that what is not there is known not to be there."""
        outcome = next(one for one in self.outcomes if one.source == source)
        return bool(outcome.facts) and not outcome.trouble and all(not one.trouble for one in outcome.facts)

    @property
    def requires_python(self) -> Said:
        """The Pythons that it is for: ``>=3.11``."""
        found = next((one for one in self.all(Requirement) if one.name == "python"), None)
        return Said(found.value, shown(found.where)) if found else Said("")

    @property
    def pythons(self) -> tuple[str, ...]:
        """The Pythons that its wheels are for: ``3.12``, ``3.14t``."""
        found = (one for one in self.all(CiPin) if one.name == "python" and one.where.package)
        return tuple(python for one in found for python in one.value.split(", "))

    @property
    def cuda(self) -> str:
        """The CUDA version of its wheels: ``13.0``, or an empty string."""
        return cuda_of_wheel(self.all(Requirement))


def read(request: AuditRequest) -> Release:
    """Read a release: what cannot be read now is the snapshot's, if there is one."""
    target = request.target
    snapshot = snapshots.load(target.package, target.version)
    found = gather([request], sources(OF_RELEASE))[target.package]
    outcomes = tuple(snapshots.fill(one, [snapshot]) for one in found)
    unread = {
        one.source: one.trouble for one in outcomes if one.applies and all(fact.trouble for fact in one.facts)
    }
    wheels: tuple[File, ...] = ()
    back_end = commit = Said("")
    try:
        source, head, wheels = _wheel(request) if target.wheel else ("", {}, ())
        for name, text in head.items():
            if name.endswith("/WHEEL"):
                maker = parse_email(text)[1].get("generator", [""])[0]
                back_end = Said(re.split(r"[\s(]", maker.strip(), maxsplit=1)[0], f"WHEEL of {source}")
            elif made_of := _GIT_VERSION.search(text):
                commit = Said(made_of[1], f"torch/version.py of {source}")
    except MegabuildError as error:
        unread = {**unread, "wheel": error.message}
    return Release(
        version=target.version,
        outcomes=outcomes,
        unread=unread,
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
        # a Python index has archives below /packages/ (or the recipe names its base); elsewhere a name proves nothing
        if not project or not re.search(r"/packages/|source_base", url):
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
    if where.package:
        return f"{where.file.rpartition('/')[2]} of {where.package} {where.version}"
    at = f"at {where.commit[:10]}" if where.commit else ""
    return ", ".join(filter(None, (where.file, at, where.inferred))) or where.url


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


def _wheel(request: AuditRequest) -> tuple[str, dict[str, str], tuple[File, ...]]:
    """Return the name of the wheel that is read, what its end says, and all wheels of the release."""
    local, version = request.local.wheel, Version(request.target.version)
    if local is not None:
        return local.name, _texts(_local(local)), ()
    torch = next((config.torch_version for config in request.configs), "")
    every, _, client = files_of(request.target.wheel, request.target.index, torch, request.services)
    files = tuple(one for one in every if one.tags and Version(one.version.public) == version)
    plain = [one for one in files if one.version.local is None] or files
    fitting = best_first(plain, "3.12", _PLATFORMS) or plain
    if not fitting:
        raise AuditError(f"no index has a wheel of {request.target.wheel} {version}", "check the version")
    chosen = fitting[0]

    name = f"{chosen.project} {chosen.version}"
    if urlsplit(chosen.url).scheme == "file":
        return name, _texts(_local(local_path(chosen.url))), files

    def make() -> bytes:
        return msgspec.json.encode(_texts(core_metadata.inside(client, chosen, _MORE)))

    key = f"end of wheel {chosen.name} {chosen.sha256 or redact.address(chosen.url)}"
    head = msgspec.json.decode(request.services.cached(key, math.inf, make).data, type=dict[str, str])
    return name, head, files


def _local(path: Path) -> core_metadata.Directory:
    try:
        return core_metadata.of_file(path, _MORE)
    except (OSError, *core_metadata.BROKEN) as error:
        raise AuditError(f"cannot read {path}: {error}", "check the wheel") from error


def _texts(found: core_metadata.Directory) -> dict[str, str]:
    return {name: content.decode(errors="replace") for name, content in found.more.items()}
