"""Compare the environment with a record, and remove the outputs that read other files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cmake_python_swap.ninja_dry_run import Edge, NinjaError

from . import aliases, generators, installed, outputs
from .contents import ABSENT, UNKNOWN, Contents, digest_of
from .inputs import Inputs
from .record import COMPLETE, STARTED, Found, Kind, read
from .search import name_folders
from .shadowing import Shadows, find_probes
from .snapshot import date_of
from .tree import LINK, Headers, Tree

#: The settings with which the tree is configured; without this file, it is configured from scratch.
CONFIGURED = "configured-with.txt"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of :func:`compare`.

    `is_proven`: whether a record says which files the tree's outputs read; otherwise all were removed.
    `files`: changed files outside the tree; `folders`: folders with other names or contents, Pythons whose modules
      changed, and links that lead elsewhere.
    `removed`: the numbers of removed objects by kind; `links`, `others`: of libraries and programs, of other outputs.
    """

    is_proven: bool
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    removed: Mapping[Kind, int] = field(default_factory=dict)
    links: int = 0
    others: int = 0

    @property
    def is_changed(self) -> bool:
        """Whether the environment is another one than the record's."""
        return not self.is_proven or bool(self.files or self.folders)


def compare(build_dir: Path, environment: Mapping[str, str]) -> Comparison:
    """Remove all outputs that read other files than there are now; if files changed, CMake configures from scratch.

    Raises OSError: An output cannot be removed.
    """
    try:
        tree = Tree.load(build_dir)
        headers = tree.read_headers()
    except NinjaError:
        return _remove_all(build_dir, None)
    found = _valid_record(build_dir)
    if found is None:
        return _remove_all(build_dir, tree)
    stale = _Stale(tree, headers, found, environment)
    names = dict.fromkeys(stale.outputs())
    removed = outputs.remove(tree, names)
    languages = Counter[str]()
    for name in removed:
        languages[tree.language(tree.made[name])] += 1
    comparison = Comparison(
        is_proven=True,
        files=tuple(sorted(stale.changed)),
        folders=stale.changed_folders,
        removed=_count_objects(tree, removed),
        links=languages[LINK],
        others=languages[""],
    )
    if comparison.is_changed:
        (build_dir / CONFIGURED).unlink(missing_ok=True)
    return comparison


def _valid_record(build_dir: Path) -> Found | None:
    """Return the record of the last compile: of its start, if it was not completed."""
    complete = read(build_dir / COMPLETE)
    started = read(build_dir / STARTED)
    identity = complete.identity if complete else ""
    if started is not None and started.record.checks.follows == identity:
        return started
    return complete


def _remove_all(build_dir: Path, tree: Tree | None) -> Comparison:
    # without a log there may still be installed files: a `compare` that was killed has deleted the log
    had_outputs = outputs.remove_all(build_dir, tree) or installed.has_installed(build_dir)
    (build_dir / CONFIGURED).unlink(missing_ok=True)
    return Comparison(is_proven=not had_outputs)


def _count_objects(tree: Tree, names: Iterable[str]) -> Mapping[Kind, int]:
    counts = dict.fromkeys(Kind, 0)
    for name in names:
        edge = tree.made[name]
        if tree.language(edge) not in ("", LINK):
            counts[tree.kind(edge)] += 1
    return counts


class _Stale:
    """Finds the outputs of a tree that read other files than there are now."""

    def __init__(self, tree: Tree, headers: Headers, found: Found, environment: Mapping[str, str]) -> None:
        self._tree = tree
        self._headers = headers
        self._record = found.record
        self._date = found.date
        self._environment = environment
        self._contents = Contents()
        self._inputs = Inputs.of(tree)

    @cached_property
    def changed(self) -> frozenset[str]:
        """The recorded files with another content, also those that vanished or appeared."""
        return frozenset(filter(self._is_stale, self._record.files))

    def _is_stale(self, path: str) -> bool:
        """Return whether a file is not known to be the one that outputs read."""
        before = self._record.content(path)
        return before == UNKNOWN or before != self._contents.of(path)

    @cached_property
    def changed_folders(self) -> tuple[str, ...]:
        """The recorded folders with other names or contents, and the Pythons with other modules."""
        now = name_folders(self._environment)
        for folder in self._record.checks.include_folders:
            now[folder] = digest_of(self._contents.below(folder))
        before = self._record.folders
        changed = set(before.keys() - now.keys())
        for path in now:
            if before.get(path) != now[path]:
                changed.add(path)
        return tuple(sorted({*changed, *self._changed_pythons, *self._moved}))

    @cached_property
    def _moved(self) -> Mapping[str, str]:
        """The recorded links that lead elsewhere."""
        return aliases.moved(self._record.checks.aliases)

    @cached_property
    def _changed_pythons(self) -> frozenset[str]:
        now = generators.digests(self._tree, self._contents)
        before = self._record.checks.generators
        changed: set[str] = set()
        for python, modules in now.items():
            is_unknown = modules in (UNKNOWN, ABSENT)
            if is_unknown or before.get(python) != modules:
                changed.add(python)
        return frozenset(changed)

    def outputs(self) -> Iterator[str]:
        """Yield the names of these outputs; some several times."""
        yield from self._headers.members(self._stale_objects())
        with_headers = frozenset(self._headers.objects)
        is_changed = bool(self.changed or self.changed_folders)
        ages = self._record.checks.ages
        for edge in self._tree.statements:
            is_stale = self._is_stale_statement(edge)
            for name in edge.outputs:
                # an object without a list of headers may have read any changed file
                is_unknown = is_changed and _is_object(name) and name not in with_headers
                if name in self._tree.made and (is_stale or is_unknown or self._is_newer(name, ages)):
                    yield name

    def _is_newer(self, name: str, ages: Mapping[str, int]) -> bool:
        """Return whether an output was made after the record, which says nothing about it then."""
        if not ages:  # a compile that was started: the record holds for all outputs
            return False
        date = date_of(self._tree.absolute(name))
        return date is not None and self._date - date != ages.get(name)

    def _is_stale_statement(self, edge: Edge) -> bool:
        """Return whether a program or an input of a statement changed, headers left out."""
        language = self._tree.language(edge)
        if language in self._changed_languages:
            return True
        if any(map(self._is_stale, self._inputs.of_statement(edge))):
            return True
        return not language and generators.python_of(self._tree, edge) in self._changed_pythons

    @cached_property
    def _changed_languages(self) -> frozenset[str]:
        """The languages whose programs changed, or are others."""
        before = self._record.checks.languages
        now = self._inputs.languages
        found: set[str] = set()
        for language in before.keys() | now.keys():
            paths = now.get(language, ())
            if before.get(language) != paths or any(map(self._is_stale, paths)):
                found.add(language)
        return frozenset(found)

    def _stale_objects(self) -> int:
        """Return the objects with a changed or unknown header, or with one that another file shadows now."""
        objects = aliases.readers(self._tree, self._headers, self._moved)
        for path, readers in self._headers.readers.items():
            if self._tree.is_outside(path) and self._is_stale(path):
                objects |= readers
        checks = self._record.checks
        # at the start of a compile, the headers of its objects are not known yet
        probes = checks.probes or find_probes(self._headers.readers)
        shadows = Shadows(self._tree, self._inputs.toolchain, self._headers, probes, checks.aliases)
        harmless = frozenset(checks.harmless)
        for path, concerned in shadows.candidates().items():
            if not concerned:
                continue
            if not self._tree.is_outside(path):
                objects |= self._older_objects(path, concerned)
            elif path not in harmless and self._record.content(path) in (ABSENT, UNKNOWN):
                objects |= concerned
        for path in (*self.changed, *harmless):
            if self._contents.of(path) == ABSENT:
                objects |= shadows.concerned(path)
        return objects

    def _older_objects(self, path: str, objects: int) -> int:
        """Return those of a set of objects that are older than a file."""
        date = date_of(path) or 0
        older = 0
        for number, name in enumerate(self._headers.objects):
            if objects >> number & 1:
                made = date_of(self._tree.absolute(name))
                if made is not None and made < date:
                    older |= 1 << number
        return older


def _is_object(name: str) -> bool:
    return name.endswith((".o", ".obj"))
