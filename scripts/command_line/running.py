"""Planning and running a build, with everything shown on the way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from command_line import github
from command_line.progress_display import Screen, show
from command_line.run_command import Invocation
from groundwork import in_use
from groundwork.errors import DeadlineError, MegabuildError
from groundwork.progress import Notes
from groundwork.result import Result
from megabuild.plan import planning
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.plan.planning import make_plan
from megabuild.plan.report import plan_result
from megabuild.run.summary import PackageResult
from megabuild.status.status import Status


def plan_and_build(
    options: Options,
    invocation: Invocation,
    *,
    plan_only: bool,
) -> Result:
    """Show the plan of a run, for which hardly anything is downloaded; then prepare and carry it out."""
    with in_use.using(options.cache, options.cache_name):
        in_use.note_output(options.cache, options.output)
        out = console(invocation)
        try:
            plan = planned(options, out)
        except MegabuildError as error:
            if not plan_only:
                _tell_github(error, [], options, out)
            raise
        result = plan_result(plan, verbose=invocation.verbose)
        if plan_only:
            return result
        invocation.runs.append(options.run_name)
        show(out, result.lines)
        return _built(plan, out, invocation)


def _built(plan: Plan, out: Console, invocation: Invocation) -> Result:
    """Carry a plan out, and return what came of it."""
    # not before: a plan alone needs none of it
    from megabuild.run.commands import install_line, upload
    from megabuild.run.session import execute
    from megabuild.run.summary import package_lines, packages_of_last_run

    options = plan.options
    made = [plan]
    try:
        with Screen(out, verbose=invocation.verbose) as screen:

            def follow(status: Status) -> None:
                invocation.log = Path(status.record.log)
                screen.follow(status)

            def prepare(report: Notes) -> Plan:
                with _within(options):
                    made.append(planning.prepare(plan, report))
                return made[-1]

            summary = execute(plan, follow, prepare)
    except MegabuildError as error:
        rows = packages_of_last_run(options.state)
        invocation.beside["packages"] = [row.to_dict() for row in rows]
        show(out, ["", *package_lines(rows)])
        _tell_github(error, rows, options, out)
        raise
    lines = install_line(made[-1], summary), upload(made[-1], summary)
    result = summary.result(*lines, rehearsal=options.rehearse)
    if github.runs_here(os.environ):
        github.add_to_summary(options.run_name, summary.packages, summary.seconds, summary.error, os.environ)
        result = replace(result, lines=[github.harmless(line) for line in result.lines])
    return shown(result, out, invocation)


def _tell_github(
    error: MegabuildError, rows: Sequence[PackageResult], options: Options, out: Console
) -> None:
    """Put an error on the page of a run on GitHub; one that has reached its deadline is taken up by the next job."""
    if github.runs_here(os.environ):
        late = isinstance(error, DeadlineError)
        github.add_to_summary(options.run_name, rows, 0.0, error.message, os.environ, goes_on=late)
        out.out((github.notice if late else github.error)(error.message), highlight=False)
        error.message = github.harmless(error.message)


def debug(options: Options, output: str | None) -> Result:
    """Make the environment of an output."""
    from megabuild.run.debug import debug_package

    with in_use.using(options.cache, options.cache_name):
        return debug_package(planned(options, Console(stderr=True), only_plan=False), output)


def console(invocation: Invocation) -> Console:
    """Return where progress is shown: standard output, unless a document goes there."""
    return Console(stderr=invocation.json, soft_wrap=True)


def shown(result: Result, out: Console, invocation: Invocation) -> Result:
    """Return a result; where its document goes to standard output, people still find its lines beside the progress."""
    if invocation.json:
        show(out, result.lines)
    return result


def planned(options: Options, out: Console, *, only_plan: bool = True) -> Plan:
    """Make the plan; what the providers do for it is shown meanwhile."""
    with Screen(out) as screen, _within(options):
        return make_plan(options, screen.note, only_plan=only_plan)


def _within(options: Options) -> AbstractContextManager[object]:
    """Return what ends the making of a plan where the deadline comes."""
    return options.deadline.ends(f"preparing {options.run_name}") if options.deadline else nullcontext()
