"""Both releases of a bump, the lines that may have to change, and a change of one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from groundwork.errors import MegabuildError
from megabuild.configs.overrides import TARBALLS
from pin_audit import snapshots
from pin_audit.facts import Fact, Newest, Requirement, SourceOutcome, TagCommit, Where
from pin_audit.recipe_lines import Line
from pin_audit.request import AuditRequest
from pin_audit.rows import cuda_of_wheel
from pin_audit.run_sources import OF_RELEASE, READERS, gather
from pin_audit.sources.wheel_metadata import files_of

CERTAIN, PERSON = "certain", "for a person"
_ASSET = re.compile(r"https://github\.com/([^/]+/[^/]+)/releases/download/([^/]+)/([^/?#]+)")
VARIABLE = re.compile(r"\$?\{\{\s*(\w+)\s*\}\}")
Kind = TypeVar("Kind", bound=Fact)


@dataclass(frozen=True, kw_only=True)
class Release:
    """One version of a package, with the outcome of every source."""

    version: str
    outcomes: tuple[SourceOutcome, ...]

    def all(self, kind: type[Kind]) -> list[Kind]:
        """Return the facts of a kind that have a value."""
        facts = (fact for outcome in self.outcomes for fact in outcome.facts if not fact.trouble)
        return [fact for fact in facts if isinstance(fact, kind)]

    @property
    def commit(self) -> str:
        """The commit of its tag, or an empty string."""
        return next((fact.value for fact in self.all(TagCommit)), "")


def read_releases(requests: Sequence[AuditRequest]) -> list[Release]:
    """Read releases; the snapshot of one, if there is one, replaces sources that cannot be read."""
    releases = []
    readers = {name: READERS[name] for name in OF_RELEASE}
    for request, outcomes in zip(requests, gather(requests, readers), strict=True):
        snapshot = snapshots.load(request.target.package, request.target.version)
        filled = tuple(snapshots.fill(outcome, [snapshot]) for outcome in outcomes)
        releases.append(Release(version=request.target.version, outcomes=filled))
    return releases


def read_newest(request: AuditRequest, names: Iterable[str]) -> tuple[Newest, ...]:
    """Read conda-forge's newest versions of packages, or take those of the snapshot."""
    wanted = replace(request, names=tuple(names))
    readers = {"channel": READERS["channel"]}
    ((outcome,),) = gather([wanted], readers)
    filled = snapshots.fill(outcome, [snapshots.load(snapshots.CHANNEL, "")])
    return tuple(fact for fact in filled.facts if isinstance(fact, Newest))


def place_of(where: Where) -> str:
    """Describe in a few words where a fact was read."""
    if where.package:
        return f"{where.file.rpartition('/')[2]} of {where.package} {where.version}"
    return where.file or where.url


@dataclass(frozen=True, kw_only=True)
class Digest:
    """The published sha256 of a source archive."""

    sha256: str = ""  #: empty if none is known
    source: str  #: who publishes it, or why none is known
    is_confirmed: bool = True  #: False if the only source is a copy


def find_sha256(urls: Sequence[str], request: AuditRequest) -> Digest:
    """Return the published sha256 of a source archive."""
    version, services = request.target.version, request.services
    tarball, reason = TARBALLS.get(version), "no source publishes it"
    for url in urls:
        name = urlsplit(url).path.rpartition("/")[2]
        project = name.rpartition(f"-{version}")[0]
        try:
            if asset := _ASSET.fullmatch(url):
                if tarball and asset[1] == "pytorch/pytorch" and name == f"pytorch-v{version}.tar.gz":
                    return Digest(
                        sha256=tarball.sha256, source=tarball.source, is_confirmed=tarball.is_confirmed
                    )
                address = f"https://api.github.com/repos/{asset[1]}/releases/tags/{asset[2]}"
                answer = services.client.get(address).body
                digests = {
                    item["name"]: str(item["digest"]) for item in msgspec.json.decode(answer)["assets"]
                }
                if re.fullmatch(r"sha256:[0-9a-f]{64}", digests.get(asset[3], "")):
                    digest = digests[asset[3]].removeprefix("sha256:")
                    return Digest(sha256=digest, source=f"GitHub's digest of {asset[3]}")
            # a Python index has its archives below /packages/, or the recipe names the index's base
            elif project and re.search(r"/packages/|source_base", url):
                for file in files_of(project, "pip", "", services)[0]:
                    if file.name.lower() == name.lower() and file.sha256:
                        return Digest(sha256=file.sha256, source=f"{file.name} on pip's index")
        except MegabuildError as error:
            reason = error.message
        except (msgspec.MsgspecError, KeyError, TypeError):
            reason = "api.github.com: the answer does not list the release's files"
    return Digest(source=reason)


class Change(Struct, frozen=True):
    """One change for another version."""

    topic: str  #: ``version``, ``sha256``, ``triton``, ...
    kind: str  #: ``certain`` or ``for a person``
    file: str = ""  #: below the repository's root
    line: int | None = None
    old: str = ""
    new: str = ""  #: empty if unknown: the note gives the reason
    source: str = ""  #: where the new value is published
    note: str = ""  #: help for the decision, or the command that generates the file


def change(
    line: Line, topic: str, kind: str, old: str = "", new: str = "", source: str = "", note: str = ""
) -> Change:
    """Return a change of a line, or of its whole file if the line has no number."""
    return Change(topic, kind, line.file, line.number or None, old, new, source, note)


def provider_of(line: Line) -> str:
    """Return the one provider that a line is for, or an empty string."""
    match = re.search(r'provider == "([\w-]+)"', line.selector)
    return match[1] if match else ""


@dataclass(frozen=True, kw_only=True)
class BumpContext:
    """Both releases, and the lines that may have to change."""

    root: Path
    request: AuditRequest  #: of the new release
    old: Release
    new: Release
    recipe: tuple[Line, ...]  #: of the package's recipes, the main one first
    matrix: tuple[Line, ...] = ()
    newest: tuple[Newest, ...] = ()  #: conda-forge's newest versions of exactly required packages
    key: str = ""  #: the key in conda_build_config.yaml with the version; empty for other feedstocks

    def values(self, key: str, value: str) -> list[Line]:
        """Return the lines that set a key to a value, in conda_build_config.yaml or else in the recipe."""
        items = [line for line in self.matrix if (line.key, line.value) == (key, value)]
        word, text = re.escape(key), re.escape(value)
        setting = re.compile(
            rf"""^\s*(?:\{{%-?\s*set\s+)?{word}\s*[:=]\s*["']?{text}["']?\s*(?:-?%\}}|#|$)"""
        )
        return items or [line for line in self.recipe if setting.match(line.text)]

    def definitions(self, line: Line, text: str) -> list[Line]:
        """Return the lines that define a line's value: the line itself, or those that set its variable."""
        if not (variable := VARIABLE.fullmatch(text)):
            return [line]
        setting = re.compile(rf"^\s*{variable[1]}\s*[:=]")
        lines = (*self.matrix, *self.recipe)
        return [other for other in lines if other.key == variable[1] or setting.match(other.text)]

    def set_value(
        self, topic: str, lines: Iterable[Line], old: str, new: str, source: str, *, doubt: str = ""
    ) -> Iterator[Change]:
        """Yield a new value for lines; if it is empty, the source has the reason.

        A person decides on rows of official wheels, and on a value in ``doubt``; Debian's rows do not change.
        """
        for line in lines:
            if provider_of(line) == "debian" or old == new:
                continue
            if not new:
                yield change(line, topic, PERSON, old, note=f"unknown: {source}")
            elif provider_of(line) == "wheel":
                note = f"row of official wheels, whose CUDA is {cuda_of_wheel(self.new.all(Requirement)) or 'unknown'}"
                yield change(line, topic, PERSON, old, new, source, note)
            elif doubt:
                yield change(line, topic, PERSON, old, new, source, doubt)
            else:
                yield change(line, topic, CERTAIN, old, new, source)
