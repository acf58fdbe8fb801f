"""Committed facts: one file per release in ``releases``, and one for conda-forge's channel.

A snapshot has the outcomes of sources on one day, and replaces sources that cannot be read. Each fact names its file or
index, its commit and its day (`Where`); ``inferred`` gives the reason to trust a fact that was not read at the release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from groundwork import files
from groundwork.errors import AuditError
from pin_audit.facts import MOVING, AuditTarget, SourceOutcome, resolve_types
from pin_audit.run_sources import OF_RELEASE

FOLDER = Path(__file__).with_name("releases")
CHANNEL = "conda-forge"
_FORMAT, _VERSION = "megabuild/audit-snapshot", 1


@resolve_types
class Snapshot(Struct, frozen=True, kw_only=True):
    """The facts about one release of a package on one day; with an empty version, about the channel."""

    package: str
    version: str
    made: str  #: ISO 8601 in UTC
    sources: tuple[SourceOutcome, ...]
    format: str = _FORMAT
    format_version: int = _VERSION


def load(package: str, version: str, folder: Path = FOLDER) -> Snapshot | None:
    """Return the snapshot of a release, or None; without a version, of `CHANNEL`. Raises AuditError if it is broken."""
    if not re.fullmatch(r"[\w.+-]+", f"{package}{version}"):
        return None
    path = _path(package, version, folder)
    try:
        snapshot = msgspec.json.decode(path.read_bytes(), type=Snapshot)
        identity = snapshot.package, snapshot.version, snapshot.format, snapshot.format_version
        if identity != (package, version, _FORMAT, _VERSION):
            raise ValueError(f"it describes {identity}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise AuditError(f"{path}: not a snapshot: {error}", f"run: git checkout -- {path}") from error
    return snapshot


def fill(outcome: SourceOutcome, snapshots: Iterable[Snapshot | None]) -> SourceOutcome:
    """Replace facts that a source could not read with a snapshot's: all of them, or single ones.

    A release does not change: after a partial read, its snapshot replaces the whole source.
    """
    for snapshot in filter(None, snapshots):
        held = tuple(
            fact for source in snapshot.sources if source.source == outcome.source for fact in source.facts
        )
        whole = outcome.unread or (bool(outcome.trouble) and outcome.source in OF_RELEASE)
        if not whole:
            missing = tuple(f"{fact.name}/" for fact in outcome.facts if fact.trouble)
            held = tuple(fact for fact in held if f"{fact.name}/".startswith(missing))
        if held:
            names = {fact.name for fact in held}
            kept = tuple(
                fact for fact in outcome.facts if not whole and not (fact.trouble and fact.name in names)
            )
            days = sorted({fact.where.fetched[:10] for fact in held} - {""}) or [snapshot.made[:10]]
            read = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
            why = "" if "--offline" in outcome.trouble else outcome.trouble
            trouble = "; ".join(filter(None, (why, f"using the snapshot read {read}")))
            day = snapshot.made[:10] if whole else ""
            return structs.replace(outcome, facts=(*kept, *held), trouble=trouble, snapshot=day)
    return outcome


def of(target: AuditTarget, outcomes: Sequence[SourceOutcome], made: str) -> Iterator[Snapshot]:
    """Yield the snapshots of a target's release and of the channel."""
    for package, version, sources in (
        (target.package, target.version, OF_RELEASE),
        (CHANNEL, "", MOVING),
    ):
        ours = [outcome for outcome in outcomes if outcome.source in sources]
        read = tuple(outcome for outcome in ours if any(not fact.trouble for fact in outcome.facts))
        if read:
            yield Snapshot(package=package, version=version, made=made, sources=read)


def save(new: Snapshot, folder: Path = FOLDER) -> Path:
    """Write a snapshot atomically, one fact per line; facts that could not be read now are kept from the older one."""
    old = load(new.package, new.version, folder)
    sources = {outcome.source: outcome for outcome in old.sources} if old else {}
    for outcome in new.sources:
        # a fact without a value is kept if its page documents that no value is published
        facts = [fact for fact in fill(outcome, [old]).facts if not fact.trouble or fact.where.url]
        sources[outcome.source] = SourceOutcome(source=outcome.source, facts=tuple(facts))

    def text(value: object) -> str:
        encoded = msgspec.json.encode(value, order="sorted")
        return msgspec.json.format(encoded, indent=0).decode()

    blocks = []
    for name in sorted(name for name in sources if sources[name].facts):
        lines = ",\n  ".join(map(text, sources[name].facts))
        blocks.append(f' {{"source": {text(name)}, "facts": [\n  {lines}\n ]}}')
    head = {name: getattr(new, name) for name in ("format", "format_version", "package", "version", "made")}
    fields = ",\n ".join(f"{text(key)}: {text(value)}" for key, value in head.items())
    path = _path(new.package, new.version, folder)
    try:
        files.write(path, f'{{\n {fields},\n "sources": [\n' + ",\n".join(blocks) + "\n]}\n")
    except OSError as error:
        reason = f"{path}: cannot be written: {error.strerror or error}"
        raise AuditError(reason, f"make the folder writable: {folder}") from error
    return path


def _path(package: str, version: str, folder: Path) -> Path:
    return folder / (f"{package}-{version}.json" if version else f"{package}.json")
