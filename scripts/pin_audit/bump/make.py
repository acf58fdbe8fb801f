"""Make a bump: read both releases and the recipes, and collect everything that must change."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from groundwork.errors import UsageError
from groundwork.files import cache_folder
from megabuild.configs.config import Config, available, load
from megabuild.configs.matrix import MATRIX_FILE
from pin_audit import feedstock, git
from pin_audit.bump import around, needs, pythons, recipe, release
from pin_audit.bump.changes import Bump, Change
from pin_audit.bump.places import VariantFile
from pin_audit.bump.recipe import Recipe
from pin_audit.bump.release import Release
from pin_audit.bump.scene import Scene
from pin_audit.gather import gather, sources
from pin_audit.make_report import AuditOptions
from pin_audit.names import names
from pin_audit.request import AuditRequest, Lazy, Local
from pin_audit.services import Services
from pin_audit.sources.wheel_metadata import newest_version
from pin_audit.table import tabulate
from pin_audit.targets import AuditedPackage, find, packages, target
from pin_audit.trees import open_tree

_STEPS: tuple[Callable[[Scene], Iterator[Change]], ...] = (
    around.versions, around.hashes, around.commits, needs.requirements, pythons.pythons, needs.cuda, needs.back_end,
    needs.conditions, around.extensions, around.patches, around.generated,
)  # fmt: skip
#: What the audit asks of this repository and of conda-forge to judge a library's version.
_JUDGES = ("pinning", "recipe_pins", "recipe_commits", "recipe_archs")
_MEANING = {
    "submodules": "the submodules",
    "upstream_archs": "the CUDA versions and architectures",
    "wheel_metadata": "the requirements and Pythons",
    "wheel": "the build back end",
}


def make(options: AuditOptions, root: Path, *, progress: Callable[[str], None] = lambda _: None) -> Bump:
    """Return what must change in a repository for another version of a package.

    Raises UsageError: The version is not one, or is what the recipe has.
    """
    services = Services(
        cache_folder(os.environ) / "audit",
        offline=options.offline,
        seconds=options.timeout,
        max_age=options.max_age * 3600.0,
        report=lambda _, text: progress(text),
    )
    if len(options.package_words) > 1 or options.every:
        raise UsageError("--bump is about one package", "name it with --package, without --all")
    package = find(options.package_words[0]) if options.package_words else packages()[0]
    own = feedstock.is_own(root) and (root / package.recipe).is_file()
    configs = tuple(load(root, name) for name in available(root)) if own else feedstock.configs(root)
    recipes, variants = _files(root, package if own else None)
    old = _built(recipes[0], variants, configs if own else (), package)
    kept = tuple(one for one in configs if one.provider == "conda-forge")
    version = options.bump or ""
    if version == "newest":
        named = (
            target(package, kept, root)
            if own
            else feedstock.target(root, kept, upstream=None, ref=None, version=None)
        )
        torch = next((one.torch_version for one in kept), "")
        version = newest_version(named.wheel, named.index, torch, services)
        if version == old:
            return Bump(package=named.package, old=old, new=old, commit="", changes=(), unread=())
    elif version == old:
        raise UsageError(f"{recipes[0].file.name} has {old} already", "name another version")

    def request(which: str, local: Local) -> AuditRequest:
        if own:
            one = target(package, kept, root, version=which, repository=options.repository)
        else:
            one = feedstock.target(root, kept, upstream=None, ref=None, version=which)
        return AuditRequest(
            target=one,
            services=services,
            repository=Lazy(lambda: open_tree(one, services)),
            configs=kept,
            root=root,
            local=local,
            names=names().wanted(one.package, {asked.name for asked in recipes[0].asked}),
        )

    local = Local(wheel=options.wheel, tree=options.tree, pinning=options.pinning, repodata=options.repodata)
    try:
        asked = request(version, local)
        with ThreadPoolExecutor() as pool:
            before, after = pool.map(release.read, (request(old, Local()), asked))
        judged = gather([asked], sources(_JUDGES))[asked.target.package] if own else ()
    finally:
        git.stop()
    rows = tabulate(asked.target, (*after.outcomes, *judged), names()) if own else None
    beside = _others(root, recipes) if own else ()
    table = (*rows.rows, *rows.archs) if rows else ()
    scene = Scene(root, asked.target.package, before, after, asked, recipes, beside, variants, table)
    changes = [change for step in _STEPS for change in step(scene)]
    covered = {(one.file, one.line) for one in changes if one.line}
    changes += around.mentions(scene, covered)
    return Bump(
        package=asked.target.package,
        old=old,
        new=version,
        commit=scene.new.commit.value,
        changes=tuple(dict.fromkeys(changes)),
        unread=tuple(_unread([before, after])),
    )


def _files(root: Path, package: AuditedPackage | None) -> tuple[tuple[Recipe, ...], VariantFile | None]:
    """Return the recipes that a bump concerns, the main one first, and the file with the matrix."""
    if package is not None:
        found = [package.recipe]
        if package is packages()[0] and (root / "recipe" / "wheel" / "recipe.yaml").is_file():
            found.append("recipe/wheel/recipe.yaml")
        return tuple(recipe.read(root, name) for name in found), VariantFile(root, MATRIX_FILE)
    for name in ("recipe/recipe.yaml", "recipe/meta.yaml", "recipe.yaml", "meta.yaml"):
        if (root / name).is_file():
            beside = str(Path(name).with_name(MATRIX_FILE))
            return (recipe.read(root, name),), VariantFile(root, beside) if (
                root / beside
            ).is_file() else None
    raise UsageError(
        f"{root} has no recipe", "name a repository with recipe/recipe.yaml or recipe/meta.yaml: --root DIR"
    )


def _built(
    main: Recipe, variants: VariantFile | None, configs: tuple[Config, ...], package: AuditedPackage
) -> str:
    """Return the version that a recipe is at: as written, or that of most configs."""
    if configs:
        usual = Counter(
            one.variant.get(package.key, ("",))[0] for one in configs if one.provider == "conda-forge"
        )
        return usual.most_common(1)[0][0]
    version = main.version
    if version is None or (version.key and not (variants and variants.values(version.key))):
        raise UsageError(
            f"{main.file.name} names no version", "write it as a value of context:, or of {% set version %}"
        )
    return variants.values(version.key)[0].value if version.key and variants else version.value


def _others(root: Path, recipes: tuple[Recipe, ...]) -> tuple[Recipe, ...]:
    """Return the recipes of the repository's other packages."""
    known = {one.file.name for one in recipes}
    beside = (one.recipe for one in packages() if one.recipe not in known)
    return tuple(recipe.read(root, name) for name in beside if (root / name).is_file())


def _unread(releases: list[Release]) -> Iterator[str]:
    """Yield sentences on what could not be read of the releases, by reason."""
    reasons: dict[str, dict[str, None]] = {}
    for one in releases:
        for source, reason in one.unread.items():
            if source in _MEANING:
                reasons.setdefault(f"not read ({reason})", {})[f"{_MEANING[source]} of {one.version}"] = None
        for outcome in one.outcomes:
            if outcome.snapshot and outcome.source in _MEANING:
                text = f"from the facts of {outcome.snapshot} that are committed here"
                reasons.setdefault(text, {})[f"{_MEANING[outcome.source]} of {one.version}"] = None
    for reason, what in reasons.items():
        yield f"something may be missing of these, {reason}: {', '.join(what)}"
