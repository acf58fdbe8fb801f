"""Write the records: of the files that a compile starts with, and of those that the finished compile read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import generators
from .aliases import find_aliases
from .contents import UNKNOWN, Contents, digest_of, follow
from .inputs import Inputs
from .owners import Owner, Owners
from .record import COMPLETE, STARTED, Checks, Found, Kind, Package, Record, Role, read, write
from .search import include_folders, name_folders, searched_folders
from .shadowing import Shadows, find_probes
from .tree import LINK, Headers, Tree

#: A package whose files this share of the objects reads belongs to the compilers.
_NEARLY_ALL = 0.95
_SECOND = 10**9


def begin(build_dir: Path, environment: Mapping[str, str]) -> int:
    """Record all files that a compile may read, before it; return their number.

    After a kill, `compare` sees with them which files the objects read.

    Raises NinjaError: The tree is not configured; there is no record then.
    """
    started = build_dir / STARTED
    try:
        tree = Tree.load(build_dir)
        contents = Contents()
        inputs = Inputs.of(tree)
        files = {path: contents.of(path) for path in inputs.all()}
        folders = name_folders(environment)
        searched = include_folders(tree, inputs.toolchain)
        for folder in searched:
            below = contents.below(folder)
            folders[folder] = digest_of(below)
            files |= below
        aliases = find_aliases(tree, searched_folders(tree, inputs.toolchain), environment)
        files |= _behind_links(files, aliases)
        former = read(build_dir / COMPLETE)
        checks = Checks(
            languages=inputs.languages,
            generators=generators.digests(tree, contents),
            include_folders=searched,
            aliases=aliases,
            follows=former.identity if former else "",
        )
        write(started, Record(files=files, folders=folders, checks=checks))
    except Exception:
        # of a former compile: it says nothing about the objects that are compiled now
        started.unlink(missing_ok=True)
        raise
    return len(files)


def _behind_links(files: Mapping[str, str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the hashes of files to which recorded links lead, by their own paths, which lists of headers may have."""
    return {follow(path, aliases): content for path, content in files.items()}


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The result of :func:`record`."""

    record: Record
    #: files that changed while the compile ran, or may have
    unknown: tuple[str, ...]


def record(build_dir: Path, environment: Mapping[str, str]) -> Recorded | None:
    """Record the files that a complete compile read; None if its start was not recorded.

    Raises NinjaError: The tree is not configured, or ninja cannot be run; there is no record then.
    """
    started = read(build_dir / STARTED)
    if started is None:
        return None
    try:
        return _record(build_dir, environment, started)
    finally:
        # it would count for outputs that are made later, in other environments
        (build_dir / STARTED).unlink(missing_ok=True)


def _record(build_dir: Path, environment: Mapping[str, str], started: Found) -> Recorded:
    tree = Tree.load(build_dir)
    contents = Contents()
    inputs = Inputs.of(tree)
    headers = tree.read_headers()
    outside = filter(tree.is_outside, headers.readers)
    named = {*outside, *inputs.all()}
    files = {path: _unchanged(path, started, contents) for path in sorted(named)}
    folders = _unchanged_folders(started, environment, contents)
    pythons = _unchanged_pythons(started, generators.digests(tree, contents))
    probes = find_probes(headers.readers)
    shadows = Shadows(tree, inputs.toolchain, headers, probes, started.record.checks.aliases)
    now = time.time_ns() // _SECOND * _SECOND  # a date that every file system keeps
    checks = Checks(
        languages=inputs.languages,
        generators=pythons,
        include_folders=started.record.checks.include_folders,
        aliases=started.record.checks.aliases,
        harmless=tuple(sorted(_harmless(shadows, files))),
        probes=probes,
        ages=_ages(tree, now),
    )
    complete = Record(
        files=files,
        folders=folders,
        checks=checks,
        packages=tuple(_packages(inputs, headers, Owners(environment), named)),
        objects=_count(tree, headers, -1),
    )
    write(build_dir / COMPLETE, complete, now)
    unknown = tuple(path for path, content in files.items() if content == UNKNOWN)
    return Recorded(record=complete, unknown=unknown)


def _unchanged(path: str, started: Found, contents: Contents) -> str:
    """Return the hash of a file if it had this content during the whole compile, else UNKNOWN."""
    now = contents.of(path)
    before = started.record.content(path)
    if before != UNKNOWN:
        return _same(before, now)
    try:
        is_older = os.stat(path).st_ctime_ns < started.date  # no program can set this date
    except OSError:
        return UNKNOWN
    return now if is_older else UNKNOWN


def _same(before: str | None, now: str) -> str:
    return now if before == now else UNKNOWN


def _unchanged_pythons(started: Found, now: Mapping[str, str]) -> Mapping[str, str]:
    """Return the hashes of Pythons whose modules did not change during the compile, and UNKNOWN for the others."""
    before = started.record.checks.generators
    unchanged: dict[str, str] = {}
    for python, modules in now.items():
        unchanged[python] = _same(before.get(python), modules)
    return unchanged


def _unchanged_folders(
    started: Found, environment: Mapping[str, str], contents: Contents
) -> Mapping[str, str]:
    """Return the hashes of folders that did not change during the compile, and UNKNOWN for the others."""
    now = name_folders(environment)
    for folder in started.record.checks.include_folders:
        now[folder] = digest_of(contents.below(folder))
    unchanged: dict[str, str] = {}
    for folder, content in started.record.folders.items():
        unchanged[folder] = _same(content, now.get(folder, UNKNOWN))
    return unchanged


def _harmless(shadows: Shadows, files: Mapping[str, str]) -> Iterable[str]:
    """Yield the files outside the tree with a header's name that the compilers did not take."""
    for path in shadows.candidates():
        if path not in files and shadows.tree.is_outside(path):
            yield path


def _ages(tree: Tree, now: int) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name in tree.made:
        date = date_of(tree.absolute(name))
        if date is not None:
            found[name] = now - date
    return found


def date_of(path: str) -> int | None:
    """Return the date of a file in nanoseconds since 1970; None if there is no file."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _count(tree: Tree, headers: Headers, objects: int) -> Mapping[Kind, int]:
    """Return the number of objects in a set, by kind; -1 is the set of all."""
    counts = dict.fromkeys(Kind, 0)
    for name in headers.members(objects):
        edge = tree.made.get(name)
        if edge is not None:
            counts[tree.kind(edge)] += 1
    return counts


def _packages(inputs: Inputs, headers: Headers, owners: Owners, named: set[str]) -> Iterable[Package]:
    """Yield the packages that own the named files."""
    tree = inputs.tree
    objects: dict[Owner, int] = {}
    for path in named:
        for owner in owners.of(path):
            objects[owner] = objects.get(owner, 0) | headers.readers.get(path, 0)
    links: dict[Owner, int] = {}
    for edge in tree.statements:
        if tree.language(edge) == LINK:
            reading: set[Owner] = set()
            for path in inputs.of_statement(edge):
                if path in named and os.path.isfile(path):
                    reading |= owners.of(path)
            for owner in reading:
                links[owner] = links.get(owner, 0) + 1
    compiling: set[Owner] = set()
    for paths in inputs.languages.values():
        for path in paths:
            compiling |= owners.of(path)
    most = _NEARLY_ALL * len(headers.objects)
    for owner in sorted(objects):
        counts = _count(tree, headers, objects[owner])
        role = Role.CONFIGURE
        if owner in compiling or sum(counts.values()) > most:
            role = Role.COMPILERS
        elif objects[owner] or owner in links:
            role = Role.OBJECTS
        yield Package(
            source=owner.source,
            name=owner.name,
            role=role,
            objects=counts,
            links=links.get(owner, 0),
        )
