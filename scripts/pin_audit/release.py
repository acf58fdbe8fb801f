"""One release of a package: the facts of its sources and wheel, and the published sha256 of its archive."""

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
from pin_audit.run_sources import READERS, gather
from pin_audit.sources.wheel_metadata import files_of

_ASSET = re.compile(r"https://github\.com/([^/]+/[^/]+)/releases/download/([^/]+)/([^/?#]+)")

Kind = TypeVar("Kind", bound=Fact)


class SourcedValue(NamedTuple):
    """A value and its source; if the value is empty, the source has the reason."""

    value: str
    source: str = ""


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
    def unread(self) -> list[str]:
        """The sources that could not be read, or were replaced by a snapshot, with the reason."""
        troubled = [outcome for outcome in self.outcomes if outcome.applies and outcome.trouble]
        return [f"{outcome.source} of {self.version}: {outcome.trouble}" for outcome in troubled]

    @property
    def commit(self) -> str:
        """The commit of its tag, or an empty string."""
        return next((fact.value for fact in self.all(TagCommit)), "")

    @property
    def requires_python(self) -> SourcedValue:
        """The wheel's Requires-Python: ``>=3.11``."""
        facts = (fact for fact in self.all(Requirement) if fact.name == "python")
        return next((SourcedValue(fact.value, place_of(fact.where)) for fact in facts), SourcedValue(""))


def read(requests: Sequence[AuditRequest]) -> list[Release]:
    """Read releases; the snapshot of one, if there is one, replaces sources that cannot be read."""
    releases = []
    readers = {name: READERS[name] for name in snapshots.OF_RELEASE}
    for request, outcomes in zip(requests, gather(requests, readers), strict=True):
        snapshot = snapshots.load(request.target.package, request.target.version)
        filled = tuple(snapshots.fill(outcome, [snapshot]) for outcome in outcomes)
        releases.append(Release(version=request.target.version, outcomes=filled))
    return releases


def place_of(where: Where) -> str:
    """Describe in a few words where a fact was read."""
    if where.package:
        return f"{where.file.rpartition('/')[2]} of {where.package} {where.version}"
    at = f"at {where.commit[:10]}" if where.commit else ""
    return ", ".join(filter(None, (where.file, at, where.inferred))) or where.url


def find_sha256(urls: Sequence[str], request: AuditRequest) -> SourcedValue:
    """Return the published sha256 of a source archive, or why none is known; does not download the archive."""
    version, services = request.target.version, request.services
    tarball, reason = TARBALLS.get(version), "no source publishes it"
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
            # a Python index has its archives below /packages/, or the recipe names the index's base
            elif project and re.search(r"/packages/|source_base", url):
                for file in files_of(project, "pip", "", services)[0]:
                    if file.name.lower() == name.lower() and file.sha256:
                        return SourcedValue(file.sha256, f"{file.name} on pip's index")
        except MegabuildError as error:
            reason = error.message
        except (msgspec.MsgspecError, KeyError, TypeError):
            reason = "api.github.com: the answer does not list the release's files"
    return SourcedValue("", reason)
