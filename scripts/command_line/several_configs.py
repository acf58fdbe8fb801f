"""Building or planning several configs: a table before, one after the other, a table in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from command_line import running
from command_line.progress_display import show
from command_line.run_command import Invocation, outcome
from groundwork.errors import Interrupted
from groundwork.result import Result
from groundwork.text import UNICODE, duration, size, table, wrapped
from megabuild.plan.options import Options
from megabuild.plan.report import plan_result

_FIGURES = ("build", "there", "cpu_hours", "hours", "disk")
_MOST_REASON = 200


@dataclass(kw_only=True)
class Attempt:
    """The outcome of one config: each has its own plan, log, result and errors."""

    config: str
    exit_code: int | None = None  #: None: not started
    seconds: float = 0.0
    log: str | None = None  #: of a run that came so far
    result: object = None  #: the document that it would have given alone
    plan: dict[str, float] | None = None  #: None: it cannot be planned

    @property
    def document(self) -> dict[str, Any]:
        """The result where it is one."""
        return self.result if isinstance(self.result, dict) else {}

    @property
    def reason(self) -> str:
        """Why it failed, in a line: file, line and message of the first error, where they are known."""
        error = self.document.get("error") or ""
        told: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
        failures: list[dict[str, Any]] = self.document.get("failures", [])
        for failure in [told["failure"]] if told.get("failure") else failures:
            if failure["file"]:
                place = f"{failure['file']}:{failure['line']}" if failure["line"] else failure["file"]
                return f"{place}: {failure['message']}"[:_MOST_REASON]
        return str(told["message"]).partition("\n")[0][:_MOST_REASON]

    def packages(self) -> dict[str, int]:
        """Return how many packages were built, were there, and are missing, and the bytes of those that exist."""
        rows = [
            row for row in self.document.get("packages", []) if "status" in row
        ]  # those of a plan have none
        states = [row["status"] for row in rows]
        return {
            "built": states.count("built"),
            "there": states.count("skipped"),
            "failed": states.count("failed") + states.count("missing"),
            "bytes": sum(row.get("size", 0) for row in rows),
        }


def build_each(
    options: Mapping[str, Callable[[], Options]],
    build: Callable[[Options, Invocation], Result],
    invocation: Invocation,
    *,
    plan_only: bool,
) -> Result:
    """Plan all configs, then build one after the other, whatever becomes of each; or, with ``plan_only``, just plan.

    What is wrong with one, its options among that, is told once and keeps no other from being built. Ctrl-C ends all.
    """
    console = running.console(invocation)
    say = partial(show, console)
    attempts = [Attempt(config=name) for name in options]

    def plan(attempt: Attempt, own: Invocation) -> Result:
        made = running.planned(options[attempt.config](), running.console(own), only_plan=True)
        made.require_programs()
        return replace(plan_result(made), lines=())

    def build_one(attempt: Attempt, own: Invocation) -> Result:
        return build(options[attempt.config](), own)

    interrupted = 0
    try:
        for number, attempt in enumerate(attempts, 1) if not plan_only else ():
            say([f"[{number}/{len(attempts)}] planning {attempt.config}"])
            attempt.exit_code = _try(attempt, partial(plan, attempt), invocation) or None
            if attempt.exit_code is None:
                attempt.plan, attempt.result = _figures(attempt.document), None
        if not plan_only:
            say(["", *_plan_table(attempts), ""])
        for number, attempt in enumerate(attempts, 1):
            if attempt.exit_code is None:
                say([*([""] if number > 1 else []), f"[{number}/{len(attempts)}] {attempt.config}"])
                with _timed(attempt):
                    attempt.exit_code = _try(attempt, partial(build_one, attempt), invocation)
    except KeyboardInterrupt:  # also between two of them
        interrupted = Interrupted.exit_code
    if plan_only:
        for attempt in attempts:
            attempt.plan = _figures(attempt.document) if attempt.exit_code == 0 else None
    code = next((attempt.exit_code for attempt in attempts if attempt.exit_code), interrupted)
    return running.shown(_closing(attempts, code, plan_only=plan_only), console, invocation)


def _try(attempt: Attempt, action: Callable[[Invocation], Result], invocation: Invocation) -> int:
    """Do something for a config, report what goes wrong, and return the exit code; documents are kept, not printed.

    Raises KeyboardInterrupt: It was interrupted.
    """
    noted = partial(setattr, attempt, "result")
    own = replace(invocation, log=None, show=lambda document: None, noted=noted, beside={})
    code = outcome(lambda: action(own), own)
    attempt.log = str(own.log) if own.log else attempt.log
    if code == Interrupted.exit_code:
        attempt.exit_code = code
        raise KeyboardInterrupt
    return code


@contextmanager
def _timed(attempt: Attempt) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        attempt.seconds = round(time.monotonic() - began, 1)


def _figures(plan: Mapping[str, Any]) -> dict[str, float]:
    """Return what a config will take, by its plan's document."""
    tasks = plan["extensions"]["tasks"]
    exist = [package["exists"] for package in plan["packages"]]
    exist += [task["exists"] for task in tasks for _ in task["file_names"]]
    figures = plan["estimate"] if False in exist else dict.fromkeys(plan["estimate"], 0)
    return {
        "build": exist.count(False), "there": exist.count(True),
        **{name: figures[name] for name in ("cpu_hours", "hours", "disk")},
    }  # fmt: skip


def _plan_table(attempts: list[Attempt]) -> list[str]:
    """Return what each of them will take, and all together: of the disk, if nothing is removed in between."""

    def cells(plan: Mapping[str, float]) -> tuple[str, ...]:
        hours = (duration(3600 * plan[name]) if plan[name] else "" for name in ("cpu_hours", "hours"))
        return f"{plan['build']}", f"{plan['there']}", *hours, size(int(plan["disk"]))

    none = ("", "", "", f"{UNICODE.failed} no plan", "")
    rows = [(attempt.config, *(cells(attempt.plan) if attempt.plan else none)) for attempt in attempts]
    together = {name: sum(attempt.plan[name] for attempt in attempts if attempt.plan) for name in _FIGURES}
    heads = ("config", "build", "there", "CPU", "time", "disk")
    return table(heads, [*rows, ("together", *cells(together))], right=frozenset(range(1, 6)))


def _reasons(attempts: list[Attempt]) -> list[str]:
    """Return why configs failed, what several of them have in common once."""
    configs: dict[str, list[str]] = {}
    for attempt in attempts:
        if attempt.exit_code and attempt.reason:
            configs.setdefault(attempt.reason.replace(attempt.config, "it").removeprefix("it: "), []).append(
                attempt.config
            )
    return [
        line
        for reason, names in configs.items()
        for line in wrapped(f"{UNICODE.failed} {', '.join(names)}: {reason}")
    ]


def _closing(attempts: list[Attempt], exit_code: int, *, plan_only: bool) -> Result:
    """Return what is said in the end: of plans alone what they would take, else what was made, and what went wrong."""
    if plan_only:
        lines = _plan_table(attempts)
    else:
        rows = []
        for attempt in attempts:
            found = attempt.packages()
            state = f"{UNICODE.failed} ({attempt.exit_code})" if attempt.exit_code else UNICODE.done
            state = "not started" if attempt.exit_code is None else state
            numbers = [str(found[name]) for name in ("built", "there", "failed")]
            numbers += [size(found["bytes"]) if found["bytes"] else "", duration(attempt.seconds)]
            rows.append((attempt.config, *numbers, state))
        heads = ("config", "built", "there", "failed", "size", "time", "")
        done = sum(attempt.exit_code == 0 for attempt in attempts)
        lines = table(heads, rows, right=frozenset(range(1, 6)))
        lines.append(
            f"{done} of {len(attempts)} done in {duration(sum(attempt.seconds for attempt in attempts))}"
        )
    lines += _reasons(attempts)
    logs = [f"  {attempt.log}" for attempt in attempts if attempt.log]
    configs = [
        {**vars(attempt), "packages": attempt.packages(), "reason": attempt.reason} for attempt in attempts
    ]
    return Result(
        format="runs",
        document={"configs": configs, "exit_code": exit_code},
        lines=["", *lines, *(["", "logs:", *logs] if logs else [])],
        exit_code=exit_code,
    )
