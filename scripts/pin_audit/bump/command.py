"""``audit --bump``: what must change, shown in any form; ``--fix`` writes what is certain, ``--back`` gives it back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from groundwork.errors import Interrupted, UsageError
from groundwork.files import cache_folder
from groundwork.result import Result
from groundwork.text import picked, wrapped
from groundwork.wording import counted, plain
from pin_audit.bump import apply
from pin_audit.bump.changes import CERTAIN, COMMAND, FOLLOWS, PERSON, Bump, Change
from pin_audit.bump.make import make
from pin_audit.make_report import AuditOptions
from pin_audit.report import jsonfile
from pin_audit.report.blocks import Block, Cell, Grid, Heading
from pin_audit.report.cells import CellPart
from pin_audit.report.findings import Finding, github, sarif
from pin_audit.report.markdown import marked_up
from pin_audit.report.terminal import text_lines

_REFUSED = (
    "release",
    "every",
    "start",
    "only",
    "skipped",
    "write",
    "compare",
    "fail_on",
    "upstream",
    "ref",
    "snapshot",
)
_SHORT = 16  # characters of a hash on a terminal
_HEADS = {
    CERTAIN: "Certain, --fix writes it",
    PERSON: "For a person",
    COMMAND: "Made by a command",
    FOLLOWS: "Nothing to do, since the recipes hold for both, or should not follow",
}


def bump(
    options: AuditOptions, root: Path, *, tell: Callable[[str], None], progress: Callable[[str], None]
) -> Result:
    """Return what must change for another version, or give back what was written."""
    cache = apply.folder_of(root, cache_folder(os.environ) / "audit")
    if options.back:
        if options.bump or options.fix:
            raise UsageError("--back goes without --bump and --fix", "leave them out")
        return _back(root, cache)
    given = [one for one in _REFUSED if getattr(options, one)]
    if options.bump is None or given:
        what = (
            "--fix has no effect here"
            if options.bump is None
            else f"--{_option(given[0])} has no effect with --bump"
        )
        raise UsageError(
            what, "name a version: --bump 2.14.1 --fix" if options.bump is None else "leave it out"
        )
    try:
        found = make(options, root, progress=progress)
    except KeyboardInterrupt:
        raise Interrupted("interrupted", "downloads are cached; run it again to continue") from None
    written = apply.fix(found, root, cache) if options.fix else ()
    document = {**_document(found), "written": list(written)}
    lines = _shown(found, options)
    if options.fix:
        note = "nothing is certain, so nothing was written"
        tell(f"written: {', '.join(written)}; --back gives it back" if written else note)
        unknown = [
            f"{one.place} ({one.topic})" for one in found.of(PERSON) if one.note.startswith("not known")
        ]
        if unknown:
            tell(f"! not known, and as it was: {', '.join(unknown)}")
    if options.output is not None:
        whole = json.dumps(
            Result(format="audit-bump", document=document).to_json(), indent=1, ensure_ascii=False
        )
        jsonfile.write((whole if options.form == "json" else "\n".join(lines)) + "\n", options.output)
        tell(f"written: {options.output}")
        lines = []
    return Result(format="audit-bump", document=document, lines=lines)


def _option(name: str) -> str:
    return {"every": "all", "start": "from", "only": "source", "skipped": "skip"}.get(
        name, name.replace("_", "-")
    )


def _back(root: Path, cache: Path) -> Result:
    record, names = apply.back(root, cache)
    text = f"{record.package} is at {record.old} again, not at {record.new}: {', '.join(names)}"
    document = {"package": record.package, "old": record.new, "new": record.old, "restored": list(names)}
    return Result(format="audit-back", document=document, lines=[text])


def _document(found: Bump) -> dict[str, object]:
    keys = "topic file line old new source note"
    changes = [{**picked(one, keys), "kind": one.kind.value} for one in found.changes]
    return {**picked(found, "package old new commit unread"), "changes": changes}


def _shown(found: Bump, options: AuditOptions) -> list[str]:
    """Return a bump in the requested form; JSON is the document's own."""
    if options.form in ("sarif", "github"):
        findings = list(_findings(found))
        return sarif(findings).splitlines() if options.form == "sarif" else github(findings)
    if options.form == "markdown":
        return marked_up(_blocks(found)).splitlines()
    return [*text_lines([_heading(found)], options.width), *_text(found)]


def _findings(found: Bump) -> Iterator[Finding]:
    for one in found.of(CERTAIN, PERSON):
        if one.line:
            values = " -> ".join(filter(None, (one.old, one.new)))
            text = "; ".join(
                filter(None, (f"{one.topic}: {values}" if values else one.topic, one.source, one.note))
            )
            rule = f"bump-{one.kind.value.replace(' ', '-')}"
            yield Finding(rule, "warning", plain(text), one.file, one.line)


def _heading(found: Bump) -> Heading:
    if found.old == found.new:
        return Heading(f"{found.package} {found.old}", "is the newest that an index has")
    commit = f" ({found.commit[:10]})" if found.commit else ""
    count = counted(len(found.of(CERTAIN)), "change")
    return Heading(f"{found.package} {found.old} to {found.new}{commit}", f"{count} that --fix writes")


def _text(found: Bump) -> Iterator[str]:
    """Yield lines for a terminal, which is too narrow for six columns: a place, what becomes of it, and below why."""
    for kind, head in _HEADS.items():
        changes = found.of(kind)
        if changes:
            yield from ("", f"{head}:")
        for one in changes:
            values = " -> ".join(filter(None, map(_short, (one.old, one.new))))
            yield f"  {plain(one.place)}  {one.topic}{': ' if values else ''}{values}"
            yield from wrapped(_why(one), first=" " * 6, rest=" " * 6)
    for sentence in found.unread:
        yield from ("", *wrapped(sentence))


def _short(text: str) -> str:
    """Return a value as a terminal shows it: of a hash the beginning."""
    return f"{text[:_SHORT]}…" if len(text) >= 40 and text.isalnum() else plain(text)


def _blocks(found: Bump) -> Iterator[Block]:
    yield _heading(found)
    todo = found.of(CERTAIN, PERSON, COMMAND)
    heads = ("where", "what", f"at {found.old}", f"at {found.new}", "who", "why")
    if todo:
        yield Grid(heads=heads, rows=[(*_row(one), one.kind.value, _why(one)) for one in todo])
    if follows := found.of(FOLLOWS):
        yield f"{_HEADS[FOLLOWS]}:"
        yield Grid(heads=(*heads[:4], "why"), rows=[(*_row(one), _why(one)) for one in follows])
    yield from found.unread


def _row(one: Change) -> tuple[Cell, ...]:
    def value(text: str) -> Cell:
        return [CellPart(text=plain(text))] if text else ""

    place: Cell = [CellPart(text=plain(one.place))]
    return place, one.topic, value(one.old), value(one.new)


def _why(one: Change) -> str:
    return plain("; ".join(filter(None, (one.source, one.note))))
