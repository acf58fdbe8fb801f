"""Facts as they are committed: one file per release in ``releases``, and one for conda-forge's channel.

A snapshot is what sources found on some day, in the types in which they return it, so that it can stand in for a source
that cannot be read. Each fact names its file or index, the commit and the day (`Where`); ``inferred`` says why it is
believed where it was not read at the release itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from groundwork import files
from groundwork.errors import AuditError
from pin_audit.facts import MOVING, AnyFact, AuditTarget, SourceOutcome, resolve_types

FOLDER = Path(__file__).with_name("releases")
#: Sources of a release, and those of the channel, which are the same for all releases.
OF_RELEASE = ("submodules", "upstream_commit", "wheel_metadata", "ci_pins", "upstream_archs")
OF_CHANNEL = MOVING
CHANNEL = "conda-forge"
_FORMAT, _VERSION = "megabuild/audit-snapshot", 1


@resolve_types
class Snapshot(Struct, frozen=True, kw_only=True):
    """What was found about one release of a package on some day; without a version: about the channel."""

    package: str
    version: str
    made: str  #: ISO 8601 in UTC
    sources: tuple[SourceOutcome, ...]

    def facts(self, *sources: str) -> tuple[AnyFact, ...]:
        """Return the facts of some sources; of all, if none is named."""
        return tuple(
            fact for one in self.sources if not sources or one.source in sources for fact in one.facts
        )


def place(package: str, version: str, folder: Path = FOLDER) -> Path:
    """Return where the snapshot of a release lies, or will."""
    return folder / (f"{package}-{version}.json" if version else f"{package}.json")


def load(package: str, version: str, folder: Path = FOLDER) -> Snapshot | None:
    """Return the snapshot of a release, or None; without a version, of `CHANNEL`. Raises AuditError if it is broken."""
    if not re.fullmatch(r"[\w.+-]+", f"{package}{version}"):
        return None
    path = place(package, version, folder)
    try:
        head = msgspec.json.decode(path.read_bytes())
        if (head.pop("format"), head.pop("format_version")) != (_FORMAT, _VERSION):
            raise ValueError(f"its format is not {_FORMAT} {_VERSION}")
        found = msgspec.convert(head, Snapshot)
        if (found.package, found.version) != (package, version):
            raise ValueError(f"it is of {found.package} {found.version}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, KeyError, msgspec.MsgspecError) as error:
        raise AuditError(f"{path} is not a snapshot of the audit: {error}", "restore it with git") from error
    return found


def releases(package: str, folder: Path = FOLDER) -> tuple[str, ...]:
    """Return the versions of a package of which there is a snapshot."""
    head = f"{package}-"
    return tuple(sorted(path.stem.removeprefix(head) for path in folder.glob(f"{head}[0-9]*.json")))


def fill(outcome: SourceOutcome, snapshots: Iterable[Snapshot | None]) -> SourceOutcome:
    """Let snapshots stand in for what a source could not read: all of it, or single facts.

    A release does not change: where a source could read a part of it only, the snapshot has the whole.
    """
    for snapshot in filter(None, snapshots):
        held = snapshot.facts(outcome.source)
        whole = outcome.unread or (bool(outcome.trouble) and outcome.source in OF_RELEASE)
        if not whole:
            gone = tuple(fact.name for fact in outcome.facts if fact.trouble)
            held = tuple(one for one in held if any(f"{one.name}/".startswith(f"{name}/") for name in gone))
        if held:
            names = {one.name for one in held}
            kept = () if whole else outcome.facts
            kept = tuple(one for one in kept if not (one.trouble and one.name in names))
            day = snapshot.made[:10]
            why = "" if "--offline" in outcome.trouble else outcome.trouble
            days = sorted({fact.where.fetched[:10] for fact in held} - {""}) or [day]
            read = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
            trouble = "; ".join(filter(None, (why, f"the snapshot stands in, read {read}")))
            return structs.replace(outcome, facts=(*kept, *held), trouble=trouble, snapshot=day)
    return outcome


def of(target: AuditTarget, outcomes: Iterable[SourceOutcome], made: str) -> Iterator[Snapshot]:
    """Yield what was found about a target: of its release, and of the channel."""
    read = [outcome for outcome in outcomes if any(not fact.trouble for fact in outcome.facts)]
    for package, version, sources in (
        (target.package, target.version, OF_RELEASE),
        (CHANNEL, "", OF_CHANNEL),
    ):
        having = tuple(one for one in read if one.source in sources)
        if having:
            yield Snapshot(package=package, version=version, made=made, sources=having)


def save(new: Snapshot, folder: Path = FOLDER) -> Path:
    """Write a snapshot, whole or not at all; what could not be read now stays as an older one has it."""
    old = load(new.package, new.version, folder)
    was = {one.source: one for one in old.sources} if old else {}
    now = {one.source: _without_trouble(fill(one, [old])) for one in new.sources}
    kept = sorted({**was, **now}.values(), key=lambda one: one.source)
    document = {
        "format": _FORMAT,
        "format_version": _VERSION,
        **msgspec.to_builtins(
            structs.replace(new, sources=tuple(one for one in kept if one.facts)), order="sorted"
        ),
    }
    path = place(new.package, new.version, folder)
    try:
        files.write(path, _one_fact_a_line(document))
    except OSError as error:
        raise AuditError(f"cannot write {path}: {error.strerror or error}", "check the folder") from error
    return path


def _without_trouble(outcome: SourceOutcome) -> SourceOutcome:
    # what is known not to be known has an address that says so
    facts = tuple(fact for fact in outcome.facts if not fact.trouble or fact.where.url)
    return SourceOutcome(source=outcome.source, facts=facts)


def _one_fact_a_line(document: dict[str, object]) -> str:
    """Return JSON in which a change of one fact is a change of one line."""
    sources = document.pop("sources")
    assert isinstance(sources, (list, tuple))
    head = json.dumps(document, indent=1, ensure_ascii=False).removesuffix("\n}")
    blocks = []
    for one in sources:
        facts = ",\n  ".join(json.dumps(fact, ensure_ascii=False) for fact in one["facts"])
        blocks.append(f' {{"source": {json.dumps(one["source"])}, "facts": [\n  {facts}\n ]}}')
    return f'{head},\n "sources": [\n' + ",\n".join(blocks) + "\n]}\n"
