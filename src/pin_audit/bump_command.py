"""``audit --bump``: read both releases and the recipe, and report the changes for another version."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from groundwork.errors import UsageError
from groundwork.result import Result
from megabuild.configs.config import MATRIX_FILE
from pin_audit import feedstock
from pin_audit.audit_options import AuditOptions
from pin_audit.audit_report import FORMAT, FORMAT_VERSION, bullets, escape, table
from pin_audit.bump import Bump, collect
from pin_audit.bump_context import BumpContext, Change, read_newest, read_releases
from pin_audit.bump_requirements import needs_of_channel
from pin_audit.command import NEWEST, Session
from pin_audit.recipe_lines import Line, read_lines
from pin_audit.request import AuditRequest
from pin_audit.services import Tell
from pin_audit.sources.wheel_metadata import newest_version
from pin_audit.targets import AuditedPackage, find, packages

_WHEEL = "recipe/wheel/recipe.yaml"
_WITHOUT_EFFECT = ("release", "every", "write", "fail_on", "upstream", "ref", "snapshot")
_SPELLINGS = {"every": "package all", "fail_on": "fail-on"}
_LONG_HASH = re.compile(r"^([0-9a-f]{16})[0-9a-f]{24,}$")


def bump(options: AuditOptions, root: Path, *, tell: Tell, progress: Tell) -> Result:
    """List the changes in a repository for another version of its package."""
    if given := [name for name in _WITHOUT_EFFECT if getattr(options, name)]:
        word = _SPELLINGS.get(given[0], given[0])
        raise UsageError(f"--{word} has no effect with --bump", f"omit --{word}")
    changes = _collect(options, root, progress)
    document = {"bump": msgspec.to_builtins(changes)}
    lines = _markdown(changes).splitlines()
    return Result(format=FORMAT, format_version=FORMAT_VERSION, document=document, lines=lines)


def _markdown(bump: Bump) -> str:
    if bump.old == bump.new:
        return f"## {bump.package} {bump.old}\n\nNo index has a newer version.\n"
    commit = f" ({bump.commit[:10]})" if bump.commit else ""
    heads = ("location", "topic", bump.old, bump.new, "kind", "reason")
    changes = sorted(bump.changes, key=lambda change: change.kind.value)
    parts = [
        f"## {bump.package} {bump.old} to {bump.new}{commit}",
        table(heads, map(_row, changes)),
    ]
    if bump.unread:
        parts.append("Not read now, so changes may be missing:")
        parts.append(bullets(map(escape, bump.unread)))
    return "\n\n".join(parts) + "\n"


def _row(change: Change) -> list[str]:
    location = f"{change.file}:{change.line}" if change.line else change.file
    old = _LONG_HASH.sub(r"\1…", change.old)
    new = _LONG_HASH.sub(r"\1…", change.new)
    reason = "; ".join(filter(None, (change.source, change.note)))
    return [*map(escape, (location, change.topic, old, new)), change.kind.value, escape(reason)]


def _collect(options: AuditOptions, root: Path, progress: Tell) -> Bump:
    package = _chosen_package(options)
    own = feedstock.is_own(root) and (root / package.recipe).is_file()
    session = Session(options, root, progress, foreign=not own)
    request = session.request(package, None)
    recipes = [path for path in (request.target.recipe, _wheel_recipe(package, root, own)) if path]
    recipe: list[Line] = []
    for path in recipes:
        recipe += read_lines(path, root)
    old = request.target.version
    version = _new_version(options.bump or "", request, recipe[0].file)
    if version == old:
        return Bump(package=request.target.package, old=old, new=old)
    requests = (session.request(package, old, local=False), session.request(package, version))
    before, after = read_releases(requests)
    matrix = root / MATRIX_FILE if own else recipes[0].with_name(MATRIX_FILE)
    return collect(
        BumpContext(
            root=root,
            request=requests[1],
            old=before,
            new=after,
            recipe=tuple(recipe),
            matrix=read_lines(matrix, root) if matrix.is_file() else (),
            newest=read_newest(requests[1], needs_of_channel(after)),
            key=package.key if own else "",
        )
    )


def _chosen_package(options: AuditOptions) -> AuditedPackage:
    if len(options.package_words) > 1:
        raise UsageError("--bump takes one package only", "pass a single --package NAME")
    if options.package_words:
        return find(options.package_words[0])
    return packages()[0]


def _wheel_recipe(package: AuditedPackage, root: Path, own: bool) -> Path | None:
    """Return the recipe of this repository that packs official wheels, which changes with PyTorch's."""
    path = root / _WHEEL
    if own and package is packages()[0] and path.is_file():
        return path
    return None


def _new_version(wanted: str, request: AuditRequest, recipe: str) -> str:
    """Return the version of ``--bump``; the recipe's own only if the index has none newer. Raises UsageError."""
    old = request.target.version
    if not old:
        hint = "set version under context:, or with {% set version = ... %}"
        raise UsageError(f"{recipe}: no version", hint)
    if wanted == old:
        raise UsageError(f"{recipe}: already at {old}", "pass another version, or: --bump newest")
    if wanted == NEWEST:
        return newest_version(request)
    return wanted
