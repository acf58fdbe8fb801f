"""Reads from a tree how many of its objects are compiled, and how long its objects and links took."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from groundwork import files
from groundwork.errors import IntegrityError
from megabuild.run.build_output import kind_of_object

_LOG = Path("build", ".ninja_log")
_STATEMENTS = Path("build", "build.ninja")
_OBJECT_STATEMENT = re.compile(r"^build (?P<output>\S+\.o(?:bj)?): ", re.MULTILINE)
_MOST_BYTES = 64 << 20
#: begin and end in milliseconds of ninja's run, date, output, hash of the command
_LINE = re.compile(r"^(?P<begin>\d{1,12})\t(?P<end>\d{1,12})\t\d+\t(?P<output>[^\t]+)\t", re.MULTILINE)
_LIBRARY = re.compile(r"\.so(\.[\d.]+)?$")


@dataclass(frozen=True, kw_only=True)
class StepSeconds:
    """Durations of ninja's steps."""

    objects: Mapping[str, float]  #: of one object on average, by the kinds of ``ObjectCounts``
    links: float  #: of all libraries, one after the other


def read_ninja_log(tree: Path) -> StepSeconds:
    """Return the durations in a tree's log, of each output the last one; a build writes the log."""
    seconds: dict[str, float] = {}
    for line in _LINE.finditer(_read(tree, _LOG)):
        seconds[line["output"]] = max(0, int(line["end"]) - int(line["begin"])) / 1000
    by_kind = defaultdict[str, list[float]](list)
    links = 0.0
    for output, spent in seconds.items():
        kind = kind_of_object(output)
        if kind:
            by_kind[kind].append(spent)
        elif _LIBRARY.search(output):
            links += spent
    means = {kind: round(sum(several) / len(several), 3) for kind, several in by_kind.items()}
    return StepSeconds(objects=means, links=round(links, 3))


def share_of_objects(tree: Path) -> float:
    """Return the share of a tree's objects that are compiled, 0 to 1; 0 if the tree's files cannot be read.

    A build writes these files: the share is good for an estimate only.
    """
    objects = {statement["output"] for statement in _OBJECT_STATEMENT.finditer(_read(tree, _STATEMENTS))}
    compiled = {line["output"] for line in _LINE.finditer(_read(tree, _LOG))}
    if not objects:
        return 0.0
    return len(objects & compiled) / len(objects)


def _read(tree: Path, path: Path) -> str:
    """Return the text of a tree's file; empty if it cannot be read."""
    try:
        with files.open_regular(tree / path, below=tree) as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, IntegrityError):
        return ""
