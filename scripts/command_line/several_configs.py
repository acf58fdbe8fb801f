"""Building or planning several configs: a table before, one after the other, a table in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from command_line import running
from command_line.progress_display import show
from command_line.run_command import Invocation, outcome
from groundwork.errors import Interrupted
from groundwork.resources.machine import disk_free
from groundwork.result import Result
from megabuild.plan.options import Options
from megabuild.plan.report import plan_result
from megabuild.run.several import Attempt, Figures, closing, each, plan_table, room_lines


def build_each(
    options: Mapping[str, Callable[[], Options]],
    build: Callable[[Options, Invocation], Result],
    invocation: Invocation,
    output: Path,
    *,
    plan_only: bool,
) -> Result:
    """Plan all configs, then build one after the other, whatever becomes of each; or, with ``plan_only``, just plan.

    What is wrong with one, its options among that, is told once and keeps no other from being built.
    """
    console = running.console(invocation)
    say = partial(show, console)
    attempts = [Attempt(config=name) for name in options]

    def attempt(one: Attempt) -> int:
        return _outcome(one, lambda own: build(options[one.config](), own), invocation)

    if not plan_only:
        _plan(attempts, options, invocation, say)
        say(["", *plan_table(attempts), *room_lines(attempts, disk_free(output)), ""])
    if any(one.exit_code == Interrupted.exit_code for one in attempts):
        code = Interrupted.exit_code
    else:
        code = each(attempts, say, attempt)
    if plan_only:
        for one in attempts:
            one.plan = Figures.of(one.result) if one.exit_code == 0 and isinstance(one.result, dict) else None
    return running.shown(closing(attempts, code, planned=plan_only), console, invocation)


def _plan(
    attempts: Sequence[Attempt],
    options: Mapping[str, Callable[[], Options]],
    invocation: Invocation,
    say: Callable[[Sequence[str]], None],
) -> None:
    """Plan all of them, before hours go into the first; those that cannot be planned have an exit code then."""
    for number, one in enumerate(attempts, 1):
        say([f"[{number}/{len(attempts)}] planning {one.config}"])

        def act(own: Invocation, one: Attempt = one) -> Result:
            plan = running.planned(options[one.config](), running.console(own), only_plan=True)
            plan.require_programs()
            return replace(plan_result(plan), lines=())

        code = _outcome(one, act, invocation)
        if code:
            one.exit_code = code
        elif isinstance(one.result, dict):
            one.plan, one.result = Figures.of(one.result), None
        if code == Interrupted.exit_code:
            return


def _outcome(one: Attempt, action: Callable[[Invocation], Result], invocation: Invocation) -> int:
    """Do something for a config, report what goes wrong, and return the exit code; documents are kept, not printed."""
    own = replace(
        invocation,
        batch=True,
        log=None,
        show=lambda document: None,
        noted=partial(setattr, one, "result"),
        beside={},
    )
    code = outcome(lambda: action(own), own)
    one.log = str(own.log) if own.log else one.log
    return code
