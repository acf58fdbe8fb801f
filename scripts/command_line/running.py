"""Planning and running a build, with everything shown on the way."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from rich.console import Console

from command_line import github
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


def plan_and_build(options: Options, invocation: Invocation, *, plan_only: bool) -> Result:
    """Show the plan of a run, for which hardly anything is downloaded; then prepare and carry it out."""
    with in_use.using(options.cache, options.cache_name):
        in_use.note_output(options.cache, options.output)
        return _plan_and_build(options, invocation, plan_only=plan_only)


def _plan_and_build(options: Options, invocation: Invocation, *, plan_only: bool) -> Result:
    console = _console(invocation)
    try:
        plan = _planned(options, console)
    except ProviderError as error:
        if plan_only:  # what would be built is known even where it cannot be built
            show(console, [f"{UNICODE.failed} {error.message}", "", *rendered_lines(options)])
        raise
    planned = plan_result(plan)
    if plan_only:
        return planned
    show(console, planned.lines)
    return _built(plan, console, invocation)


def _built(plan: Plan, console: Console, invocation: Invocation) -> Result:
    """Carry a plan out, and return what came of it."""
    # not before: a plan alone needs none of it
    from megabuild.run.commands import commands, upload
    from megabuild.run.session import execute
    from megabuild.run.summary import package_lines, packages_of_last_run

    options, on_github = plan.options, github.runs_here(os.environ)
    made = [plan]
    try:
        with reporter(console) as shown:

            def prepare(report: events.Notes) -> Plan:
                made.append(_made(options, report, shown, only_plan=False))
                return made[-1]

            summary = execute(plan, _noting(shown, invocation), prepare)
    except MegabuildError as error:
        rows = packages_of_last_run(options.state)
        show(console, ["", *package_lines(rows)])
        if on_github:
            github.add_to_summary(options.run_name, rows, 0.0, error.message, os.environ)
            console.out(github.error(error.message), highlight=False)
            error.message = github.harmless(error.message)
        raise
    result = summary.result(commands(made[-1], summary))
    if line := upload(made[-1], summary):
        result = replace(result, lines=[*result.lines, "", "to upload it:", f"  {line}"])
    if on_github:
        github.add_to_summary(options.run_name, summary.packages, summary.seconds, summary.error, os.environ)
        result = replace(result, lines=[github.harmless(line) for line in result.lines])
    return _shown(result, console, invocation)


def debug(options: Options, output: str | None) -> Result:
    """Make the environment of an output."""
    from megabuild.run.debug import debug_package

    with in_use.using(options.cache, options.cache_name):
        return debug_package(_planned(options, Console(stderr=True), only_plan=False), output)


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


def _planned(options: Options, console: Console, *, only_plan: bool = True) -> Plan:
    """Make the plan; what the providers do for it is shown meanwhile, and what they ask is put to the user."""
    with reporter(console) as shown:
        return _made(options, shown.note, shown, only_plan=only_plan)


def _made(options: Options, report: events.Notes, shown: PlainReporter, *, only_plan: bool) -> Plan:
    """Make the plan, and unless it is all, what it needs, in the time that there is."""
    with options.deadline.ends(f"preparing {options.run_name}") if options.deadline else nullcontext():
        return make_plan(options, report, _asking(shown), only_plan=only_plan)


def _asking(shown: PlainReporter) -> Callable[[str], bool]:
    return lambda question: person_present() and shown.ask(question)


def _noting(shown: PlainReporter, invocation: Invocation) -> events.Reporter:
    def report(event: events.Event, /) -> None:
        if isinstance(event, events.RunStarted):
            invocation.log = event.log
        shown(event)

    return report
