"""Make the report: resolve targets, read sources, build tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import structs

from groundwork.errors import AuditError, MegabuildError, UsageError
from groundwork.files import cache_folder
from groundwork.network.cache import now
from megabuild.configs.config import Config, available, load, select
from pin_audit import feedstock, repositories, snapshots
from pin_audit.facts import AuditTarget, SourceOutcome
from pin_audit.meta_yaml import names_of
from pin_audit.name_map import names
from pin_audit.recipe_lines import names_in, requirement_lines
from pin_audit.report_file import Report
from pin_audit.repositories import open_tree
from pin_audit.request import AuditRequest, Lazy, Local
from pin_audit.run_sources import SOURCES, gather, sources
from pin_audit.services import Services
from pin_audit.sources.wheel_metadata import newest_version
from pin_audit.table import tabulate
from pin_audit.targets import AuditedPackage, find, packages, target
from pin_audit.texts import read_text


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """The options of the command line."""

    package_words: tuple[str, ...] = ()
    every: bool = False
    release: str | None = None
    patterns: tuple[str, ...] = ()
    upstream: str | None = None  #: of another project; with `ref`
    ref: str | None = None
    tree: Path | None = None
    pinning: Path | None = None
    only: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    offline: bool = False
    timeout: float = 300.0  #: seconds
    form: str | None = None  #: ``markdown`` or ``json``
    output: Path | None = None
    write: Path | None = None
    compare: Path | None = None
    fail_on: str | None = None  #: statuses with commas between them
    live: bool = False  #: without committed facts
    snapshot: bool = False  #: commit what is read
    bump: str | None = None  #: the version for which to say what must change


def make(
    options: AuditOptions, root: Path, *, progress: Callable[[str], None] = lambda _: None
) -> tuple[Report, tuple[str, ...]]:
    """Make a report on this repository; returns it with warnings about the cache."""
    _check(options)
    wanted = _select_sources(options.only, options.skipped)
    foreign = options.upstream is not None or not feedstock.is_own(root)
    configs = feedstock.configs(root) if foreign else _configs(options, root)
    reads = sources(wanted)
    warnings: dict[str, None] = {}

    def report(source: str, text: str) -> None:
        if source == "cache":
            warnings[text] = None
        else:
            progress(text)

    services = make_services(options, report)
    if foreign:
        words = {"upstream": options.upstream, "ref": options.ref, "version": options.release}
        targets = [feedstock.target(root, configs, **words)]
    else:
        targets = [
            target(package, configs, root, version=_version(options, package, configs, services))
            for package in _packages(options)
        ]
    requests = [make_request(one, options, configs, services, root, foreign=foreign) for one in targets]
    try:
        found = gather(requests, reads)
    finally:
        repositories.stop()
    audits = []
    channel = None if options.live else snapshots.load(snapshots.CHANNEL, "")
    for one in targets:
        outcomes = tuple(_with_remark(outcome, options, one) for outcome in found[one.package])
        if options.snapshot:
            saved = [snapshots.save(new) for new in snapshots.of(one, outcomes, now())]
            warnings |= dict.fromkeys(f"written: {path}" for path in saved)
        if not options.live:
            known = (snapshots.load(one.package, one.version) if _is_upstreams(one) else None, channel)
            named = _named(options)
            outcomes = tuple(
                outcome if outcome.source in named else snapshots.fill(outcome, known) for outcome in outcomes
            )
        audits.append(tabulate(one, outcomes, names()))
    return Report(made=now(), audits=tuple(audits)), tuple(warnings)


def _named(options: AuditOptions) -> set[str]:
    """Return the sources for which local files are named: these, and nothing else, are what is asked for."""
    given = {
        "ci_pins": options.tree,
        "upstream_archs": options.tree,
        "pinning": options.pinning,
    }
    return {source for source, path in given.items() if path is not None}


def _is_upstreams(one: AuditTarget) -> bool:
    """Whether the tag of a package's own upstream is asked for, rather than a mirror or another project."""
    return any(
        (one.package, one.repository, one.tag)
        == (known.name, known.repository, known.tag.format(version=one.version))
        for known in packages()
    )


def _check(options: AuditOptions) -> None:
    """Refuse options that exclude each other."""
    if options.every and options.package_words:
        raise UsageError("--all and --package exclude each other", "leave one out")
    if options.every or len(options.package_words) > 1:
        for name in ("release", "tree", "upstream"):
            if getattr(options, name):
                raise UsageError(f"--{name} is about one package", "name it with --package, without --all")


def _select_sources(only: tuple[str, ...], skipped: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sources to read, by names or globs of those to include (none: all) and to exclude."""

    def among(name: str, patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    for pattern in (*only, *skipped):
        if not any(among(name, (pattern,)) for name in SOURCES):
            raise UsageError(f"'{pattern}' is not a source of the audit", f"they are: {', '.join(SOURCES)}")
    left = tuple(name for name in SOURCES if among(name, only or ("*",)) and not among(name, skipped))
    if not left:
        raise UsageError("every source is left out", "skip fewer")
    return left


def _configs(options: AuditOptions, root: Path) -> tuple[Config, ...]:
    """Return the named configs; else those that build with conda-forge's packages, the ones to compare."""
    everything = available(root)
    chosen = {name for pattern in options.patterns for name in select(everything, pattern)}
    loaded = (load(root, name) for name in everything if name in chosen or not options.patterns)
    return tuple(config for config in loaded if chosen or config.provider == "conda-forge")


def _packages(options: AuditOptions) -> tuple[AuditedPackage, ...]:
    if options.every:
        return packages()
    return tuple(dict.fromkeys(find(word) for word in options.package_words or ("pytorch",)))


def _version(
    options: AuditOptions, package: AuditedPackage, configs: tuple[Config, ...], services: Services
) -> str | None:
    if options.release != "newest":
        return options.release
    try:
        torch = next((config.torch_version for config in configs), "")
        return newest_version(package.wheel, package.index, torch, services)
    except MegabuildError as error:
        raise AuditError(error.message, error.remedy) from error


def make_services(options: AuditOptions, report: Callable[[str, str], None]) -> Services:
    """Return what sources share: cache, client and time limit."""
    return Services(
        cache_folder(os.environ) / "audit",
        offline=options.offline,
        seconds=options.timeout,
        report=report,
    )


def make_request(
    one: AuditTarget,
    options: AuditOptions,
    configs: tuple[Config, ...],
    services: Services,
    root: Path,
    *,
    foreign: bool,
) -> AuditRequest:
    """Return the request that every source gets for a package."""
    try:
        v1 = one.recipe is not None and one.recipe.name == "recipe.yaml"
        recipe = names_in(requirement_lines(one.recipe, root)) if one.recipe and v1 else ()
        if one.recipe and not v1:
            recipe = names_of(read_text(one.recipe, root))
    except AuditError:
        recipe = ()  # recipe_pins says so
    return AuditRequest(
        target=one,
        services=services,
        repository=Lazy(lambda: open_tree(one, services)),
        configs=tuple(config for config in configs if config.name in {build.name for build in one.builds}),
        root=root,
        local=Local(
            tree=options.tree,
            pinning=options.pinning,
        ),
        foreign=foreign,
        names=names().wanted(one.package, recipe, submodules=foreign),
    )


def _with_remark(outcome: SourceOutcome, options: AuditOptions, one: AuditTarget) -> SourceOutcome:
    """Note that values come from a local file or folder instead of upstream."""
    remark = ""
    if options.tree is not None and outcome.source in ("ci_pins", "upstream_archs"):
        remark = f"read from a local folder (--tree), which need not be {one.tag}"
    elif options.pinning is not None and outcome.source == "pinning":
        remark = "read from local files (--pinning)"
    if not remark or all(fact.trouble for fact in outcome.facts):
        return outcome
    return structs.replace(outcome, trouble="; ".join(filter(None, (outcome.trouble, remark))))
