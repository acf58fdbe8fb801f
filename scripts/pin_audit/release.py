"""One release of a package: what its sources, its wheel and the publishers of its archive say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from groundwork.errors import MegabuildError
from megabuild.configs.overrides import TARBALLS
from pin_audit import snapshots
from pin_audit.facts import Fact, Requirement, SourceOutcome, TagCommit, Where
from pin_audit.request import AuditRequest
from pin_audit.run_sources import gather, sources
from pin_audit.sources.wheel_metadata import files_of

_ASSET = re.compile(r"https://github\.com/([^/]+/[^/]+)/releases/download/([^/]+)/([^/?#]+)")

Kind = TypeVar("Kind", bound=Fact)


class SourcedValue(NamedTuple):
    """A value, and who says it; without a value, why it is not known."""

    value: str
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Release:
    """One version of a package, as far as it could be read."""

    version: str
    outcomes: tuple[SourceOutcome, ...]

    def all(self, kind: type[Kind]) -> list[Kind]:
        """Return the facts of a kind that have a value."""
        facts = (fact for outcome in self.outcomes for fact in outcome.facts if not fact.trouble)
        return [fact for fact in facts if isinstance(fact, kind)]

    @property
    def unread(self) -> list[str]:
        """What could not be read, or is a snapshot's."""
        troubled = [outcome for outcome in self.outcomes if outcome.applies and outcome.trouble]
        return [f"{outcome.source} of {self.version}: {outcome.trouble}" for outcome in troubled]

    @property
    def commit(self) -> str:
        """The commit of its tag, or an empty string."""
        return next((fact.value for fact in self.all(TagCommit)), "")

    @property
    def requires_python(self) -> SourcedValue:
        """The Pythons that it is for: ``>=3.11``."""
        facts = (fact for fact in self.all(Requirement) if fact.name == "python")
        return next((SourcedValue(fact.value, place_of(fact.where)) for fact in facts), SourcedValue(""))


def read(request: AuditRequest) -> Release:
    """Read a release: what cannot be read now is the snapshot's, if there is one."""
    target = request.target
    snapshot = snapshots.load(target.package, target.version)
    outcomes = gather([request], sources(snapshots.OF_RELEASE))[target.package]
    filled = tuple(snapshots.fill(outcome, [snapshot]) for outcome in outcomes)
    return Release(version=target.version, outcomes=filled)


def place_of(where: Where) -> str:
    """Return where a fact was read, in a few words."""
    if where.package:
        return f"{where.file.rpartition('/')[2]} of {where.package} {where.version}"
    at = f"at {where.commit[:10]}" if where.commit else ""
    return ", ".join(filter(None, (where.file, at, where.inferred))) or where.url


def find_sha256(urls: Sequence[str], request: AuditRequest) -> SourcedValue:
    """Return the sha256 that somebody published for a source archive, or why none is known; nothing is downloaded."""
    version, services = request.target.version, request.services
    tarball, reason = TARBALLS.get(version), "nobody is known to publish one"
    for url in urls:
        name = urlsplit(url).path.rpartition("/")[2]
        project = name.rpartition(f"-{version}")[0]
        try:
            if asset := _ASSET.fullmatch(url):
                if tarball and asset[1] == "pytorch/pytorch" and name == f"pytorch-v{version}.tar.gz":
                    return SourcedValue(*tarball)
                address = f"https://api.github.com/repos/{asset[1]}/releases/tags/{asset[2]}"
                answer = services.client.get(address).body
                digests = {
                    item["name"]: str(item["digest"]) for item in msgspec.json.decode(answer)["assets"]
                }
                if re.fullmatch(r"sha256:[0-9a-f]{64}", digests.get(asset[3], "")):
                    digest = digests[asset[3]].removeprefix("sha256:")
                    return SourcedValue(digest, f"GitHub's digest of {asset[3]}")
            # a Python index has archives below /packages/ (or the recipe names its base)
            elif project and re.search(r"/packages/|source_base", url):
                for file in files_of(project, "pip", "", services)[0]:
                    if file.name.lower() == name.lower() and file.sha256:
                        return SourcedValue(file.sha256, f"{file.name} on pip's index")
        except MegabuildError as error:
            reason = error.message
        except (msgspec.MsgspecError, KeyError, TypeError):
            reason = "GitHub's answer is not the list of a release's files"
    return SourcedValue("", reason)
