"""Reads from a tree how long its objects and links took."""

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
    try:
        with files.open_regular(tree / _LOG, below=tree) as file:
            text = file.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, IntegrityError):
        text = ""
    seconds: dict[str, float] = {}
    for line in _LINE.finditer(text):
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
