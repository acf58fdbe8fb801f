"""``audit --bump``: read both releases and the recipe, and return the report of what another version changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from groundwork.errors import Interrupted, UsageError
from groundwork.result import Result
from megabuild.configs.config import Config, available, load
from megabuild.configs.matrix import MATRIX_FILE
from pin_audit import feedstock, release, repositories
from pin_audit.bump import Bump, BumpContext, Change, Line, collect, read_lines
from pin_audit.make_report import AuditOptions, make_request, make_services
from pin_audit.markdown import table
from pin_audit.report_file import write
from pin_audit.request import AuditRequest
from pin_audit.sources.wheel_metadata import newest_version
from pin_audit.targets import find, packages, target

#: Options without effect on a bump, by name; some are spelled otherwise on the command line.
_REFUSED = (
    "release",
    "every",
    "only",
    "skipped",
    "write",
    "compare",
    "fail_on",
    "upstream",
    "ref",
    "snapshot",
)
_SPELLED = {"every": "all", "only": "source", "skipped": "skip", "fail_on": "fail-on"}


def bump(
    options: AuditOptions, root: Path, *, tell: Callable[[str], None], progress: Callable[[str], None]
) -> Result:
    """Return what must change in a repository for another version of its package."""
    if given := [name for name in _REFUSED if getattr(options, name)]:
        raise UsageError(f"--{_SPELLED.get(given[0], given[0])} has no effect with --bump", "leave it out")
    try:
        found = _collect(options, root, progress)
    except KeyboardInterrupt:
        raise Interrupted("interrupted", "downloads are cached; run it again to continue") from None
    result = Result(
        format="audit-bump", document=msgspec.to_builtins(found), lines=markdown(found).splitlines()
    )
    if options.output is None:
        return result
    as_json = options.form == "json" or options.output.suffix == ".json"
    text = (
        msgspec.json.format(msgspec.json.encode(result.to_json()), indent=1).decode()
        if as_json
        else markdown(found)
    )
    write(f"{text.rstrip()}\n", options.output)
    tell(f"written: {options.output}")
    return Result(format="audit-bump", document=result.document)


def markdown(found: Bump) -> str:
    """Return a bump as Markdown."""
    if found.old == found.new:
        return f"## {found.package} {found.old}\n\nThis is the newest version that an index has.\n"
    commit = f" ({found.commit[:10]})" if found.commit else ""
    heads = ("where", "what", found.old, found.new, "who", "why")
    order = sorted(found.changes, key=lambda one: one.kind)
    parts = [f"## {found.package} {found.old} to {found.new}{commit}", table(heads, map(_row, order))]
    if found.unread:
        parts.append("Something may be missing of what was not read now:")
        parts.append(table(("source", "why"), (one.partition(": ")[::2] for one in found.unread)))
    return "\n\n".join(parts) + "\n"


def _row(one: Change) -> tuple[str, ...]:
    place = f"{one.file}:{one.line}" if one.line else one.file
    old, new = (
        f"{text[:16]}…" if re.fullmatch("[0-9a-f]{40,}", text) else text for text in (one.old, one.new)
    )
    return place, one.topic, old, new, one.kind, "; ".join(filter(None, (one.source, one.note)))


def _collect(options: AuditOptions, root: Path, progress: Callable[[str], None]) -> Bump:
    services = make_services(options, lambda _, text: progress(text))
    if len(options.package_words) > 1:
        raise UsageError("--bump is about one package", "name it with --package")
    package = find(options.package_words[0]) if options.package_words else packages()[0]
    own = feedstock.is_own(root) and (root / package.recipe).is_file()
    configs = tuple(load(root, name) for name in available(root)) if own else feedstock.configs(root)
    kept = tuple(config for config in configs if config.provider == "conda-forge")
    recipe, matrix = _lines(root, package.recipe if own else "")
    old = _built(recipe, matrix, configs if own else (), package.key)

    def asked(version: str | None, local: AuditOptions) -> AuditRequest:
        if own:
            one = target(package, kept, root, version=version)
        else:
            one = feedstock.target(root, kept, upstream=None, ref=None, version=version)
        return make_request(one, local, kept, services, root, foreign=not own)

    version = options.bump or ""
    if version == "newest":
        named = asked(None, options).target
        torch = next((one.torch_version for one in kept), "")
        version = newest_version(named.wheel, named.index, torch, services)
        if version == old:
            return Bump(package=named.package, old=old, new=old)
    elif version == old:
        raise UsageError(f"{recipe[0].file} has {old} already", "name another version")
    requests = asked(old, AuditOptions(timeout=options.timeout)), asked(version, options)
    try:
        with ThreadPoolExecutor() as pool:
            before, after = pool.map(release.read, requests)
        key = package.key if own else ""
        return collect(
            BumpContext(
                root=root, request=requests[1], old=before, new=after, recipe=recipe, matrix=matrix, key=key
            )
        )
    finally:
        repositories.stop()


def _lines(root: Path, own: str) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    """Return the lines of the recipes that a bump concerns, and of the file with the matrix."""
    if own:
        wheel = "recipe/wheel/recipe.yaml"
        named = [own, *([wheel] if own == packages()[0].recipe and (root / wheel).is_file() else [])]
        return tuple(line for name in named for line in read_lines(root, name)), read_lines(root, MATRIX_FILE)
    for name in ("recipe/recipe.yaml", "recipe/meta.yaml", "recipe.yaml", "meta.yaml"):
        if (root / name).is_file():
            beside = str(Path(name).with_name(MATRIX_FILE))
            return read_lines(root, name), read_lines(root, beside) if (root / beside).is_file() else ()
    raise UsageError(
        f"{root} has no recipe", "name a repository with recipe/recipe.yaml or recipe/meta.yaml: --root DIR"
    )


def _built(recipe: tuple[Line, ...], matrix: tuple[Line, ...], configs: tuple[Config, ...], key: str) -> str:
    """Return the version that a recipe is at: that of most configs, or as it is written."""
    if configs:
        built = Counter(
            config.variant.get(key, ("",))[0] for config in configs if config.provider == "conda-forge"
        )
        return built.most_common(1)[0][0]
    for line in recipe:
        if found := re.match(
            r"""^\s*(?:\{%-?\s*set\s+)?version\s*[:=]\s*["']?(\d[\w.+-]*)["']?""", line.text
        ):
            return found[1]
    raise UsageError(
        f"{recipe[0].file} names no version", "write it as a value of context:, or of {% set version %}"
    )
