"""Planning and running a build, with everything shown on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from rich.console import Console

from command_line.configs import person_present
from command_line.progress_display import PlainReporter, reporter, show
from command_line.run_command import Invocation, outcome
from groundwork import events, in_use
from groundwork.errors import MegabuildError, ProviderError
from groundwork.result import Result
from groundwork.text import UNICODE
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.plan.planning import make_plan
from megabuild.plan.report import plan_result, rendered_lines
from megabuild.run import several
from megabuild.run.commands import commands, upload
from megabuild.run.debug import debug_package
from megabuild.run.session import execute
from megabuild.run.summary import package_lines, packages_of_last_run


def plan_and_build(options: Options, invocation: Invocation, *, plan_only: bool) -> Result:
    """Show the plan of a run and carry it out, or return the plan alone."""
    with in_use.using(options.cache, options.cache_name):
        in_use.note_output(options.cache, options.output)
        return _plan_and_build(options, invocation, plan_only=plan_only)


def _plan_and_build(options: Options, invocation: Invocation, *, plan_only: bool) -> Result:
    console = _console(invocation)
    try:
        plan = _planned(options, console, only_plan=plan_only)
    except ProviderError as error:
        if plan_only:  # what would be built is known even where it cannot be built
            show(console, [f"{UNICODE.failed} {error.message}", "", *rendered_lines(options)])
        raise
    planned = plan_result(plan)
    if plan_only:
        return planned
    show(console, planned.lines)
    try:
        with reporter(console) as shown:
            summary = execute(plan, _noting(shown, invocation))
    except MegabuildError:
        show(console, ["", *package_lines(packages_of_last_run(options.state))])
        raise
    result = summary.result(commands(plan, summary))
    if line := upload(plan, summary):
        result = replace(result, lines=[*result.lines, "", "to upload it:", f"  {line}"])
    return _shown(result, console, invocation)


def debug(options: Options, output: str | None) -> Result:
    """Make the environment of an output."""
    with in_use.using(options.cache, options.cache_name):
        return debug_package(_planned(options, Console(stderr=True)), output)


def each(runs: Mapping[str, Callable[[Invocation], Result]], invocation: Invocation) -> Result:
    """Run several configs, one after the other, and report the errors of each."""
    console = _console(invocation)

    def attempt(one: several.Attempt) -> int:
        own = replace(invocation, log=None, show=partial(setattr, one, "result"))
        code = outcome(partial(runs[one.config], own), own)
        one.log = str(own.log) if own.log else None
        return code

    return _shown(several.each(tuple(runs), partial(show, console), attempt), console, invocation)


def _console(invocation: Invocation) -> Console:
    return Console(stderr=invocation.json, soft_wrap=True)


def _shown(result: Result, console: Console, invocation: Invocation) -> Result:
    """Return a result; where its document goes to standard output, people still find its lines beside the progress."""
    if invocation.json:
        show(console, result.lines)
    return result


def _planned(options: Options, console: Console, *, only_plan: bool = False) -> Plan:
    """Make the plan; what the providers prepare for it is shown meanwhile, and what they ask is put to the user."""
    with reporter(console) as shown:

        def ask(question: str) -> bool:
            return person_present() and shown.ask(question)

        with options.deadline.ends(f"preparing {options.run_name}") if options.deadline else nullcontext():
            return make_plan(options, shown.note, ask, only_plan=only_plan)


def _noting(shown: PlainReporter, invocation: Invocation) -> events.Reporter:
    def report(event: events.Event, /) -> None:
        if isinstance(event, events.RunStarted):
            invocation.log = event.log
        shown(event)

    return report
