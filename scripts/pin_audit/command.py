"""``audit``: read all sources, make the report, write it, and apply ``--fail-on``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from groundwork.errors import AuditError, UnknownError, UsageError, VerdictError
from groundwork.files import cache_folder
from groundwork.network.cache import now
from groundwork.result import Result
from groundwork.text import suggest
from megabuild.configs.config import available, load
from pin_audit import feedstock, snapshots
from pin_audit.audit_report import FORMAT, FORMAT_VERSION, Report, insert, markdown, to_document
from pin_audit.facts import SourceOutcome
from pin_audit.name_map import names
from pin_audit.recipe_lines import names_in
from pin_audit.repositories import Repositories
from pin_audit.request import AuditRequest
from pin_audit.run_sources import READERS, gather
from pin_audit.services import Services, Tell
from pin_audit.sources.wheel_metadata import newest_version
from pin_audit.statuses import STATUSES, Status
from pin_audit.table import tabulate
from pin_audit.targets import AuditedPackage, find, packages, target

#: Sources that an option replaces with local files, and the request's field for them.
_LOCAL = {"ci_pins": "local_tree", "upstream_archs": "local_tree", "pinning": "local_pinning"}


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """The command-line options of ``audit``."""

    package_words: tuple[str, ...] = ()
    release: str | None = None
    upstream: str | None = None  #: another project's repository; needs `ref`
    ref: str | None = None
    tree: Path | None = None
    pinning: Path | None = None
    offline: bool = False
    timeout: float = 300.0  #: seconds
    write: Path | None = None
    every_row: bool = True  #: print also the rows that need no decision
    fail_on: str | None = None  #: comma-separated statuses
    snapshot: bool = False  #: save the facts in releases/
    bump: str | None = None  #: the version whose changes to list

    @property
    def every(self) -> bool:
        """Whether ``--package all`` was passed."""
        return "all" in self.package_words


def audit(options: AuditOptions, root: Path, *, tell: Tell, progress: Tell) -> Result:
    """Audit the repository `root`; write the report, and apply ``--fail-on``."""
    wanted = parse_statuses(options.fail_on) if options.fail_on else ()
    report = make(options, root, progress=progress)
    for warning in report.warnings:
        tell(f"! {warning}")
    if options.write is not None:
        changed = insert(options.write, markdown(report, level=3, lines=False))
        tell(f"{'written' if changed else 'unchanged'}: {options.write}")
    code = _judge(report, wanted, tell) if wanted else 0
    lines = [] if options.write is not None else markdown(report, every=options.every_row).splitlines()
    document = to_document(report)
    return Result(
        format=FORMAT, format_version=FORMAT_VERSION, document=document, lines=lines, exit_code=code
    )


def parse_statuses(text: str) -> tuple[Status, ...]:
    """Parse comma-separated statuses, ``conflict,recipe-older``; raises UsageError."""
    words = [part.strip().lower().replace(" ", "-").replace("_", "-") for part in text.split(",")]
    for word in words:
        if word not in STATUSES:
            raise UsageError(f"--fail-on: unknown status '{word}'", suggest(word, STATUSES))
    return tuple(STATUSES[word] for word in words)


def _judge(report: Report, wanted: Sequence[Status], tell: Tell) -> int:
    """Return the exit code of ``--fail-on``: a row has a wanted status, or a whole source was not read."""
    rows = [
        f"{audit.target.package}: {name}" for audit in report.audits for name in audit.with_status(wanted)
    ]
    if rows:
        tell(f"--fail-on found {', '.join(rows)}")
        return VerdictError.exit_code
    if unread := dict.fromkeys(name for audit in report.audits for name in audit.not_read()):
        tell(
            f"error: --fail-on cannot judge: sources not read: {', '.join(unread)}\n"
            "hint: run the audit once with network access, or pass local files with --tree and --pinning"
        )
        return UnknownError.exit_code
    return 0


def make(options: AuditOptions, root: Path, *, progress: Tell = lambda _: None) -> Report:
    """Audit a repository; return the report, with warnings to print."""
    for name in ("release", "tree", "upstream"):
        if getattr(options, name) and (options.every or len(options.package_words) > 1):
            raise UsageError(f"--{name} takes one package only", "pass a single --package NAME")
    foreign = options.upstream is not None or not feedstock.is_own(root)
    session = Session(options, root, progress, foreign=foreign)
    version = options.release
    if foreign:
        requests = [session.request(None, version)]
    else:
        words = options.package_words or ("pytorch",)
        chosen = packages() if options.every else tuple(dict.fromkeys(map(find, words)))
        if version == "newest":
            version = newest_version(session.request(chosen[0], None))
        requests = [session.request(package, version) for package in chosen]
    audits, warnings = [], session.services.warnings
    for request, outcomes in zip(requests, gather(requests, READERS), strict=True):
        if options.snapshot:
            for snapshot in snapshots.of(request.target, outcomes, now()):
                warnings.append(f"written: {snapshots.save(snapshot)}")
            if unread := [outcome.source for outcome in outcomes if outcome.unread]:
                warnings.append(f"not read, older facts stay: {', '.join(unread)}")
        audits.append(tabulate(request.target, _fill(outcomes, request), names(), foreign=request.foreign))
    return Report(made=now(), audits=tuple(audits), warnings=tuple(dict.fromkeys(warnings)))


def _fill(outcomes: Sequence[SourceOutcome], request: AuditRequest) -> list[SourceOutcome]:
    """Replace unread facts of a known release by committed ones, and mark sources read from local files."""
    audited = request.target
    tags = {(package.repository, package.tag.format(version=audited.version)) for package in packages()}
    known = (audited.repository, audited.tag) in tags
    release = snapshots.load(audited.package, audited.version) if known else None
    committed = (release, snapshots.load(snapshots.CHANNEL, ""))
    filled = []
    for outcome in outcomes:
        local = getattr(request, _LOCAL.get(outcome.source, ""), None)
        if local is None:
            filled.append(snapshots.fill(outcome, committed))
        else:
            trouble = "; ".join(filter(None, (outcome.trouble, "read from local files, not the release")))
            filled.append(structs.replace(outcome, trouble=trouble))
    return filled


class Session:
    """The configs of a repository, and the services that all requests about it share.

    `foreign`: the repository is another feedstock, or the audited project is another one. Raises MegabuildError if a
    config cannot be read.
    """

    def __init__(self, options: AuditOptions, root: Path, progress: Tell, *, foreign: bool) -> None:
        self.options, self.root, self.foreign = options, root, foreign
        self.configs = (
            feedstock.configs(root) if foreign else tuple(load(root, name) for name in available(root))
        )
        #: the configs that build with packages that conda-forge pins
        self.pinned = tuple(config for config in self.configs if config.follows_conda_forge)
        self.services = Services(
            cache_folder(os.environ) / "audit",
            offline=options.offline,
            seconds=options.timeout,
            progress=progress,
        )
        self.repositories = Repositories(self.services)

    def request(
        self, package: AuditedPackage | None, version: str | None, *, local: bool = True
    ) -> AuditRequest:
        """Return the request that every source gets, for a package of this repository or for the foreign one.

        `local`: the files passed with ``--tree`` and ``--pinning`` are of this version.
        """
        if package is None or self.foreign:
            upstream, ref = self.options.upstream, self.options.ref
            audited = feedstock.target(self.root, self.pinned, upstream=upstream, ref=ref, version=version)
        else:
            audited = target(package, self.pinned, self.root, version=version)
        recipe: tuple[str, ...] = ()
        with contextlib.suppress(AuditError):  # the source recipe_pins reports it
            recipe = names_in(audited.recipe, self.root) if audited.recipe else ()
        built = {build.name for build in audited.builds}
        return AuditRequest(
            target=audited,
            services=self.services,
            repositories=self.repositories,
            configs=tuple(config for config in self.pinned if config.name in built),
            root=self.root,
            local_tree=self.options.tree if local else None,
            local_pinning=self.options.pinning if local else None,
            foreign=self.foreign,
            names=names().wanted(audited.package, recipe, submodules=self.foreign),
        )
