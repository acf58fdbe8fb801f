"""What a run's page is made of, kept line by line while the run goes on: a kill costs the last seconds of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from groundwork import files
from groundwork.errors import IntegrityError

#: Of a file that somebody may have written into, no more is read than a run of weeks would write.
_MOST = 64 << 20


class Head(msgspec.Struct, tag="head", frozen=True, omit_defaults=True):
    """What is known when a run begins."""

    began: float
    config: str
    what: str = ""  #: ``PyTorch 2.13.0 for linux-64``
    jobs: int = 0
    cores: int = 0
    estimated: float = 0.0  #: seconds, by the plan
    basis: str = ""  #: of that, in words
    downloads: tuple[tuple[str, int], ...] = ()  #: what the plan had to have, with bytes (0 where unknown)
    channels: tuple[str, ...] = ()  #: where environments come from
    repeat: str = ""  #: the command line that runs it again


class Began(msgspec.Struct, tag="began", frozen=True, omit_defaults=True):
    """Something began; what went on in the same lane has ended."""

    at: float
    lane: str  #: a task: ``pytorch``, an extension's name, a test
    what: str
    kind: str = "phase"  #: or ``test``


class Ended(msgspec.Struct, tag="ended", frozen=True, omit_defaults=True):
    """What went on in a lane has ended."""

    at: float
    lane: str
    failed: bool = False


class Note(msgspec.Struct, tag="note", frozen=True, omit_defaults=True):
    """A sentence that the run said."""

    at: float
    text: str


class Ran(msgspec.Struct, tag="ran", frozen=True, omit_defaults=True):
    """A step of ninja's."""

    at: float
    seconds: float
    output: str
    outputs: int = 1
    lane: str = ""  #: the task that it belongs to


class Sample(msgspec.Struct, tag="sample", frozen=True, omit_defaults=True):
    """What the run took at one time; 0 where nobody knows."""

    at: float
    busy: float = 0.0  #: cores that the machine was busy with since the sample before, all programs together
    ours: float = 0.0  #: of these, by programs that the run had started
    memory: int = 0
    disk: int = 0
    disk_free: int = 0


Entry: TypeAlias = Head | Began | Ended | Note | Ran | Sample
_ENTRY = msgspec.json.Decoder(Entry)


class Span(msgspec.Struct, frozen=True):
    """Something that went on for some time."""

    lane: str
    what: str
    kind: str
    began: float
    ended: float
    failed: bool = False


@dataclass(kw_only=True)
class Timeline:
    """A run in time."""

    head: Head
    spans: list[Span] = field(default_factory=list)
    steps: list[Ran] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    ended: float = 0.0  #: the time of the last thing that is known

    @property
    def seconds(self) -> float:
        """From the beginning to what was noted last."""
        return max(0.0, self.ended - self.head.began)


class Writer:
    """Appends entries to a file. A full disk costs the page, never the run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, entries: Iterable[Entry]) -> None:
        """Append."""
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        if not lines:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(lines)


def read(path: Path) -> Timeline | None:
    """Return what a file has; None where there is nothing. Damaged lines, such as the last of a kill, are skipped."""
    try:
        with files.open_regular(path) as file:
            content = file.read(_MOST)
    except (OSError, IntegrityError):
        return None
    entries: list[Entry] = []
    for line in content.split(b"\n"):
        with contextlib.suppress(msgspec.MsgspecError):
            entries.append(_ENTRY.decode(line))
    return put_together(entries)


def put_together(entries: Iterable[Entry]) -> Timeline | None:
    """Return entries, in the order in which they were written, as what they say; None where the head is missing."""
    found: Timeline | None = None
    open_spans: dict[str, Began] = {}
    for entry in entries:
        if isinstance(entry, Head):
            found = found or Timeline(head=entry, ended=entry.began)
        if found is None:
            continue
        match entry:
            case Began():
                _close(found, open_spans, Ended(at=entry.at, lane=entry.lane))
                open_spans[entry.lane] = entry
            case Ended():
                _close(found, open_spans, entry)
            case Ran():
                found.steps.append(entry)
                found.ended = max(found.ended, entry.at + entry.seconds)
            case Sample():
                found.samples.append(entry)
            case Note():
                found.notes.append(entry)
            case Head():
                pass
        if not isinstance(entry, (Head, Ran)):
            found.ended = max(found.ended, entry.at)
    if found is not None:
        for lane in list(open_spans):
            _close(found, open_spans, Ended(at=found.ended, lane=lane))
        found.spans.sort(key=lambda span: span.began)
        found.steps.sort(key=lambda step: step.at)
    return found


def _close(timeline: Timeline, open_spans: dict[str, Began], by: Ended) -> None:
    if began := open_spans.pop(by.lane, None):
        timeline.spans.append(
            Span(began.lane, began.what, began.kind, began.at, max(began.at, by.at), by.failed)
        )
