"""Plans and runs builds, and shows their progress; configs that need not wait are built side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from command_line.build_options import BuildOptions
from command_line.config_end import ConfigEnd
from command_line.member_request import MemberRequest
from command_line.overview import overview_lines
from command_line.progress_display import Screen, View, moving_lines
from command_line.root import is_own
from command_line.run_command import Invocation, finish, print_lines
from command_line.side_by_side import Member, build_side_by_side
from groundwork import in_use
from groundwork.errors import Interrupted, MegabuildError
from groundwork.progress import WARNING
from groundwork.result import Result
from groundwork.text import display, size, table
from groundwork.user_folders import cache_folder
from megabuild.configs.config import Config
from megabuild.configs.overrides import use_provider
from megabuild.configs.provider_name import ProviderName
from megabuild.plan.options import Options, objects_lock
from megabuild.plan.planning import preview_plan, survey_plan
from megabuild.plan.torch_version import with_torch
from megabuild.run.arrangement import Arrangement, arrange
from megabuild.run.log_archive import LogArchive
from megabuild.run.outlook import Outlook, look_ahead
from megabuild.run.plan_report import note_lines, plan_result
from megabuild.status.status import Status
from megabuild.store import published


@dataclass(frozen=True, kw_only=True)
class ConfigRequest:
    """One of the configs that a command builds."""

    file: Config  #: the config as its file has it
    build_options: BuildOptions
    root: Path  #: the repository, or another feedstock
    output: Path  #: folder for states and packages
    earlier: tuple[str, ...]  #: configs that the command builds first

    @property
    def name(self) -> str:
        """The config's name."""
        return self.file.name

    def options(self) -> Options:
        """Return the options of the config's run. Raises UsageError: The config does not support them."""
        choices = self.build_options.run
        of_provider = use_provider(self.file, self.build_options.provider, os.environ)
        config = with_torch(of_provider, choices.torch, choices.torch_source)
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
    requests: Sequence[ConfigRequest], build_options: BuildOptions, invocation: Invocation
) -> Result:
    """Plan or build configs. If one fails, the others are built all the same; Ctrl-C ends all."""
    console = Console(stderr=invocation.json, soft_wrap=True)
    plan_only = build_options.plan_only
    if len(requests) == 1 and not plan_only and not build_options.zip_logs:
        return build_config(requests[0].options(), build_options, View(console=console), invocation)
    plans = _survey(requests, console, plan_only=plan_only)
    if len(plans) == 1 and plan_only:
        return _planned_result(*plans.values())
    startable = _startable(plans)
    removes_trees = build_options.remove_trees
    arrangement = arrange(startable, one_by_one=build_options.one_by_one, removes_trees=removes_trees)
    overview = overview_lines(startable, arrangement)
    archive: LogArchive | None = None
    if not plan_only:
        plans = startable
        print_lines(overview, console.file)
        if build_options.zip_logs:
            archive = _log_archive(plans)
    if arrangement.is_side_by_side and not plan_only:
        ends = _build_side_by_side(requests, plans, arrangement, console, invocation)
    else:
        ends = _end_each(plans, build_options, console, invocation)
    if plan_only:
        return _result_of_all(ends, "plan", overview)
    rows = [end.row() for end in ends]
    result = _result_of_all(ends, "run", table(("config", "time", "result"), rows))
    if archive:
        return _with_logs(result, archive, console)
    return result


def _build_side_by_side(
    requests: Sequence[ConfigRequest],
    plans: Mapping[str, Outlook | Exception],
    arrangement: Arrangement,
    console: Console,
    invocation: Invocation,
) -> list[ConfigEnd]:
    """Build configs in processes of their own; return how each ended, in the order of the plans."""
    shows_phases = moving_lines(console).console.quiet  # else the table has them
    members: dict[str, Member] = {}
    ends: dict[str, ConfigEnd] = {}
    for request in requests:
        plan = plans[request.name]
        if isinstance(plan, Exception):
            print_lines(["", request.name], console.file)
            ending = finish(partial(_planned_result, plan), replace(invocation))
            ends[request.name] = ConfigEnd(name=request.name, ending=ending)
        else:
            asked = MemberRequest(
                config=request.name,
                root=request.root,
                output=request.output,
                earlier=request.earlier,
                build_options=request.build_options,
                log_folder=invocation.log_folder,
                shows_phases=shows_phases,
            )
            is_fixed = _knows_no_jobserver(plan.options)
            members[request.name] = Member(request=asked, state=plan.options.state, is_fixed=is_fixed)
    ends |= build_side_by_side(members, arrangement, console, invocation)
    _write_sums(requests[0].output, console)
    return [ends[name] for name in plans]


def _knows_no_jobserver(options: Options) -> bool:
    """Return whether a config's scripts know no jobserver: another feedstock's, and those with Debian's ninja."""
    return not options.own or options.config.provider == ProviderName.DEBIAN


def _end_each(
    plans: Mapping[str, Outlook | Exception],
    build_options: BuildOptions,
    console: Console,
    invocation: Invocation,
) -> list[ConfigEnd]:
    """Show or build one config after the other, until an interrupt; return how each ended."""
    ends: list[ConfigEnd] = []
    for number, (name, plan) in enumerate(plans.items(), 1):
        if ends and ends[-1].stops_others:
            ends.append(ConfigEnd(name=name))
            continue
        print_lines(["", f"[{number}/{len(plans)}] {name}"], console.file)
        began = time.monotonic()
        own = replace(invocation)  # gets the log of this config
        if build_options.plan_only or isinstance(plan, Exception):
            ending = finish(partial(_planned_result, plan), own)
        else:  # planned again: others were built meanwhile
            build = partial(build_config, plan.options, build_options, View(console=console), own)
            ending = finish(build, own)
        seconds = time.monotonic() - began
        ends.append(ConfigEnd(name=name, ending=ending, seconds=seconds, log=own.log))
    return ends


def _result_of_all(ends: Sequence[ConfigEnd], format: str, lines: Sequence[str]) -> Result:
    exit_code = _common_exit_code(ends)
    documents = [end.document() for end in ends]
    document = {"configs": documents, "exit_code": exit_code}
    return Result(format=format, document=document, lines=["", *lines], exit_code=exit_code)


def _common_exit_code(ends: Sequence[ConfigEnd]) -> int:
    """Return the code of an interrupt, else of the first config that failed, else 0."""
    if any(end.stops_others for end in ends):
        return Interrupted.exit_code
    for code in [end.ending.exit_code for end in ends if end.ending]:
        if code:
            return code
    return 0


def _log_archive(plans: Mapping[str, Outlook | Exception]) -> LogArchive | None:
    """Return the archive of the logs that are written from now on; None if no config can be built."""
    options = [plan.options for plan in plans.values() if not isinstance(plan, Exception)]
    if not options:
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


def _startable(plans: Mapping[str, Outlook | Exception]) -> dict[str, Outlook | Exception]:
    """Return the plans, but for each that cannot be carried out here the error with which its run would end at once."""
    startable: dict[str, Outlook | Exception] = {}
    for name, plan in plans.items():
        startable[name] = plan
        if not isinstance(plan, Exception) and plan.problem is not None:
            startable[name] = plan.problem
    return startable


def _planned_result(plan: Outlook | Exception) -> Result:
    if isinstance(plan, Exception):
        raise plan
    return plan_result(plan)


def build_config(options: Options, build_options: BuildOptions, view: View, invocation: Invocation) -> Result:
    """Show the plan, then prepare and run the build; of a config in a pool, only notes on its plan are shown."""
    # imported late: --plan needs none of it
    from megabuild.run import session

    is_alone = options.pool is None
    status = Status(options.run_name, options.state)
    with ExitStack() as held:
        with view.screen(what="planning") as screen:
            held.enter_context(_cache_in_use(options))  # until the end: the plan counts on these files
            plan = _plan(options, screen, plan_only=False)
        in_use.note_output(options.cache, options.output)
        shown = plan_result(plan).lines if is_alone else note_lines(plan)
        if shown:
            print_lines(shown, view.console.file)
        try:
            with view.screen(verbose=build_options.verbose) as screen:
                screen.follow(status)
                summary = session.execute(plan, status)
        except MegabuildError:
            _print_states(status, view.console)
            raise
        finally:
            if status.record.log:
                invocation.log = Path(status.record.log)
            if is_alone:
                _write_sums(options.output, view.console)
        result = summary.result(rehearsal=options.rehearse)
        if build_options.remove_trees and result.exit_code == 0:
            with view.screen(what="removing work trees"):
                freed = session.remove_trees(options)
            print_lines(["", f"work trees removed: {size(freed)}"], view.console.file)
        return result


def _write_sums(output: Path, console: Console) -> None:
    """Write the hashes of all packages; without them, on a full disk, the result of the builds stays."""
    with Screen(console, what="hashing packages") as screen:
        try:
            sums = published.write_sums(output)
        except (OSError, MegabuildError) as error:
            screen.note(f"{WARNING}the packages' hashes are not written: {error}")
            return
        print_lines([f"packages and their hashes: {display(sums)}"], console.file)


def _print_states(status: Status, console: Console) -> None:
    """Print a table of the packages of a run that failed."""
    rows: list[tuple[str, str]] = []
    for file_name, state in status.record.packages.items():
        rows.append((file_name.removesuffix(".conda"), state.value))
    if rows:
        print_lines(["", *table(("package", "state"), rows)], console.file)


def _plan(options: Options, screen: Screen, *, plan_only: bool) -> Outlook:
    """Make the plan, and show the progress of the providers; with ``plan_only``, an unreachable channel is a note."""
    if options.deadline and options.deadline.left <= 0:
        raise options.deadline.error(f"before preparing {options.run_name}")
    with _cache_in_use(options):
        if plan_only:
            plan = preview_plan(options, screen.note)
        else:
            plan = survey_plan(options, screen.note)
        return look_ahead(plan, os.environ, screen.note)


def _cache_in_use(options: Options) -> AbstractContextManager[None]:
    """Protect the config's files in the cache; entering it waits while `megabuild clean` is running."""
    locks = [objects_lock(name) for name in options.objects_names]
    return in_use.shared_lock(options.cache, *options.unpacked_names, *locks)
