"""One page about one run, which needs nothing else: no network, no script, no file beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from groundwork.text import duration, size
from groundwork.wording import counted
from megabuild.report.chart import text
from megabuild.report.drawing import drawn, slow, table
from megabuild.report.style import STYLE
from megabuild.report.timeline import Timeline

_MOST_NOTES = 300
_DECIDED = {
    "fresh": "compiled from scratch",
    "reuse": "reused as an earlier run had finished it",
    "resume": "went on where an earlier run had stopped",
    "recompile": "compiled again, with objects from the object cache",
}
_SOURCES = {"tree": "kept in the tree by an earlier run", "ccache": "from the object cache"}


def page(timeline: Timeline, record: Mapping[str, Any]) -> str:
    """Return the page; ``record`` is what ``run.json`` has, or empty where the run came to no end of its own."""
    head, (badge, status) = timeline.head, _status(record)
    began = datetime.fromtimestamp(head.began, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    jobs = f"{counted(head.jobs, 'compile job')} on {counted(head.cores, 'core')}"
    parts = [
        f"<h1>{text(head.config)} <span class='badge {badge}'>{status}</span></h1>",
        f"<p class='dim'>{text(head.what)} · {began} · {jobs}</p>",
        *_failure(record),
        *_figures(timeline, record),
        *drawn(timeline),
        *slow(timeline),
        *_origins(timeline, record),
        *_packages(record),
        *_notes(timeline),
        *_again(timeline, record),
    ]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{text(head.config)}: {status}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _status(record: Mapping[str, Any]) -> tuple[str, str]:
    if not record:
        return "", "not finished"
    if record.get("ok"):
        return "done", "done"
    stopped = str(record.get("error") or "").startswith("interrupted")
    return ("", "interrupted") if stopped else ("failed", "failed")


def _failure(record: Mapping[str, Any]) -> Iterator[str]:
    headline, *rest = str(record.get("error") or "").strip().splitlines() or [""]
    found = record.get("failures")
    failures = [one for one in found if isinstance(one, dict)] if isinstance(found, (list, tuple)) else []
    if failures:
        rest = []  # the same, in prose
    for row in () if failures else _rows(record):
        if row.get("note"):
            rest.append(f"{row.get('name', '')} {row.get('build_string', '')}: {row['note']}")
    if not headline and not rest and not failures:
        return
    yield f"<section class='failure'><h2>{text(headline or 'not everything was built')}</h2>"
    if rest:
        yield f"<pre>{chr(10).join(map(text, rest))}</pre>"  # line by line: what is no text on one goes
    for one in failures:
        yield from _one_failure(one)
    yield "</section>"


def _one_failure(failure: Mapping[str, Any]) -> Iterator[str]:
    place = ":".join(str(failure[key]) for key in ("file", "line") if failure.get(key))
    said = ": ".join(str(part) for part in (failure.get("what"), place, failure.get("message")) if part)
    yield f"<p>{text(said)}</p>"
    excerpt = failure.get("excerpt")
    lines = excerpt if isinstance(excerpt, (list, tuple)) else str(excerpt or "").splitlines()
    if lines:
        yield f"<pre>{chr(10).join(text(str(line)) for line in lines)}</pre>"
    for key, does in (("again", "repeats the step"), ("enter", "opens a shell there"), ("log", "is the log")):
        if failure.get(key):
            yield f"<p class='dim'><code>{text(str(failure[key]))}</code> {does}</p>"


def _figures(timeline: Timeline, record: Mapping[str, Any]) -> Iterator[str]:
    head = timeline.head
    took = _number(record.get("seconds")) or timeline.seconds
    said = f"estimated {duration(head.estimated)}" if head.estimated else "no estimate"
    found = [(duration(took), said if record else f"so far, {said}")]
    if timeline.steps:
        total = duration(sum(step.seconds for step in timeline.steps))
        found.append((str(len(timeline.steps)), f"steps of ninja, {total} one after another"))
    if seconds := _number(record.get("staging_seconds")):
        how = "compiled" if record.get("compiles", True) else "unpacked"
        found.append((duration(seconds), f"{record.get('staged') or 'libtorch'} was {how}"))
    cache = _mapping(record.get("object_cache"))
    hits, misses = int(_number(cache.get("hits"))), int(_number(cache.get("misses")))
    if asked := hits + misses:
        shared = int(_number(cache.get("shared")))
        others = f", {shared} from what others share" if shared else ""
        found.append(
            (f"{100 * hits // asked} %", f"of the objects from the cache: {hits} of {asked}{others}")
        )
    if packages := _rows(record):
        done = sum(row.get("status") in ("built", "skipped") for row in packages)
        there = sum(row.get("status") == "skipped" for row in packages)
        before = f", {there} of them before" if there else ""
        found.append((f"{done} of {len(packages)}", f"packages published{before}"))
    if memory := max((sample.memory for sample in timeline.samples), default=0):
        found.append((size(memory), "memory at the peak, all programs of the run"))
    elif memory := int(_number(record.get("memory"))):
        found.append((size(memory), "memory of the largest process"))
    if disk := int(_number(_mapping(record.get("disk")).get("peak"))):
        found.append((size(disk), "on disk at the peak"))
    cells = (f"<div><b>{text(figure)}</b><span>{text(what)}</span></div>" for figure, what in found)
    yield f"<div class='cards'>{''.join(cells)}</div>"


def _origins(timeline: Timeline, record: Mapping[str, Any]) -> Iterator[str]:
    facts = []
    if decided := _DECIDED.get(str(record.get("staging"))):
        facts.append(f"{record.get('staged') or 'libtorch'}: {decided}")
    for source, count in _mapping(record.get("reused")).items():
        facts.append(f"{counted(int(_number(count)), 'object')} {_SOURCES.get(source, source)}")
    for python, figures in _mapping(record.get("swaps")).items():
        steps, core = (int(_number(_mapping(figures).get(name))) for name in ("steps", "core"))
        ran = f"{counted(steps, 'step')} to run, {counted(core, 'core object')} among them"
        facts.append(f"swap to Python {python}: {ran}")
    for what, octets in timeline.head.downloads:
        facts.append(f"downloaded: {what}" + (f" ({size(octets)})" if octets else ""))
    facts += [f"environments from {channel}" for channel in timeline.head.channels]
    if facts:
        yield "<h2>What came from where</h2><ul>"
        yield from (f"<li>{text(fact)}</li>" for fact in facts)
        yield "</ul>"


def _packages(record: Mapping[str, Any]) -> Iterator[str]:
    packages = _rows(record)
    if packages:
        yield "<h2>Packages</h2>"
        yield from table(
            ("path:package", "status", "n:size", "n:script", "path:sha256"), map(_package, packages)
        )


def _package(row: Mapping[str, Any]) -> tuple[str, ...]:
    name = " ".join(str(row.get(key) or "") for key in ("name", "version", "build_string"))
    status = "was there" if row.get("status") == "skipped" else str(row.get("status") or "")
    octets, seconds = _number(row.get("size")), _number(row.get("seconds"))
    return (
        text(name),
        text(status),
        size(octets) if octets else "",
        duration(seconds) if seconds else "",
        f"<code>{text(str(row.get('sha256') or ''))}</code>",
    )


def _notes(timeline: Timeline) -> Iterator[str]:
    said = [note for note in timeline.notes if note.text][:_MOST_NOTES]
    if said:
        yield "<h2>What the run said</h2>"
        began = timeline.head.began
        yield from table(
            ("n:", "path:"), ((duration(max(0.0, one.at - began)), text(one.text)) for one in said)
        )


def _again(timeline: Timeline, record: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2>To do it again</h2><pre>{text(timeline.head.repeat)}</pre>"
    yield "<p>Finished packages are skipped, and an unfinished compile goes on.</p>"
    if log := str(record.get("log") or ""):
        yield f"<p class='dim'>The log: <code>{text(log)}</code></p>"


def _rows(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = record.get("packages")
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
