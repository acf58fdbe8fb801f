"""Keeps the environments of a config's last run: on request, and by itself when an unfinished run is resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import rattler
from msgspec import structs
from rattler import RepoDataRecord

from groundwork.channel import Channel
from groundwork.errors import IntegrityError, PreflightError, UsageError
from groundwork.exhaustive import assert_never
from groundwork.text import counted
from megabuild.configs.config import Config
from megabuild.configs.render import PlannedPackage, render
from megabuild.plan import environment_record, tree_reuse
from megabuild.plan.environment_packages import Requirements, requirements_of, solve_all
from megabuild.plan.environment_record import EnvironmentRecord, RecordedChannel, RecordedPackage
from megabuild.plan.options import Options
from megabuild.plan.plan import KeptEnvironments, Method, NewerPackage, Plan, Task
from megabuild.plan.run_choices import EnvironmentChoice
from megabuild.plan.solving import Solver
from megabuild.providers.environment import Environment

#: The option in hints.
GET_NEWEST = "--environments newest"
#: Newer packages that a line names.
_MOST_NAMES = 3
_SECONDS_OF_HALF_A_YEAR = 183 * 86400


def find_record(options: Options) -> EnvironmentRecord | None:
    """Return the record of the environments that a run keeps, or None if it uses the newest packages.

    Raises UsageError: The environments are to be kept, but the config has no record of them.
    Raises IntegrityError: The record is damaged.
    """
    match options.environments:
        case EnvironmentChoice.NEWEST:
            return None
        case EnvironmentChoice.KEPT:
            return _requested(options)
        case EnvironmentChoice.AUTO:
            record = environment_record.read(options.state)
            if record is None or record.is_complete or _why_other(record, options.config):
                return None
            has_tree = tree_reuse.read(options.state / "tree") is not None
            return record if has_tree else None
        case never:
            assert_never(never)


def _requested(options: Options) -> EnvironmentRecord:
    record = environment_record.read(options.state)
    if record is None:
        raise UsageError(
            f"{options.run_name}: no environments of an earlier run in {options.state}",
            "leave out --environments kept, or pass the output folder of that run with --output",
        )
    reason = _why_other(record, options.config)
    if not reason:
        return record
    remedy = f"pass {GET_NEWEST}"
    if record.provider != options.config.provider:
        remedy = f"pass --provider {record.provider}, or {GET_NEWEST}"
    raise UsageError(f"{options.run_name}: the environments of the last run are {reason}", remedy)


def _why_other(record: EnvironmentRecord, config: Config) -> str:
    """Return why the environments of a record are of another kind than a config's, or an empty string."""
    if record.provider != config.provider:
        return f"from provider {record.provider}"
    if record.cross_from != config.platforms.cross_from:
        return f"of a build on {record.cross_from or config.platform}"
    return ""


def check_keepable(plan: Plan) -> None:
    """Raise PreflightError if rattler-build takes its channels from the recipe's variant, not from its caller."""
    for item in plan.items:
        if item.package.names_channels:
            raise PreflightError(f"{item.package.name}: its build string has a hash over the channels")


def check_extensions(plan: Plan, newest: Environment) -> None:
    """Raise PreflightError if an extension cannot be built with a plan's packages, but with the ``newest`` ones.

    An extension that no earlier run has built may need packages that their record lacks.

    Raises ChannelError: A channel refuses, does not answer, or has an unreadable index.
    """
    own = [item.package for item in plan.items]
    for task in plan.extensions:
        own += task.packages
    platforms = plan.options.config.platforms
    of_record = Solver(plan.environment, platforms, own)
    of_channels = Solver(newest, platforms, own)
    for task in plan.extensions:
        if task.method is Method.NOTHING:
            reason = _why_unsolvable(task, of_record)
            if reason and not _why_unsolvable(task, of_channels):
                raise PreflightError(reason)


def _why_unsolvable(task: Task, solver: Solver) -> str:
    try:
        for package in task.packages:
            solver.built_with(package)
    except PreflightError as error:
        return error.message
    return ""


def day(seconds: float) -> str:
    """Return a date for people: ``27 November``, with the year if it is half a year ago or more."""
    moment = time.localtime(seconds)
    text = f"{moment.tm_mday} {time.strftime('%B', moment)}"
    if time.time() - seconds > _SECONDS_OF_HALF_A_YEAR:
        text += f" {moment.tm_year}"
    return text


def requirements(plan: Plan) -> list[Requirements]:
    """Return all environments of a plan."""
    packages = [item.package for item in plan.items]
    extensions: list[PlannedPackage] = []
    for task in plan.extensions:
        extensions += task.packages
    own = (*packages, *extensions)
    platforms = plan.options.config.platforms
    return [
        *requirements_of(packages, own, platforms),
        *requirements_of(extensions, own, platforms, is_optional=True),
    ]


def _of_further_pythons(plan: Plan) -> list[Requirements]:
    """Return the environments of the config's other Pythons, which a later run may add; some may have no solution."""
    config = plan.options.config
    overrides = dict(plan.environment.overrides)
    overrides.pop("python", None)
    packages = render(config, plan.options.recipe, overrides=overrides, build_platform=config.build_platform)
    return requirements_of(packages, packages, config.platforms, is_optional=True)


def describe(
    plan: Plan, record: EnvironmentRecord, newest: Environment, options: Options
) -> KeptEnvironments:
    """Return a note on the kept environments of a plan; ``newest`` has the channels as they are now.

    Raises PreflightError: A kept environment has no solution, for example after a change of the recipe.
    Raises ChannelError: A channel refuses, does not answer, or has an unreadable index.
    """
    needed = requirements(plan)
    kept = solve_all(needed, plan.environment)
    newer: tuple[NewerPackage, ...] = ()
    unknown = ""
    try:
        newer = compare(kept.values(), solve_all(needed, newest).values())
    except PreflightError as error:
        unknown = error.message
    return KeptEnvironments(
        since=record.planned,
        is_automatic=options.environments is EnvironmentChoice.AUTO,
        newer=newer,
        unknown=unknown,
    )


def compare(kept: Iterable[RepoDataRecord], newest: Iterable[RepoDataRecord]) -> tuple[NewerPackage, ...]:
    """Return the packages of both that differ, sorted by name."""
    before = _versions(kept)
    after = _versions(newest)
    newer = []
    for name in sorted(before.keys() & after.keys()):
        old = sorted(before[name] - after[name])
        new = sorted(after[name] - before[name])
        if new:
            newer.append(_newer(name, old or sorted(before[name]), new))
    return tuple(newer)


def _versions(records: Iterable[RepoDataRecord]) -> Mapping[str, set[tuple[str, str]]]:
    """Return versions and build strings by name."""
    versions: dict[str, set[tuple[str, str]]] = {}
    for record in records:
        version = (str(record.version), str(record.build))
        versions.setdefault(record.name.source, set()).add(version)
    return versions


def _newer(name: str, old: Sequence[tuple[str, str]], new: Sequence[tuple[str, str]]) -> NewerPackage:
    """Return a pair of versions, with build strings where the versions alone are equal."""
    before = ", ".join(_without_builds(old))
    after = ", ".join(_without_builds(new))
    if before == after:
        before = ", ".join(map(" ".join, old))
        after = ", ".join(map(" ".join, new))
    return NewerPackage(name=name, kept=before, newest=after)


def _without_builds(versions: Iterable[tuple[str, str]]) -> Iterable[str]:
    """Return versions without their build strings, each once."""
    return dict.fromkeys(version for version, _ in versions)


def lines(kept: KeptEnvironments) -> list[str]:
    """Return lines for people; none if a resumed run keeps packages that are still the newest."""
    if kept.is_automatic and not kept.newer and not kept.unknown:
        return []
    line = f"environments of {day(kept.since)}: {_newer_words(kept)}"
    if not kept.is_automatic:
        return [line]
    return [line, f"they are kept to resume the unfinished run; for the newest: {GET_NEWEST}"]


def _newer_words(kept: KeptEnvironments) -> str:
    if kept.unknown:
        return f"the newest packages fit no longer ({kept.unknown})"
    if not kept.newer:
        return "no package is newer"
    names = [f"{each.name} {each.kept} -> {each.newest}" for each in kept.newer[:_MOST_NAMES]]
    if len(kept.newer) > _MOST_NAMES:
        names.append("…")
    verb = "is" if len(kept.newer) == 1 else "are"
    return f"{counted(len(kept.newer), 'package')} {verb} newer: {', '.join(names)}"


def keep_record(plan: Plan) -> None:
    """Record the environments of a run that begins to build; the packages of a kept one stay as they are.

    Raises IntegrityError: The record of a kept one is damaged.
    Raises PreflightError: An environment has no solution.
    Raises ChannelError: A channel refuses, does not answer, or has an unreadable index.
    """
    state = plan.options.state
    if plan.kept is not None:
        _mark_unfinished(plan.options)
        return
    planned = time.time()
    needed = [*requirements(plan), *_of_further_pythons(plan)]
    records = solve_all(needed, plan.environment)
    channels = plan.environment.channels
    addresses = {_url_of(channel): _address(channel) for channel in channels}
    record = EnvironmentRecord(
        config=plan.options.run_name,
        provider=plan.options.config.provider,
        cross_from=plan.options.config.platforms.cross_from,
        planned=planned,
        is_complete=False,
        pythons=plan.options.pythons,
        channels=tuple(map(_channel, channels)),
        overrides=plan.provided,
        packages=tuple(_package(each, addresses) for each in sorted(records.values(), key=_url)),
    )
    environment_record.write(state, record)


def _mark_unfinished(options: Options) -> None:
    """Note that the recorded environments are those of an unfinished run, for its Pythons and for those left before."""
    record = environment_record.read(options.state)
    if record is None:
        return
    pythons = options.pythons
    if not record.is_complete:
        is_for_all = not record.pythons or not pythons
        pythons = () if is_for_all else tuple(dict.fromkeys((*record.pythons, *pythons)))
    environment_record.write(options.state, structs.replace(record, is_complete=False, pythons=pythons))


def _channel(channel: Channel) -> RecordedChannel:
    folder = None
    if channel.folder is not None:
        folder = str(channel.folder)
    return RecordedChannel(address=_address(channel), folder=folder, this_machine=channel.this_machine)


def _url_of(channel: Channel) -> str:
    """Return a channel's URL as the packages found in it name it: with the host in lower case, without a usual port."""
    return rattler.Channel(channel.url).base_url.rstrip("/")


def _address(channel: Channel) -> str:
    """Return the address to record; on a server, the addresses of its packages begin with it."""
    return _url_of(channel) if channel.folder is None else channel.address


def _url(record: RepoDataRecord) -> str:
    return record.url


def _package(record: RepoDataRecord, addresses: Mapping[str, str]) -> RecordedPackage:
    entry = json.loads(record.to_json())
    for key in ("fn", "url", "channel"):
        del entry[key]
    return RecordedPackage(
        name=record.name.source,
        version=str(record.version),
        build=str(record.build),
        sha256=record.sha256.hex() if record.sha256 else "",
        file_name=record.file_name,
        subdir=record.subdir,
        url=record.url,
        channel=addresses[record.channel.rstrip("/")],
        entry=entry,
    )


def mark_complete(options: Options) -> None:
    """After a run whose packages all exist, have the next one take the newest packages.

    A run for fewer Pythons than the recorded one does not complete it. A damaged record is left to the next run.
    """
    with suppress(IntegrityError):
        record = environment_record.read(options.state)
        if record is not None and _covers(options.pythons, record.pythons):
            environment_record.mark(options.state, is_complete=True)


def _covers(pythons: Collection[str], recorded: Collection[str]) -> bool:
    """Return whether a request for some Pythons includes another one; empty ones are for all."""
    if not pythons:
        return True
    return bool(recorded) and set(recorded) <= set(pythons)
