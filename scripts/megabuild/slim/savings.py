"""What a slimming takes away, step by step."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megabuild.files import sync
from megabuild.slim.library import LibrarySlimmed, slim_library
from megabuild.slim.listing import Contents, Entry
from megabuild.slim.records import corrected
from megabuild.slim.steps import Feature, Request, Step, chosen

#: Saving less than a page of a file is not worth a new one.
_LEAST = 4096
_ELF = b"\x7fELF"
Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A step: the bytes it gives, and the number of files it removes or makes smaller."""

    step: Step
    saves: int
    files: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What goes and what stays.

    Parameters
    ----------
    contents, request:
        Of what, and what was asked for.
    rows:
        The steps, those that give nothing left out.
    gone:
        Files to remove.
    slimmed:
        Libraries that become smaller.
    left_alone:
        Libraries that are not understood, with the reason.
    new:
        For files that change where their new content lies: libraries and lists; empty while it is only a plan.
    """

    contents: Contents
    request: Request
    rows: tuple[Row, ...]
    gone: frozenset[str]
    slimmed: Mapping[str, LibrarySlimmed]
    left_alone: Mapping[str, str]
    new: Mapping[str, Path]

    @property
    def before(self) -> int:
        """Bytes of all files."""
        return self.contents.size

    @property
    def after(self) -> int:
        """Bytes that stay."""
        return self.before - sum(row.saves for row in self.rows)

    @property
    def lost(self) -> tuple[Feature, ...]:
        """What does not work any more."""
        return tuple(one for one in Feature if any(one in row.step.costs for row in self.rows))

    @property
    def limited(self) -> tuple[Feature, ...]:
        """What works in part only."""
        every = {one for row in self.rows for one in row.step.limits}
        return tuple(one for one in Feature if one in every and one not in self.lost)

    @property
    def works(self) -> tuple[Feature, ...]:
        """What still works, if it did before."""
        return tuple(one for one in Feature if one not in self.lost and one not in self.limited)

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {
            "subject": str(self.contents.name),
            "kind": self.contents.kind,
            "gpus": list(self.request.gpus),
            "before": self.before,
            "after": self.after,
            "steps": [
                {
                    "name": row.step.name,
                    "saves": row.saves,
                    "files": row.files,
                    "loses": row.step.loses,
                    "costs": [feature.value for feature in row.step.costs],
                    "limits": [feature.value for feature in row.step.limits],
                }
                for row in self.rows
            ],
            "works": [one.value for one in self.works],
            "limited": [one.value for one in self.limited],
            "lost": [one.value for one in self.lost],
            "left_alone": [{"path": path, "reason": why} for path, why in self.left_alone.items()],
        }


def make_plan(contents: Contents, request: Request, note: Note, into: Path | None = None) -> Plan:
    """Find out what each step gives.

    Parameters
    ----------
    note:
        Told of what is looked at.
    into:
        A folder for the new content of files that change; None: nothing is written.
    """
    steps = chosen(request, contents.kind)
    note("looking for what nothing needs")
    gone, rows = _removed(contents, request, steps)
    slimmed, left_alone = _libraries(contents, request, steps, gone, note, into)
    for step in steps:
        if step.picks is None:
            saved = [one.gpu_code if step.name == "gpu-code" else one.symbols for one in slimmed.values()]
            rows.append(Row(step=step, saves=sum(saved), files=sum(map(bool, saved))))
    new: dict[str, Path] = {}
    if into is not None:
        new = {path: into / path for path in slimmed}
        _lists(contents, gone, new, into)
    return Plan(
        contents=contents,
        request=request,
        rows=tuple(row for row in rows if row.saves or row.files),
        gone=frozenset(gone),
        slimmed=slimmed,
        left_alone=left_alone,
        new=new,
    )


def _removed(contents: Contents, request: Request, steps: list[Step]) -> tuple[set[str], list[Row]]:
    gone: set[str] = set()
    rows = []
    for step in steps:
        picked = set(step.picks(contents, request)) - gone if step.picks else set()
        pointing = picked
        while pointing:  # a link goes with what it points to
            pointing = {path for path, to in contents.links.items() if to in pointing} - picked - gone
            picked |= pointing
        gone |= picked
        if picked:
            saved = sum(contents.every[path].size for path in picked)
            rows.append(Row(step=step, saves=saved, files=len(picked)))
    return gone, rows


def _libraries(
    contents: Contents, request: Request, steps: list[Step], gone: set[str], note: Note, into: Path | None
) -> tuple[dict[str, LibrarySlimmed], dict[str, str]]:
    names = {step.name for step in steps}
    gpus = request.gpus if "gpu-code" in names else ()
    slimmed: dict[str, LibrarySlimmed] = {}
    left_alone: dict[str, str] = {}
    if not gpus and "symbols" not in names:
        return slimmed, left_alone
    found = sorted(path for path in contents.owners if path not in gone and _is_library(contents.every[path]))
    for count, path in enumerate(found, 1):
        note(f"libraries {count}/{len(found)}: {posixpath.basename(path)}")
        entry = contents.every[path]
        target = None if into is None else into / path
        if target:
            target.parent.mkdir(parents=True, exist_ok=True)
        one = slim_library(
            entry.source, target, gpus=gpus, symbols="symbols" in names, keep_lto=request.lto_ir
        )
        if one.how.startswith("left alone"):
            left_alone[path] = one.how.partition(": ")[2]
        if one.before - one.after >= _LEAST:
            slimmed[path] = one
            if target:
                _like(entry, target)
        elif target:
            target.unlink(missing_ok=True)
    return slimmed, left_alone


def _lists(contents: Contents, gone: set[str], new: dict[str, Path], into: Path) -> None:
    """Write the installers' lists as they become, into ``into``."""
    for record in contents.records:
        entry = contents.every[record.path]
        # lists tell of a link what its target holds
        linked = {path: new[to] for path, to in contents.links.items() if to in new}
        text = corrected(entry.source, record.path, gone, {**linked, **new})
        if text is not None:
            target = into / record.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
            _like(entry, target)
            new[record.path] = target


def _is_library(entry: Entry) -> bool:
    if entry.is_link or entry.size < _LEAST:
        return False
    with entry.source.open("rb") as stream:
        return stream.read(len(_ELF)) == _ELF


def _like(entry: Entry, target: Path) -> None:
    """Give a new file mode, dates and owner of the original, and see that it is on the disk."""
    shutil.copystat(entry.source, target)
    if (entry.status.st_uid, entry.status.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(target, entry.status.st_uid, entry.status.st_gid)
        os.chmod(target, entry.status.st_mode)
    sync(target)
