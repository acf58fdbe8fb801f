"""Plans and runs builds, one config after the other, and shows their progress."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from command_line.overview import CANNOT, overview_lines
from command_line.progress_display import Screen, show
from command_line.run_command import Invocation, error_document, outcome
from groundwork import in_use
from groundwork.errors import Interrupted, MegabuildError
from groundwork.result import Result
from groundwork.text import Sign, display, duration, size, table
from megabuild.plan import published
from megabuild.plan.options import Options, objects_lock
from megabuild.plan.plan import Plan
from megabuild.plan.plan_report import plan_result
from megabuild.plan.planning import make_plan
from megabuild.status.status import Status


def run_configs(
    options: Mapping[str, Options | MegabuildError],
    invocation: Invocation,
    *,
    plan_only: bool,
    remove_trees: bool,
) -> Result:
    """Plan or build configs one after the other. If one fails, the next one starts; Ctrl-C ends all.

    `options`: by config; the error of a config that does not support its options.
    """
    console = _console(invocation)
    if len(options) == 1:
        (only,) = options.values()
        if isinstance(only, MegabuildError):
            raise only
        if not plan_only:
            return _build(only, invocation, remove_trees=remove_trees)
        with Screen(console) as screen:
            return plan_result(_plan(only, screen, plan_only=True))
    plans = _survey(options, console, plan_only=plan_only)
    overview = overview_lines(plans)
    if not plan_only:
        show(console, overview)
    entries: list[dict[str, object]] = [{"config": name, "exit_code": None, "log": None} for name in plans]
    rows, exit_code = [], 0
    for number, (entry, (name, plan)) in enumerate(zip(entries, plans.items(), strict=True), 1):
        if exit_code == Interrupted.exit_code:
            rows.append((name, "", "not started"))
            continue
        if isinstance(plan, MegabuildError):
            document = error_document(plan, type(plan).__name__, plan.remedy)
            entry |= {"exit_code": plan.exit_code, "result": document}
            rows.append((name, "", f"{Sign.failed} {CANNOT}: exit code {plan.exit_code}"))
            exit_code = exit_code or plan.exit_code
            continue
        show(console, ["", f"[{number}/{len(plans)}] {name}"])
        own, began = replace(invocation, entry=entry), time.monotonic()
        code = outcome(partial(_run_planned, plan, own, plan_only=plan_only, remove_trees=remove_trees), own)
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
    return _shown(result, invocation)


def _survey(
    options: Mapping[str, Options | MegabuildError], console: Console, *, plan_only: bool
) -> dict[str, Plan | Exception]:
    """Plan all configs before the first one is built; return the plan or the exception of each."""
    plans: dict[str, Plan | Exception] = {}
    with Screen(console) as screen:
        for number, (name, config) in enumerate(options.items()):
            screen.note(f"planning {number}/{len(options)}")
            if isinstance(config, MegabuildError):
                plans[name] = config
                continue
            try:
                plans[name] = _plan(config, screen, plan_only=plan_only)
            except Exception as error:
                plans[name] = error
    return plans


def _run_planned(
    plan: Plan | Exception, invocation: Invocation, *, plan_only: bool, remove_trees: bool
) -> Result:
    """Show a plan of the survey, or build its config, which is planned again: others were built meanwhile."""
    if isinstance(plan, Exception):
        raise plan
    if plan_only:
        return plan_result(plan)
    return _build(plan.options, invocation, remove_trees=remove_trees)


def _build(options: Options, invocation: Invocation, *, remove_trees: bool) -> Result:
    """Show the plan, then prepare and run the build."""
    # imported late: --plan needs none of it
    from megabuild.run import session

    console = _console(invocation)
    with in_use.shared_lock(options.cache, options.cache_name, objects_lock(options.objects_name)):
        if (options.state / "lock").is_file():
            with session.locked(options):  # another run is an error before the plan, not after it
                pass
        with Screen(console) as screen:
            plan = _plan(options, screen, plan_only=False)
        in_use.note_output(options.cache, options.output)
        show(console, plan_result(plan).lines)
        result = _execute(plan, console, invocation)
        if remove_trees and result.exit_code == 0:
            show(console, ["", f"work trees removed: {size(session.remove_trees(options))}"])
        return _shown(result, invocation)


def _execute(plan: Plan, console: Console, invocation: Invocation) -> Result:
    from megabuild.run import session

    sums: Path | None = None
    status = Status(plan.options.run_name, plan.options.state)
    try:
        with Screen(console, verbose=invocation.verbose) as screen:
            screen.follow(status)
            summary = session.execute(plan, status)
    except MegabuildError:
        show(console, ["", *table(("package", "state"), [*status.record.packages.items()])])
        raise
    finally:
        invocation.log = Path(status.record.log) if status.record.log else None
        with suppress(OSError, MegabuildError):  # a full disk
            sums = published.write_sums(plan.options.output)
    if sums and any(row.status == "built" for row in summary.packages):
        show(console, [f"packages and their hashes: {display(sums)}"])
    return summary.result(rehearsal=plan.options.rehearse)


def _console(invocation: Invocation) -> Console:
    """Return the console for progress: standard output, or standard error with --json."""
    return Console(stderr=invocation.json, soft_wrap=True)


def _shown(result: Result, invocation: Invocation) -> Result:
    """Return a result; with --json, also print its lines with the progress on standard error."""
    if invocation.json:
        show(_console(invocation), result.lines)
    return result


def _plan(options: Options, screen: Screen, *, plan_only: bool) -> Plan:
    """Make the plan, and show the progress of the providers; with ``plan_only``, an unreachable channel is a note."""
    if options.deadline and options.deadline.left <= 0:
        raise options.deadline.error(f"before preparing {options.run_name}")
    with in_use.shared_lock(options.cache, options.cache_name, objects_lock(options.objects_name)):
        return make_plan(options, screen.note, only_plan=True, without_channel=plan_only)
