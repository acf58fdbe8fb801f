"""Several configs in one run, one after the other: a failure does not stop the others, a table closes the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groundwork.errors import Interrupted
from groundwork.result import Result
from groundwork.text import duration, table


@dataclass(kw_only=True)
class Attempt:
    """The outcome of one config: each has its own plan, log, result and errors."""

    config: str
    exit_code: int | None = None  #: None: not started
    seconds: float = 0.0
    log: str | None = None  #: of a run that came so far
    result: object = None  #: the document that it would have given alone

    def cells(self) -> tuple[str, ...]:
        """Its row of the closing table."""
        if self.exit_code is None:
            return self.config, "not started", "", ""
        return self.config, str(self.exit_code), duration(self.seconds), self.log or ""


def each(
    configs: Sequence[str], show: Callable[[Sequence[str]], None], attempt: Callable[[Attempt], int]
) -> Result:
    """Try all configs; one that fails does not stop the others, Ctrl-C does.

    ``show`` takes a heading before each; ``attempt`` fills in log and result, and returns an exit code. That of the
    first one that failed becomes everything's.
    """
    attempts = [Attempt(config=name) for name in configs]
    code = 0
    try:
        for number, one in enumerate(attempts, 1):
            show([*([""] if number > 1 else []), f"[{number}/{len(attempts)}] {one.config}"])
            began = time.monotonic()
            one.exit_code = attempt(one)
            one.seconds = round(time.monotonic() - began, 1)
            if one.exit_code == Interrupted.exit_code:
                break
    except KeyboardInterrupt:  # between two of them
        code = Interrupted.exit_code
    code = next((one.exit_code for one in attempts if one.exit_code), code)
    heads, rows = ("config", "exit code", "time", "log"), [one.cells() for one in attempts]
    return Result(
        format="runs",
        document={"configs": [vars(one) for one in attempts], "exit_code": code},
        lines=["", *table(heads, rows, right=frozenset({2}))],
        exit_code=code,
    )
