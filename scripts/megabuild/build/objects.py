"""Counting objects that did not have to be compiled: those that the tree kept, those that the object cache had."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from megabuild.build import events
from megabuild.build.progress import Totals
from megabuild.engine.logs import LogLine

#: A compile behind ninja's counter: in CMake's words, or as the command itself where ninja is told to be verbose.
_COMPILE = re.compile(r"^\[\d+/\d+ [\d.]+s\] (?:Building \w+ object (\S+)|.* -o (\S+\.o) -c )")
STATS = "ccache-stats.log"
_HITS = frozenset({"direct_cache_hit", "preprocessed_cache_hit"})
_MISSES = frozenset({"cache_miss"})


class Objects:
    """Counts during one run.

    Parameters
    ----------
    state:
        The config's state folder; ccache writes its results there.
    """

    def __init__(self, state: Path) -> None:
        self._stats = state / STATS
        self._compiled: set[str] = set()
        self._before = 0

    def begin(self, tree: Path) -> None:
        """Note what is there before anything is compiled."""
        self._stats.unlink(missing_ok=True)
        self._before = count(tree)

    def feed(self, line: LogLine) -> None:
        """Note what staging compiles."""
        if not line.package and (match := _COMPILE.match(line.text)):
            self._compiled.add(match[1] or match[2])

    def reused(self, tree: Path, totals: Totals) -> Iterator[events.Reused]:
        """Give one event per source that saved compiles, and add them to the totals."""
        if self._before and self._compiled:
            of = max(count(tree), self._before)
            kept = max(0, min(self._before, of - len(self._compiled)))
            totals.reused["tree"] += kept
            yield events.Reused(objects=kept, of=of, source="tree")
        hits, misses = self._cache()
        if hits:
            totals.reused["ccache"] += hits
            yield events.Reused(objects=hits, of=hits + misses, source="ccache")

    def _cache(self) -> tuple[int, int]:
        try:
            words = self._stats.read_text(errors="replace").split()
        except OSError:
            return 0, 0
        return sum(word in _HITS for word in words), sum(word in _MISSES for word in words)


def count(tree: Path) -> int:
    """Number of object files in a tree."""
    return sum(1 for _ in tree.glob("build/**/*.o")) if tree.is_dir() else 0
