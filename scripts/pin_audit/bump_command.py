"""``audit --bump``: read both releases and the recipe, and return the report of what another version changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from groundwork.errors import Interrupted, UsageError
from groundwork.result import Result
from megabuild.configs.config import available, load
from megabuild.configs.matrix import MATRIX_FILE
from pin_audit import feedstock, release, repositories
from pin_audit.bump import Bump, BumpContext, Change, collect
from pin_audit.command import AuditOptions, make_request, make_services
from pin_audit.recipe_lines import read_lines
from pin_audit.report import FORMAT, FORMAT_VERSION, escape, table
from pin_audit.repositories import Repositories
from pin_audit.sources.wheel_metadata import newest_version
from pin_audit.targets import find, packages, target

_WITHOUT_EFFECT = ("release", "write", "fail_on", "snapshot")


def bump(
    options: AuditOptions, root: Path, *, tell: Callable[[str], None], progress: Callable[[str], None]
) -> Result:
    """Return what must change in a repository for another version of its package."""
    if given := [name for name in _WITHOUT_EFFECT if getattr(options, name)]:
        raise UsageError(f"--{given[0].replace('_', '-')} has no effect with --bump", "leave it out")
    try:
        changes = _collect(options, root, progress)
    except KeyboardInterrupt:
        raise Interrupted("interrupted", "downloads are cached; run it again to continue") from None
    document = {"bump": msgspec.to_builtins(changes)}
    lines = _markdown(changes).splitlines()
    return Result(format=FORMAT, format_version=FORMAT_VERSION, document=document, lines=lines)


def _markdown(bump: Bump) -> str:
    if bump.old == bump.new:
        return f"## {bump.package} {bump.old}\n\nThis is the newest version that an index has.\n"
    commit = f" ({bump.commit[:10]})" if bump.commit else ""
    heads = ("where", "what", bump.old, bump.new, "who", "why")
    rows = [
        list(map(escape, _row(change))) for change in sorted(bump.changes, key=lambda change: change.kind)
    ]
    parts = [f"## {bump.package} {bump.old} to {bump.new}{commit}", table(heads, rows)]
    if bump.unread:
        parts.append("Something may be missing of what was not read now:")
        parts.append("\n".join(f"* {escape(text)}" for text in bump.unread))
    return "\n\n".join(parts) + "\n"


def _row(change: Change) -> tuple[str, ...]:
    place = f"{change.file}:{change.line}" if change.line else change.file
    old, new = (
        f"{text[:16]}…" if re.fullmatch("[0-9a-f]{40,}", text) else text for text in (change.old, change.new)
    )
    why = "; ".join(filter(None, (change.source, change.note)))
    return place, change.topic, old, new, change.kind, why


def _collect(options: AuditOptions, root: Path, progress: Callable[[str], None]) -> Bump:
    services = make_services(options, lambda _, text: progress(text))
    repos = Repositories(services)
    if len(options.package_words) > 1:
        raise UsageError("--bump is about one package", "name it with --package")
    package = find(options.package_words[0]) if options.package_words else packages()[0]
    if not (feedstock.is_own(root) and (root / package.recipe).is_file()):
        hint = "audit --release VERSION compares any feedstock with another release"
        raise UsageError(f"{root}: --bump is for this repository's recipes", hint)
    kept = tuple(
        config
        for config in (load(root, name) for name in available(root))
        if config.provider == "conda-forge"
    )
    main = packages()[0].recipe
    names = (main, "recipe/wheel/recipe.yaml") if package.recipe == main else (package.recipe,)
    recipe = tuple(
        line for name in names if (root / name).is_file() for line in read_lines(root / name, root)
    )
    old = target(package, kept, root).version
    version = options.bump or ""
    if version == "newest":
        torch = next((config.torch_version for config in kept), "")
        version = newest_version(package.wheel, package.index, torch, services)
        if version == old:
            return Bump(package=package.name, old=old, new=old)
    elif version == old:
        raise UsageError(f"{recipe[0].file} has {old} already", "name another version")
    requests = [
        make_request(target(package, kept, root, version=name), kept, services, repos, root, foreign=False)
        for name in (old, version)
    ]
    try:
        with ThreadPoolExecutor() as pool:
            before, after = pool.map(release.read, requests)
    finally:
        repositories.stop()
    return collect(
        BumpContext(
            request=requests[1], old=before, new=after, recipe=recipe,
            matrix=read_lines(root / MATRIX_FILE, root), key=package.key,
        )
    )  # fmt: skip
