"""From the audit's options to its report: targets and services are made, sources asked, tables drawn up."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import platformdirs
import psutil
from msgspec import structs
from rich.console import Console

from megabuild.audit.facts import Outcome, Target, Tree
from megabuild.audit.gather import OWN, gather, sources
from megabuild.audit.names import Names, names
from megabuild.audit.recipe_lines import names_in, requirement_lines
from megabuild.audit.report.jsonfile import Report, read
from megabuild.audit.request import Local, Request, Services
from megabuild.audit.rows import tabulate
from megabuild.audit.targets import Package, find, packages, target
from megabuild.cli.audit_progress import Progress
from megabuild.configs.config import Config, available, load, select
from megabuild.errors import AuditError, MegabuildError, UsageError

_NEWEST = "newest"
_TERMINATED = 2.0  # seconds in which a process ends by itself when it is asked to


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The audit's options, checked as far as that goes without reading anything.

    Parameters
    ----------
    anew:
        ``--source`` was given: with a report to start from, these are read anew.
    max_age, seconds:
        In seconds.
    """

    packages: tuple[str, ...]
    every: bool
    version: str | None
    patterns: tuple[str, ...]
    upstream: str | None
    tree: Path | None
    wheel: Path | None
    pinning: Path | None
    repodata: Path | None
    start: Path | None
    sources: tuple[str, ...]
    anew: bool
    offline: bool
    max_age: float
    seconds: float


def make(wishes: Wishes, root: Path) -> tuple[Report, tuple[str, ...]]:
    """Make a report.

    Parameters
    ----------
    root:
        This repository.

    Returns
    -------
    The report, and what the cache had to say.
    """
    mapping = names()
    old = read(wishes.start, mapping) if wishes.start else None
    if old is not None and not wishes.anew:
        return _only(old, wishes), ()
    configs = _configs(wishes, root)
    console = Console(stderr=True, highlight=False, emoji=False, markup=False)
    said: list[Callable[[str, str], None]] = []
    services = Services(
        cache_folder(),
        offline=wishes.offline,
        seconds=wishes.seconds,
        max_age=wishes.max_age,
        report=lambda source, text: said[0](source, text) if said else None,
    )
    if old is not None:
        old = _only(old, wishes)
        targets = [_again(audit.target, configs, root) for audit in old.audits]
    else:
        targets = [target(package, configs, root, version=_version(wishes, package, configs, services),
                          repository=wishes.upstream) for package in _packages(wishes)]  # fmt: skip
    requests = [_request(one, wishes, configs, services, root, mapping) for one in targets]
    reads = sources(wishes.sources)
    with Progress(console, len(requests) * len(reads)) as progress:
        said.append(progress.say)
        found = gather(requests, reads, progress.step)
    audits = []
    for request in requests:
        outcomes = tuple(_with_remarks(one, wishes, request.target) for one in found[request.target.package])
        if old is not None:
            before = next(one for one in old.audits if one.target.package == request.target.package)
            fresh = {outcome.source for outcome in outcomes}
            outcomes += tuple(outcome for outcome in before.outcomes if outcome.source not in fresh)
        audits.append(tabulate(request.target, outcomes, mapping))
    only_ours = old is not None and set(wishes.sources) <= set(OWN)
    made = old.made if old is not None and only_ours else _now()
    return Report(made=made, audits=tuple(audits)), progress.warnings


def _with_remarks(outcome: Outcome, wishes: Wishes, one: Target) -> Outcome:
    """Say of values from a stand-in that they are."""
    remark = ""
    if wishes.tree is not None and outcome.source in ("ci_pins", "upstream_archs"):
        remark = f"read from a local folder (--tree), which need not be {one.tag}"
    elif wishes.pinning is not None and outcome.source == "pinning":
        remark = "read from local files (--pinning)"
    if not remark or all(fact.trouble for fact in outcome.facts):
        return outcome
    return structs.replace(outcome, trouble="; ".join(filter(None, (outcome.trouble, remark))))


def cache_folder() -> Path:
    """Return where what was fetched is kept."""
    named = os.environ.get("MEGABUILD_CACHE", "")
    return (Path(named).absolute() if named else platformdirs.user_cache_path("megabuild")) / "audit"


def children() -> frozenset[int]:
    """Return the processes that this one has started and that still run."""
    return frozenset(child.pid for child in psutil.Process().children(recursive=True))


def end_children(before: frozenset[int]) -> None:
    """End what threads still have running when the audit is over or interrupted: a git that waits for its server.

    Parameters
    ----------
    before:
        What ran before the audit, and is not its own.
    """
    ours = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    for child in ours:
        with contextlib.suppress(psutil.Error):
            child.terminate()
    _, alive = psutil.wait_procs(ours, timeout=_TERMINATED)
    for child in alive:
        with contextlib.suppress(psutil.Error):
            child.kill()


def _only(report: Report, wishes: Wishes) -> Report:
    """Narrow a report to the packages that were named."""
    if not wishes.packages:
        return report
    wanted = {find(word).name for word in wishes.packages}
    left = tuple(audit for audit in report.audits if audit.target.package in wanted)
    missing = wanted - {audit.target.package for audit in left}
    if missing:
        raise UsageError(f"{wishes.start} has no {', '.join(sorted(missing))}", "name a report that has it")
    return replace(report, audits=left)


def _again(old: Target, configs: tuple[Config, ...], root: Path) -> Target:
    """Return a report's target as this repository has it now."""
    package = find(old.package)
    return structs.replace(
        target(package, configs, root, version=old.version, repository=old.repository), tag=old.tag
    )


def _configs(wishes: Wishes, root: Path) -> tuple[Config, ...]:
    """Return those that were named; else those that build with conda-forge's packages, which is what is compared."""
    everything = available(root)
    chosen = {name for pattern in wishes.patterns for name in select(everything, pattern)}
    loaded = (load(root, name) for name in everything if name in chosen or not wishes.patterns)
    return tuple(config for config in loaded if chosen or config.provider == "conda-forge")


def _packages(wishes: Wishes) -> tuple[Package, ...]:
    if wishes.every:
        return packages()
    return tuple(dict.fromkeys(find(word) for word in wishes.packages or ("pytorch",)))


def _version(wishes: Wishes, package: Package, configs: tuple[Config, ...], services: Services) -> str | None:
    if wishes.version != _NEWEST:
        return wishes.version
    from megabuild.audit.sources.wheel_metadata import newest_version

    try:
        torch = next((config.torch_version for config in configs), "")
        return newest_version(package.wheel, package.index, torch, services)
    except MegabuildError as error:
        raise AuditError(error.message, error.remedy) from error


def _request(
    one: Target, wishes: Wishes, configs: tuple[Config, ...], services: Services, root: Path, mapping: Names
) -> Request:
    local = Local(wheel=wishes.wheel, tree=wishes.tree, pinning=wishes.pinning, repodata=wishes.repodata)
    try:
        recipe = names_in(requirement_lines(one.recipe)) if one.recipe else ()
    except AuditError:
        recipe = ()  # recipe_pins says so
    return Request(
        target=one,
        services=services,
        tree=_Once(lambda: _tree(one, wishes.tree, services)),
        configs=tuple(config for config in configs if config.name in {build.name for build in one.builds}),
        root=root,
        local=local,
        names=mapping.wanted(one.package, recipe),
    )


class _Once:
    """Opens a tree when it is first wanted; whoever comes later gets the same tree, or the same refusal."""

    def __init__(self, make: Callable[[], Tree]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: Tree | AuditError | None = None

    def __call__(self) -> Tree:
        with self._lock:
            if self._made is None:
                try:
                    self._made = self._make()
                except AuditError as error:
                    self._made = error
            if isinstance(self._made, AuditError):
                raise self._made
            return self._made


def _tree(one: Target, folder: Path | None, services: Services) -> Tree:
    from megabuild.audit.trees import LocalTree, open_tree

    return open_tree(one, services) if folder is None else LocalTree(folder)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
