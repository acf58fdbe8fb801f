"""Planning and running a build, with everything shown on the way."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from command_line.configs import person_present
from command_line.progress_display import PlainReporter, reporter, show
from command_line.run_command import Invocation
from groundwork import events
from groundwork.errors import MegabuildError, ProviderError
from groundwork.result import Result
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.plan.planning import make_plan
from megabuild.plan.report import plan_result, rendered_lines
from megabuild.run.commands import commands, upload
from megabuild.run.debug import debug_package
from megabuild.run.session import execute
from megabuild.run.summary import package_lines, packages_of_last_run


def plan_and_build(options: Options, invocation: Invocation, *, plan_only: bool) -> Result:
    """Show the plan of a run and carry it out, or return the plan alone."""
    out = console(invocation)
    try:
        plan = planned(options, out, only_plan=plan_only)
    except ProviderError:
        if plan_only:  # what would be built is known even where it cannot be built
            show(out, rendered_lines(options))
        raise
    result = plan_result(plan)
    if plan_only:
        return result
    invocation.plans[options.run_name] = result.document
    show(out, result.lines)
    try:
        with reporter(out) as told:
            summary = execute(plan, _noting(told, invocation))
    except MegabuildError:
        rows = packages_of_last_run(options.state)
        invocation.beside["packages"] = [row.to_dict() for row in rows]
        show(out, ["", *package_lines(rows)])
        raise
    result = summary.result(commands(plan, summary))
    if line := upload(plan, summary):
        result = replace(result, lines=[*result.lines, "", "to upload it:", f"  {line}"])
    return shown(result, out, invocation)


def debug(options: Options, output: str | None) -> Result:
    """Make the environment of an output."""
    return debug_package(planned(options, Console(stderr=True)), output)


def console(invocation: Invocation) -> Console:
    """Return where progress is shown: standard output, unless a document goes there."""
    return Console(stderr=invocation.json, soft_wrap=True)


def shown(result: Result, out: Console, invocation: Invocation) -> Result:
    """Return a result; where its document goes to standard output, people still find its lines beside the progress."""
    if invocation.json:
        show(out, result.lines)
    return result


def planned(options: Options, out: Console, *, only_plan: bool = False) -> Plan:
    """Make the plan; what the providers prepare for it is shown meanwhile, and what they ask is put to the user."""
    with reporter(out) as told:

        def ask(question: str) -> bool:
            return person_present() and told.ask(question)

        return make_plan(options, told.note, ask, only_plan=only_plan)


def _noting(told: PlainReporter, invocation: Invocation) -> events.Reporter:
    def report(event: events.Event, /) -> None:
        if isinstance(event, events.RunStarted):
            invocation.log = event.log
        told(event)

    return report
