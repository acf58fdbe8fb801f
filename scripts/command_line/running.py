"""Plans and runs builds, one config after the other, and shows their progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from command_line.progress_display import Screen
from command_line.root import is_own
from command_line.run_command import Invocation, outcome, print_lines
from groundwork import in_use
from groundwork.errors import Interrupted, MegabuildError
from groundwork.files import cache_folder
from groundwork.progress import WARNING
from groundwork.result import Result
from groundwork.text import Sign, counted, display, duration, size, table
from megabuild.configs.config import Config
from megabuild.configs.overrides import use_provider
from megabuild.configs.provider_name import ProviderName
from megabuild.plan.options import Options, objects_lock
from megabuild.plan.planning import preview_plan, survey_plan
from megabuild.plan.run_choices import RunChoices
from megabuild.plan.torch_version import with_torch
from megabuild.providers.environment import Pending
from megabuild.run.log_archive import LogArchive
from megabuild.run.outlook import Outlook, look_ahead
from megabuild.run.plan_report import plan_result
from megabuild.status.status import Status
from megabuild.store import published

_UNKNOWN = "unknown"
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, kw_only=True)
class ConfigRequest:
    """One of the configs that a command builds."""

    file: Config  #: the config as its file has it
    choices: RunChoices
    provider: ProviderName | None  #: in place of the config's
    root: Path  #: the repository, or another feedstock
    output: Path  #: folder for states and packages
    earlier: tuple[str, ...]  #: configs that the command builds first

    @property
    def name(self) -> str:
        """The config's name."""
        return self.file.name

    def options(self) -> Options:
        """Return the options of the config's run. Raises UsageError: The config does not support them."""
        choices = self.choices
        own_provider = use_provider(self.file, self.provider, os.environ)
        config = with_torch(own_provider, choices.torch, choices.torch_source)
        if choices.torch == self.file.torch_version:
            choices = replace(choices, torch=None)
        return Options(
            **vars(choices),
            config=config,
            root=self.root,
            output=self.output,
            cache=cache_folder(os.environ),
            own=is_own(self.root),
            earlier=self.earlier,
        )


def run_configs(
    requests: Sequence[ConfigRequest],
    invocation: Invocation,
    *,
    plan_only: bool,
    remove_trees: bool,
    zip_logs: bool,
) -> Result:
    """Plan or build configs one after the other. If one fails, the next one starts; Ctrl-C ends all."""
    console = Console(stderr=invocation.json, soft_wrap=True)
    if len(requests) == 1 and not plan_only and not zip_logs:
        return _build(requests[0].options(), console, invocation, remove_trees=remove_trees)
    plans = _survey(requests, console, plan_only=plan_only)
    if len(plans) == 1 and plan_only:
        return _planned_result(*plans.values())
    overview = overview_lines(plans)
    if not plan_only:
        print_lines(overview, console.file)
    archive = _log_archive(plans, wanted=zip_logs and not plan_only)
    entries: list[dict[str, object]] = []
    rows, exit_code = [], 0
    for number, (name, plan) in enumerate(plans.items(), 1):
        entry: dict[str, object] = {"config": name, "exit_code": None, "log": None}
        entries.append(entry)
        if exit_code == Interrupted.exit_code:
            rows.append((name, "", "not started"))
            continue
        print_lines(["", f"[{number}/{len(plans)}] {name}"], console.file)
        own, began = replace(invocation, entry=entry), time.monotonic()
        if plan_only or isinstance(plan, Exception):
            action = partial(_planned_result, plan)
        else:  # planned again: others were built meanwhile
            action = partial(_build, plan.options, console, own, remove_trees=remove_trees)
        code = outcome(action, own)
        entry |= {"exit_code": code, "log": str(own.log) if own.log else None}
        state = f"{Sign.failed} exit code {code}" if code else Sign.done
        rows.append((name, duration(time.monotonic() - began), state))
        exit_code = code if code == Interrupted.exit_code else exit_code or code
    result = Result(
        format="plan" if plan_only else "run",
        document={"configs": entries, "exit_code": exit_code},
        lines=["", *(overview if plan_only else table(("config", "time", "result"), rows))],
        exit_code=exit_code,
    )
    return _with_logs(result, archive, console) if archive else result


def _log_archive(plans: Mapping[str, Outlook | Exception], *, wanted: bool) -> LogArchive | None:
    """Return the archive of the logs that are written from now on; None if no config can be built."""
    options = [plan.options for plan in plans.values() if not isinstance(plan, Exception)]
    if not wanted or not options:
        return None
    return LogArchive(options[0].output, [each.state for each in options])


def _with_logs(result: Result, archive: LogArchive, console: Console) -> Result:
    """Zip the logs, with the result's lines; return the result with the path of the zip, null without new logs."""
    path = _zip_logs(archive, result.lines[1:], console)
    if path is None:
        return replace(result, document={**result.document, "logs": None})
    lines = [*result.lines, "", f"all logs: {display(path)}"]
    return replace(result, document={**result.document, "logs": str(path)}, lines=lines)


def _zip_logs(archive: LogArchive, lines: Sequence[str], console: Console) -> Path | None:
    """Zip the logs; a full disk is a warning, so that the exit code stays that of the builds."""
    with Screen(console) as screen:
        screen.note("packing the logs")
        try:
            return archive.write(lines)
        except OSError as error:
            screen.note(f"{WARNING}the logs are not zipped: {error}")
            return None


def _survey(
    requests: Sequence[ConfigRequest], console: Console, *, plan_only: bool
) -> dict[str, Outlook | Exception]:
    """Plan all configs before the first one is built; return the plan or the exception of each."""
    plans: dict[str, Outlook | Exception] = {}
    with Screen(console, what="planning") as screen:
        for number, request in enumerate(requests):
            if len(requests) > 1:
                screen.note(f"planning {number}/{len(requests)}")
            try:
                plans[request.name] = _plan(request.options(), screen, plan_only=plan_only)
            except Exception as error:
                plans[request.name] = error
    return plans


def _planned_result(plan: Outlook | Exception) -> Result:
    if isinstance(plan, Exception):
        raise plan
    return plan_result(plan)


@dataclass(frozen=True, kw_only=True)
class _Need:
    """Figures of a config that is still to be built; None: unknown."""

    download: int | None = 0
    disk: int | None = 0  #: bytes at the peak
    kept: int = 0  #: bytes of these that stay after --remove-trees
    hours: float | None = 0.0

    def cells(self) -> tuple[str, str, str]:
        """Return the figures as text."""
        return (
            _text(self.download, size),
            _text(self.disk, size),
            _text(self.hours, lambda hours: duration(hours * 3600)),
        )


def overview_lines(plans: Mapping[str, Outlook | Exception]) -> list[str]:
    """Return a table of configs before they are built, with their sum, and the error of each that cannot be built."""
    rows, errors = [], []
    needs: list[_Need] = []
    for name, plan in plans.items():
        if isinstance(plan, Exception):
            rows.append((name, "cannot be built", "", "", ""))
            errors += ["", f"{Sign.failed} {name}: {plan}"]
            continue
        left = plan.progress.when_fetched()
        count = len(left.missing) + sum(len(task.packages) for task in left.missing_tasks)
        work = f"build {counted(count, 'package')}" if count else "nothing: all exist"
        needs.append(_need(plan) if count else _Need())
        rows.append((name, work, *needs[-1].cells()))
    whole = _sum(needs)
    rows.append(("all, one after the other", "", *whole.cells()))
    if len(needs) > 1:
        rows.append(("with --remove-trees", "", "", replace(whole, disk=_peak(needs)).cells()[1], ""))
    return [*table(("config", "will", "download", "disk", "time"), rows, right=frozenset({2, 3, 4})), *errors]


def _need(outlook: Outlook) -> _Need:
    """Return the figures of a plan. Downloads from a channel that is no folder here are known to its server only."""
    plan = outlook.plan
    estimate = outlook.estimate
    pending = plan.environment.pending or Pending()
    need = _Need(
        download=pending.download,
        disk=estimate.disk + pending.bytes,
        kept=estimate.packages + pending.bytes,
        hours=estimate.hours,
    )
    if any(channel.folder is None for channel in plan.environment.channels):
        need = replace(need, download=None)
    return need if estimate.basis else replace(need, disk=None, hours=None)


def _sum(needs: Sequence[_Need]) -> _Need:
    """Return the sums; a sum with an unknown part is unknown."""
    whole = _Need()
    for need in needs:
        whole = _Need(
            download=_plus(whole.download, need.download),
            disk=_plus(whole.disk, need.disk),
            hours=_plus(whole.hours, need.hours),
        )
    return whole


def _plus(one: _Number | None, other: _Number | None) -> _Number | None:
    return None if one is None or other is None else one + other


def _text(value: _Number | None, text_of: Callable[[_Number], str]) -> str:
    return _UNKNOWN if value is None else text_of(value)


def _peak(needs: Sequence[_Need]) -> int | None:
    """Return the largest disk space in use if each config's trees are removed before the next one is built."""
    peak = 0
    kept = 0
    for need in needs:
        if need.disk is None:
            return None
        peak = max(peak, kept + need.disk)
        kept += need.kept
    return peak


def _build(options: Options, console: Console, invocation: Invocation, *, remove_trees: bool) -> Result:
    """Show the plan, then prepare and run the build."""
    # imported late: --plan needs none of it
    from megabuild.run import session

    sums: Path | None = None
    status = Status(options.run_name, options.state)
    with ExitStack() as held:
        with Screen(console, what="planning") as screen:
            held.enter_context(_cache_in_use(options))  # until the end: the plan counts on these files
            plan = _plan(options, screen, plan_only=False)
        in_use.note_output(options.cache, options.output)
        print_lines(plan_result(plan).lines, console.file)
        try:
            with Screen(console, verbose=invocation.verbose) as screen:
                screen.follow(status)
                summary = session.execute(plan, status)
        except MegabuildError:
            packages = status.record.packages
            if states := [(name.removesuffix(".conda"), state.value) for name, state in packages.items()]:
                print_lines(["", *table(("package", "state"), states)], console.file)
            raise
        finally:
            invocation.log = Path(status.record.log) if status.record.log else None
            with Screen(console, what="hashing packages"), suppress(OSError, MegabuildError):  # a full disk
                sums = published.write_sums(options.output)
        if sums:
            print_lines([f"packages and their hashes: {display(sums)}"], console.file)
        result = summary.result(rehearsal=options.rehearse)
        if remove_trees and result.exit_code == 0:
            with Screen(console, what="removing work trees"):
                freed = session.remove_trees(options)
            print_lines(["", f"work trees removed: {size(freed)}"], console.file)
        return result


def _plan(options: Options, screen: Screen, *, plan_only: bool) -> Outlook:
    """Make the plan, and show the progress of the providers; with ``plan_only``, an unreachable channel is a note."""
    if options.deadline and options.deadline.left <= 0:
        raise options.deadline.error(f"before preparing {options.run_name}")
    with _cache_in_use(options):
        plan = preview_plan(options, screen.note) if plan_only else survey_plan(options, screen.note)
        return look_ahead(plan, os.environ, screen.note)


def _cache_in_use(options: Options) -> AbstractContextManager[None]:
    """Protect the config's files in the cache; entering it waits while `megabuild clean` is running."""
    locks = [objects_lock(name) for name in options.objects_names]
    return in_use.shared_lock(options.cache, *options.unpacked_names, *locks)
