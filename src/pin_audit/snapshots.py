"""Committed facts: one file per release in ``releases``, and one for conda-forge's channel.

A snapshot has the outcomes of sources on one day, and replaces sources that cannot be read. Each fact names its file or
index, its commit and its day (`Where`); ``inferred`` gives the reason to trust a fact that was not read at the release.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from groundwork import files
from groundwork.errors import AuditError
from pin_audit.facts import AnyFact, AuditTarget, SourceOutcome, known, resolve_types
from pin_audit.request import About
from pin_audit.run_sources import sources_about

FOLDER = Path(__file__).with_name("releases")
CHANNEL = "conda-forge"
_FORMAT = "megabuild/audit-snapshot"
_VERSION = 1
_OFFLINE = "--offline"  # in the trouble of sources that need no other reason


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
        identity = (snapshot.package, snapshot.version, snapshot.format, snapshot.format_version)
        if identity != (package, version, _FORMAT, _VERSION):
            raise ValueError(f"it describes {identity}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        command = shlex.join(["git", "-C", str(folder), "checkout", "--", path.name])
        raise AuditError(f"{path}: not a snapshot: {error}", f"run: {command}") from error
    return snapshot


def fill(outcome: SourceOutcome, snapshots: Iterable[Snapshot | None]) -> SourceOutcome:
    """Replace facts that a source could not read with a snapshot's: all of them, or single ones.

    A release does not change: after a partial read, its snapshot replaces the whole source.
    """
    for snapshot in snapshots:
        filled = _fill_from(snapshot, outcome) if snapshot else None
        if filled is not None:
            return filled
    return outcome


def _fill_from(snapshot: Snapshot, outcome: SourceOutcome) -> SourceOutcome | None:
    """Replace facts by those of a snapshot; None if it has none of them."""
    held = _facts_of(snapshot, outcome.source)
    of_release = outcome.source in sources_about(About.RELEASE)
    whole = outcome.unread or (of_release and bool(outcome.trouble))
    kept: list[AnyFact] = []
    if not whole:
        missing = tuple(f"{name}/" for name in outcome.missing)
        held = [fact for fact in held if f"{fact.name}/".startswith(missing)]
        names = {fact.name for fact in held}
        kept = [fact for fact in outcome.facts if not fact.trouble or fact.name not in names]
    if not held:
        return None
    trouble = f"using the snapshot read {_days(held, snapshot.made)}"
    if outcome.trouble and _OFFLINE not in outcome.trouble:
        trouble = f"{outcome.trouble}; {trouble}"
    return structs.replace(
        outcome, facts=(*kept, *held), trouble=trouble, snapshot=snapshot.made[:10] if whole else ""
    )


def _facts_of(snapshot: Snapshot, source: str) -> Sequence[AnyFact]:
    facts: list[AnyFact] = []
    for outcome in snapshot.sources:
        if outcome.source == source:
            facts += outcome.facts
    return facts


def _days(facts: Iterable[AnyFact], made: str) -> str:
    """Say on which days facts were downloaded; those without a time when their snapshot was made."""
    days = sorted({fact.where.fetched[:10] for fact in facts} - {""}) or [made[:10]]
    if len(days) == 1:
        return f"on {days[0]}"
    return f"from {days[0]} to {days[-1]}"


def of(target: AuditTarget, outcomes: Sequence[SourceOutcome], made: str) -> Iterator[Snapshot]:
    """Yield the snapshots of a target's release and of the channel."""
    release = _read_now(outcomes, About.RELEASE)
    if release:
        yield Snapshot(package=target.package, version=target.version, made=made, sources=release)
    channel = _read_now(outcomes, About.CHANNEL)
    if channel:
        yield Snapshot(package=CHANNEL, version="", made=made, sources=channel)


def _read_now(outcomes: Iterable[SourceOutcome], about: About) -> tuple[SourceOutcome, ...]:
    """Return the outcomes with facts about the release or the channel."""
    names = sources_about(about)
    read = []
    for outcome in outcomes:
        if outcome.source in names and known(outcome.facts):
            read.append(outcome)
    return tuple(read)


def save(new: Snapshot, folder: Path = FOLDER) -> Path:
    """Write a snapshot atomically, one fact per line; facts that could not be read now are kept from the older one."""
    old = load(new.package, new.version, folder)
    sources: dict[str, Sequence[AnyFact]] = {}
    for outcome in old.sources if old else ():
        sources[outcome.source] = outcome.facts
    for outcome in new.sources:
        # a fact without a value is kept if its page documents that no value is published
        filled = fill(outcome, [old]).facts
        sources[outcome.source] = [fact for fact in filled if not fact.trouble or fact.where.url]
    path = _path(new.package, new.version, folder)
    try:
        files.write(path, _text(new, sources))
    except OSError as error:
        reason = f"{path}: cannot be written: {error.strerror or error}"
        raise AuditError(reason, f"make the folder writable: {folder}") from error
    return path


def _text(snapshot: Snapshot, sources: Mapping[str, Sequence[AnyFact]]) -> str:
    """Return the file of a snapshot with the facts of `sources`."""
    fields = []
    for name in ("format", "format_version", "package", "version", "made"):
        fields.append(f"{_json(name)}: {_json(getattr(snapshot, name))}")
    blocks = []
    for source in sorted(sources):
        facts = ",\n  ".join(map(_json, sources[source]))
        if facts:
            blocks.append(f' {{"source": {_json(source)}, "facts": [\n  {facts}\n ]}}')
    head = ",\n ".join(fields)
    return f'{{\n {head},\n "sources": [\n' + ",\n".join(blocks) + "\n]}\n"


def _json(value: object) -> str:
    """Return a value's JSON on one line, with sorted keys."""
    encoded = msgspec.json.encode(value, order="sorted")
    return msgspec.json.format(encoded, indent=0).decode()


def _path(package: str, version: str, folder: Path) -> Path:
    name = f"{package}-{version}" if version else package
    return folder / f"{name}.json"
