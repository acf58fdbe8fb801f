"""Choosing what goes, and removing it: never what somebody uses, never what could not be looked at as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path

from filelock import Timeout

from groundwork import files, in_use
from groundwork.errors import ConfigError
from megabuild.cleaning.survey import Item

_IN_USE = "in use"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is to go; of a choice that says nothing, what has expired."""

    configs: Sequence[str] = ()  #: runs, by their names or patterns
    kinds: Sequence[str] = ()
    older: float | None = None  #: seconds

    def of(self, items: Sequence[Item]) -> list[Item]:
        """Return the items that it means.

        Raises ConfigError: Nothing belongs to a config that is named.
        """
        owners = sorted({item.owner for item in items if item.owner})
        for word in self.configs:
            if not any(_belongs(owner, word) for owner in owners):
                # what all share has names, too, which tell nobody anything
                runs = sorted({item.owner for item in items if item.lock in ("run", item.owner)})
                runs = [run for run in runs if run not in ("", in_use.SHARED)]
                raise ConfigError(
                    f"nothing here belongs to {word}",
                    f"there is something of: {', '.join(runs)}" if runs else "nor to any other config",
                )
        return [item for item in items if self._means(item)]

    def _means(self, item: Item) -> bool:
        if self.configs and not any(_belongs(item.owner, word) for word in self.configs):
            return False
        if item.kind.by_name_only and item.kind.name not in self.kinds:
            return False
        if not self.kinds and self.older is None:
            return item.expired
        if self.kinds and item.kind.name not in self.kinds:
            return False
        if item.kind.name == "channels" and item.needed_by and "channels" not in self.kinds:
            return False  # what was built could not be installed
        return self.older is None or item.age >= self.older


@dataclass(kw_only=True)
class Cleaned:
    """What became of the items that were chosen."""

    removed: list[Item] = field(default_factory=list)
    kept: dict[Path, str] = field(default_factory=dict)  #: with the reason


def remove(chosen: Sequence[Item], output: Path, cache: Path) -> Cleaned:
    """Remove items; what is in use, or was not seen as a whole, stays."""
    done = Cleaned()

    def place(item: Item) -> tuple[str, str]:
        return item.lock, item.owner if item.lock == "run" else ""

    for (lock, run), items in groupby(sorted(chosen, key=place), place):
        with _kept_from_others(lock, run, output, cache) as free:
            for item in items:
                why = item.measure.trouble or ("" if free else _IN_USE) or _remove(item.path)
                if why:
                    done.kept[item.path] = why
                else:
                    done.removed.append(item)
    return done


@contextlib.contextmanager
def _kept_from_others(lock: str, run: str, output: Path, cache: Path) -> Iterator[bool]:
    """Hold the lock of a run or of a part of the cache; False where somebody has it."""
    if not lock:
        yield True
        return
    if lock != "run":
        with in_use.alone(cache, lock) as free:
            yield free
        return
    held = files.FileLock(output / run / "lock", timeout=0)
    try:
        held.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        held.release()


def _remove(path: Path) -> str:
    """Remove something; return what stood against it."""
    try:
        before = set(path.parent.glob(".removed-*"))
        files.remove(path)
        rest = set(path.parent.glob(".removed-*")) - before
    except OSError as error:
        return error.strerror or str(error)
    return f"only in part: {', '.join(map(str, sorted(rest)))} is left" if rest else ""


def _belongs(owner: str, word: str) -> bool:
    return owner == word or owner.startswith(f"{word}-") or fnmatchcase(owner, word)
