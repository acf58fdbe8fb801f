"""Planning and running a build, with everything shown on the way."""

from __future__ import annotations

import json
import sys

import click
from rich.console import Console

from megabuild.build import events
from megabuild.build.session import execute
from megabuild.build.summary import PackageResult
from megabuild.cli.choose import person_present
from megabuild.cli.exits import Invocation
from megabuild.cli.reporters import Shown, reporter
from megabuild.cli.text import Signs
from megabuild.cli.views import package_lines, plan_document, plan_lines, rendered_lines, summary_lines
from megabuild.errors import BuildError, MegabuildError, ProviderError
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.plan.planning import make_plan


def plan_and_build(options: Options, invocation: Invocation, *, plan_only: bool) -> int:
    """Show the plan of a run, and carry it out unless only the plan is wanted.

    Returns
    -------
    The exit code: 0, or that of a failed build where some packages could not be made.
    """
    console = Console(stderr=invocation.json, soft_wrap=True)
    signs = Signs.of(console.file)
    try:
        made = planned(options, console)
    except ProviderError:
        if plan_only:  # what would be built is known even where it cannot be built
            _print(console, rendered_lines(options))
        raise
    if plan_only and invocation.json:
        click.echo(json.dumps(plan_document(made), indent=1))
        return 0
    _print(console, plan_lines(made, signs))
    if plan_only:
        return 0
    try:
        with reporter(console) as shown:
            summary = execute(made, _noting(shown, invocation))
    except MegabuildError:
        _print(console, ["", *_what_there_is(options, signs)])
        raise
    _print(console, ["", *summary_lines(summary, signs)])
    if invocation.json:
        click.echo(json.dumps(summary.to_dict(), indent=1))
    return 0 if summary.ok else BuildError.exit_code


def planned(options: Options, console: Console) -> Plan:
    """Make the plan; what the providers prepare for it is shown meanwhile, and what they ask is put to the user."""
    with reporter(console) as shown:

        def ask(question: str) -> bool:
            return person_present() and shown.ask(question)

        return make_plan(options, shown.note, ask)


def _noting(shown: Shown, invocation: Invocation) -> events.Reporter:
    def report(event: events.Event, /) -> None:
        if isinstance(event, events.RunStarted):
            invocation.log = event.log
        shown(event)

    return report


def _what_there_is(options: Options, signs: Signs) -> list[str]:
    """Return the closing table of a run that ended with an error, from what it left in ``run.json``."""
    try:
        document = json.loads((options.state / "run.json").read_text())
        return package_lines([PackageResult(**row) for row in document["packages"]], signs)
    except (OSError, ValueError, KeyError, TypeError):
        return []  # it ended before there was anything to tell


def _print(console: Console, lines: list[str]) -> None:
    console.out("\n".join(lines), highlight=False)
    sys.stdout.flush()
