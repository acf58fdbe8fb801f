"""Planning and running a build, with everything shown on the way."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console

from megabuild import events
from megabuild.build.commands import commands
from megabuild.build.session import execute
from megabuild.build.summary import PackageResult
from megabuild.cli.configs import person_present
from megabuild.cli.exits import Invocation, outcome
from megabuild.cli.reporters import PlainReporter, reporter
from megabuild.cli.text import Signs, duration, plain_lines, table
from megabuild.cli.views import (
    package_lines,
    plan_document,
    plan_lines,
    rendered_lines,
    summary_lines,
    use_lines,
)
from megabuild.errors import BuildError, Interrupted, MegabuildError, ProviderError
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
        made = planned(options, console, only_plan=plan_only)
    except ProviderError as error:
        if plan_only:  # what would be built is known even where it cannot be built
            _print(console, [f"{signs.failed} {error.message}", "", *rendered_lines(options)])
        raise
    if plan_only and invocation.json:
        invocation.show(plan_document(made))
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
    use = commands(made, summary)
    _print(console, ["", *summary_lines(summary, signs), *use_lines(use)])
    if invocation.json:
        invocation.show({**summary.to_dict(), "use": use})
    return 0 if summary.ok else BuildError.exit_code


def each(runs: Mapping[str, Callable[[Invocation], int]], invocation: Invocation) -> int:
    """Run several configs, one after the other; one that fails does not stop the others, Ctrl-C does.

    Each has its own plan, log, summary and errors. However it ends, there is a table of all in the end.

    Parameters
    ----------
    runs:
        By config: what does it, and returns an exit code.

    Returns
    -------
    The exit code of the first one that failed, or 0.
    """
    console = Console(stderr=invocation.json, soft_wrap=True)
    rows: list[dict[str, Any]] = [
        {"config": name, "exit_code": None, "seconds": 0.0, "log": None, "result": None} for name in runs
    ]
    code = 0
    try:
        for number, (row, run) in enumerate(zip(rows, runs.values(), strict=True), 1):
            gap = [""] if number > 1 else []
            _print(console, [*gap, f"[{number}/{len(rows)}] {row['config']}"])
            own = replace(invocation, log=None, show=partial(row.__setitem__, "result"))
            began = time.monotonic()
            row["exit_code"] = outcome(partial(run, own), own)
            row["seconds"], row["log"] = round(time.monotonic() - began, 1), own.log and str(own.log)
            if row["exit_code"] == Interrupted.exit_code:
                break
    except KeyboardInterrupt:  # between two of them
        code = Interrupted.exit_code
    cells = [
        (row["config"], "not started", "", "")
        if row["exit_code"] is None
        else (row["config"], str(row["exit_code"]), duration(row["seconds"]), row["log"] or "")
        for row in rows
    ]
    _print(console, ["", *table(("config", "exit code", "time", "log"), cells, right=frozenset({2}))])
    code = next((row["exit_code"] for row in rows if row["exit_code"]), code)
    if invocation.json:
        invocation.show({"configs": rows, "exit_code": code})
    return code


def planned(options: Options, console: Console, *, only_plan: bool = False) -> Plan:
    """Make the plan; what the providers prepare for it is shown meanwhile, and what they ask is put to the user."""
    with reporter(console) as shown:

        def ask(question: str) -> bool:
            return person_present() and shown.ask(question)

        return make_plan(options, shown.note, ask, only_plan=only_plan)


def _noting(shown: PlainReporter, invocation: Invocation) -> events.Reporter:
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
    console.out(plain_lines("\n".join(lines)), highlight=False)
    sys.stdout.flush()
