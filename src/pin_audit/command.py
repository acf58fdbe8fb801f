"""``audit``: read all sources, make the report, write it, and apply ``--fail-on``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from groundwork.errors import AuditError, UnknownError, UsageError, VerdictError
from groundwork.network.cache import now
from groundwork.result import Result
from groundwork.text import suggest
from groundwork.user_folders import cache_folder
from megabuild.configs.config import Config, available, load
from megabuild.configs.platforms import ci_platform
from pin_audit import feedstock, snapshots
from pin_audit.audit_options import AuditOptions
from pin_audit.audit_report import FORMAT, FORMAT_VERSION, Report, insert, markdown, to_document
from pin_audit.facts import SourceOutcome
from pin_audit.name_map import names
from pin_audit.recipe_lines import names_in
from pin_audit.repositories import Repositories
from pin_audit.request import AuditRequest
from pin_audit.run_sources import READERS, SOURCES, gather
from pin_audit.services import Services, Tell
from pin_audit.sources.wheel_metadata import newest_version
from pin_audit.statuses import STATUSES, Status
from pin_audit.table import tabulate
from pin_audit.targets import AuditedPackage, find, is_known, packages, target

_OPTIONS_FOR_ONE_PACKAGE = ("release", "tree", "upstream")
#: The version to pass for the newest one on the index.
NEWEST = "newest"


def audit(options: AuditOptions, root: Path, *, tell: Tell, progress: Tell) -> Result:
    """Audit the repository `root`; write the report, and apply ``--fail-on``."""
    wanted = parse_statuses(options.fail_on) if options.fail_on else ()
    report = make(options, root, progress=progress)
    for warning in report.warnings:
        tell(f"! {warning}")
    lines: list[str] = []
    if options.write is None:
        lines = markdown(report, every=options.every_row).splitlines()
    else:
        changed = insert(options.write, markdown(report, level=3, lines=False))
        tell(f"{'written' if changed else 'unchanged'}: {options.write}")
    return Result(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        document=to_document(report),
        lines=lines,
        exit_code=_judge(report, wanted, tell) if wanted else 0,
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
    rows: list[str] = []
    unread: dict[str, None] = {}
    for audit in report.audits:
        rows += [f"{audit.target.package}: {name}" for name in audit.with_status(wanted)]
        unread |= dict.fromkeys(audit.not_read())
    if rows:
        tell(f"--fail-on found {', '.join(rows)}")
        return VerdictError.exit_code
    if unread:
        tell(
            f"error: --fail-on cannot judge: sources not read: {', '.join(unread)}\n"
            "hint: run the audit once with network access, or pass local files with --tree and --pinning"
        )
        return UnknownError.exit_code
    return 0


def make(options: AuditOptions, root: Path, *, progress: Tell = lambda _: None) -> Report:
    """Audit a repository; return the report, with warnings to print."""
    for name in _OPTIONS_FOR_ONE_PACKAGE:
        if getattr(options, name) and (options.every or len(options.package_words) > 1):
            raise UsageError(f"--{name} takes one package only", "pass a single --package NAME")
    foreign = options.upstream is not None or not feedstock.is_own(root)
    session = Session(options, root, progress, foreign=foreign)
    requests = _requests(options, session)
    audits = []
    warnings = session.services.warnings
    for request, outcomes in zip(requests, gather(requests, READERS), strict=True):
        if options.snapshot:
            warnings += _save_snapshots(request, outcomes)
        filled = _fill(outcomes, request)
        audits.append(tabulate(request.target, filled, names(), foreign=request.foreign))
    return Report(made=now(), audits=tuple(audits), warnings=tuple(dict.fromkeys(warnings)))


def _requests(options: AuditOptions, session: Session) -> list[AuditRequest]:
    """Return the request for each package; raises UsageError for an unknown one."""
    version = options.release
    if session.foreign:
        return [session.request(None, version)]
    if options.every:
        chosen = packages()
    elif options.package_words:
        chosen = tuple(dict.fromkeys(map(find, options.package_words)))
    else:
        chosen = packages()[:1]
    if version == NEWEST:
        version = newest_version(session.request(chosen[0], None))
    return [session.request(package, version) for package in chosen]


def _save_snapshots(request: AuditRequest, outcomes: Sequence[SourceOutcome]) -> Iterator[str]:
    """Write the facts of a release and of the channel; yield messages."""
    for snapshot in snapshots.of(request.target, outcomes, now()):
        yield f"written: {snapshots.save(snapshot)}"
    unread = [outcome.source for outcome in outcomes if outcome.unread]
    if unread:
        yield f"not read, older facts stay: {', '.join(unread)}"


def _fill(outcomes: Iterable[SourceOutcome], request: AuditRequest) -> list[SourceOutcome]:
    """Replace unread facts of a known release by committed ones, and mark sources read from local files."""
    audited = request.target
    committed = [snapshots.load(snapshots.CHANNEL, "")]
    if is_known(audited):
        committed.insert(0, snapshots.load(audited.package, audited.version))
    filled = []
    for outcome in outcomes:
        if SOURCES[outcome.source].local_files(request) is None:
            filled.append(snapshots.fill(outcome, committed))
        else:
            trouble = "read from local files, not the release"
            if outcome.trouble:
                trouble = f"{outcome.trouble}; {trouble}"
            filled.append(structs.replace(outcome, trouble=trouble))
    return filled


class Session:
    """The configs of a repository, and the services that all requests about it share.

    `foreign`: the repository is another feedstock, or the audited project is another one. Raises MegabuildError if a
    config cannot be read.
    """

    def __init__(self, options: AuditOptions, root: Path, progress: Tell, *, foreign: bool) -> None:
        self.options = options
        self.root = root
        self.foreign = foreign
        configs = _load_configs(root, foreign=foreign)
        #: the configs that build with packages that conda-forge pins
        self.pinned = tuple(config for config in configs if config.follows_conda_forge)
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
            audited = feedstock.target(
                self.root,
                self.pinned,
                upstream=self.options.upstream,
                ref=self.options.ref,
                version=version,
            )
        else:
            audited = target(package, self.pinned, self.root, version=version)
        recipe: tuple[str, ...] = ()
        with contextlib.suppress(AuditError):  # the source recipe_pins reports it
            if audited.recipe:
                recipe = names_in(audited.recipe, self.root)
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


def _load_configs(root: Path, *, foreign: bool) -> tuple[Config, ...]:
    """Return the configs of a repository, as conda-forge builds them: the audit is the same on every machine."""
    if foreign:
        return feedstock.configs(root)
    configs: list[Config] = []
    for name in available(root):
        config = load(root, name)
        configs.append(replace(config, build_platform=ci_platform(root, config.platform)))
    return tuple(configs)
