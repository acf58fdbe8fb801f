"""``audit --bump VERSION``: list the changes for another version, with line, old and new value, and source.

Nothing is written. A published value is ``certain``; a decision is ``for a person``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from megabuild.configs.config import CONFIG_FOLDER
from megabuild.configs.provider_name import ProviderName
from pin_audit.bump_context import BumpContext, Change, ChangeKind, Release, change
from pin_audit.bump_hashes import hashes
from pin_audit.bump_requirements import availability, new_pythons, pythons, requirements
from pin_audit.facts import Requirement, Submodule, UpstreamArchs
from pin_audit.recipe_lines import Line
from pin_audit.rows import cuda_of_wheel

_BUILD = re.compile(
    r"""^\s*(?:\{%\s*set\s+)?(?:build|number|build_number)\s*[:=]\s*["']?([1-9]\d*)["']?\s*(?:%\}|#|$)"""
)
_PATCH = re.compile(r"^\s*-\s+(\S+\.patch)\b")
_REVISION = re.compile(r"""^\s*(?:-\s+)?(?:rev|git_rev):\s*["']?(\S.*?)["']?\s*(?:\s#.*)?$""")
_COMMIT = re.compile(r"\b[0-9a-f]{40}(?:[0-9a-f]{24})?\b")
_CUDA_KEY = "cuda_compiler_version"
_RENDERED = "scripts/test tests/integration/test_render_*.py -k kept --renew-names"
#: Files that are generated from the recipes and the matrix, with their commands.
_GENERATED = {
    CONFIG_FOLDER: "python scripts/megabuild configs --write",
    "tests/data/rendered.json": _RENDERED,
    "tests/data/rendered_pyg.json": _RENDERED,
    "docs/dependencies.md": "python scripts/megabuild audit --write docs/dependencies.md",
}


class Bump(Struct, frozen=True, kw_only=True):
    """All changes for another version of a package."""

    package: str
    old: str
    new: str
    commit: str = ""  #: of the new version; empty if not read
    changes: tuple[Change, ...] = ()
    unread: tuple[str, ...] = ()  #: sources that could not be read, so that changes may be missing


def collect(context: BumpContext) -> Bump:
    """Return all changes for the new version."""
    changes: list[Change] = []
    for step in STEPS:
        changes += step(context)
    return Bump(
        package=context.request.target.package,
        old=context.old.version,
        new=context.new.version,
        commit=context.new.commit,
        changes=tuple(dict.fromkeys(changes)),
        unread=(*_unread(context.old), *_unread(context.new)),
    )


def _unread(release: Release) -> Iterator[str]:
    for outcome in release.outcomes:
        if outcome.applies and outcome.trouble:
            yield f"{outcome.source} of {release.version}: {outcome.trouble}"


def _versions(context: BumpContext) -> Iterator[Change]:
    old = context.old.version
    lines = context.values(context.key or "version", old)
    yield from context.set_value("version", lines, old=old, new=context.new.version, source="--bump")
    for line in context.recipe:
        if match := _BUILD.match(line.text):
            reason = "a new version starts at build 0"
            yield from context.set_value("build number", [line], old=match[1], new="0", source=reason)


@dataclass(frozen=True, kw_only=True)
class NewCommit:
    """The commit that replaces an old one, and its source."""

    commit: str = ""  #: empty if unknown
    source: str = ""


def _commits(context: BumpContext) -> Iterator[Change]:
    """Yield the commits that a recipe takes from git: upstream's own, and those of its submodules."""
    moved = _moved_commits(context)
    for line in context.recipe:
        taken = _REVISION.match(line.text)
        if taken is None:
            continue
        for definition in context.definitions(line, taken[1]):
            commit = _COMMIT.search(definition.text)
            if commit is None:
                continue
            new = moved.get(commit[0], NewCommit())
            source = new.source
            if not new.commit:
                source = f"the commit of {context.new.version} was not read"
            yield from context.set_value("commit", [definition], old=commit[0], new=new.commit, source=source)


def _moved_commits(context: BumpContext) -> dict[str, NewCommit]:
    """Return the new commit for each old one."""
    now = {fact.name: fact.commit for fact in context.new.all(Submodule)}
    moved = {}
    for fact in context.old.all(Submodule):
        moved[fact.commit] = NewCommit(commit=now.get(fact.name, ""), source=fact.name)
    tag = f"the tag of {context.new.version}"
    moved[context.old.commit] = NewCommit(commit=context.new.commit, source=tag)
    return moved


def _cuda(context: BumpContext) -> Iterator[Change]:
    """Yield the CUDA versions of conda-forge's configs if upstream ships others."""
    here: dict[str, Line] = {}
    for line in context.matrix:
        of_conda_forge = not line.is_of_debian and not line.is_of_wheels
        if line.key == _CUDA_KEY and of_conda_forge and re.match(r"\d", line.value):
            here[line.value] = line
    of_wheel = cuda_of_wheel(context.new.all(Requirement))
    shipped = {of_wheel} if "." in of_wheel else set()  # a range names no version
    for fact in context.new.all(UpstreamArchs):
        shipped.update(fact.holds.cuda)
    if here and shipped and shipped != here.keys():
        yield change(
            next(iter(here.values())),
            "CUDA",
            ChangeKind.PERSON,
            old=", ".join(sorted(here)),
            new=", ".join(sorted(shipped)),
            note="conda-forge's pinning decides",
        )


def _patches(context: BumpContext) -> Iterator[Change]:
    """Yield the patches of conda-forge's builds, which a person has to apply to the new source."""
    others = {name.value for name in ProviderName if name is not ProviderName.CONDA_FORGE}
    lines: dict[str, Line] = {}
    for line in context.recipe:
        match = _PATCH.match(line.text)
        if match is None:
            continue
        path = Path(match[1])
        if others.isdisjoint(path.parts):
            lines[path.name] = line
    if lines:
        first = next(iter(lines.values()))
        note = f"check that they apply: {', '.join(lines)}"
        yield change(first, "patches", ChangeKind.PERSON, old=f"{len(lines)} patches", note=note)


def _generated(context: BumpContext) -> Iterator[Change]:
    """Yield the generated files, with the command that makes each."""
    commands = _GENERATED if context.key else {CONFIG_FOLDER: "conda-smithy rerender"}
    for name, command in commands.items():
        if (context.root / name).exists():
            yield change(Line(name, 0, ""), "generated", ChangeKind.CERTAIN, note=command)


#: The parts of a bump, in the order of its changes.
STEPS: tuple[Callable[[BumpContext], Iterator[Change]], ...] = (
    _versions,
    hashes,
    _commits,
    requirements,
    availability,
    pythons,
    new_pythons,
    _cuda,
    _patches,
    _generated,
)
