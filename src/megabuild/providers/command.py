"""Run programs, raising ProviderError if they fail, and run functions in parallel."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from groundwork import guard, process
from groundwork.errors import OutOfSpaceError, ProviderError
from groundwork.machine import filled_disk

Item = TypeVar("Item")
Result = TypeVar("Result")
_LINES_SHOWN = 12


def run(
    argv: Sequence[str],
    *,
    what: str,
    remedy: str = "",
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    guarded: bool = False,
    writes: Path | None = None,
    relevant: str = "(?!WARNING:)",
) -> str:
    """Run a program and return its stdout.

    `what`: The activity, which begins the error message: "resolving wheels for Python 3.12".
    `guarded`: For programs that run for minutes: end the program and its children with this process, even after
      ``kill -9``. The result then includes stderr.
    `writes`: A folder in the cache that the program fills. Not every program says that the disk is full.
    `relevant`: A regular expression for the start of lines that may explain a failure.

    Raises ProviderError: The program is missing, failed, or took longer than `timeout` seconds; the message ends with
        its last lines of output. OutOfSpaceError: It failed because the disk of `writes` is full.
    """
    if guarded:
        done = _run_guarded(argv, timeout, env)
    else:
        done = process.run(argv, timeout=timeout, environ=env)
    if done.returncode == 0:
        return done.stdout
    printed = done.stdout + done.stderr
    if writes is not None:
        refuse_full_disk(what, writes, printed)
    lines = [line for line in printed.splitlines() if line.strip()]
    explaining = [line for line in lines if re.match(relevant, line)] or lines
    tail = "\n  ".join(explaining[-_LINES_SHOWN:])
    raise ProviderError(f"{what}: {argv[0]} failed with exit status {done.returncode}:\n  {tail}", remedy)


def refuse_full_disk(what: str, folder: Path, printed: str) -> None:
    """Raise OutOfSpaceError if a program that failed had no space in a folder of the cache; `what`: the activity."""
    if filled_disk(folder, printed):
        raise OutOfSpaceError(
            f"{what}: the disk is full, or has no inodes left ({folder})",
            "free some space, or set MEGABUILD_CACHE to a folder on another disk, then run again",
        )


def _run_guarded(
    argv: Sequence[str], timeout: float, env: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with process.start_guarded(argv, **pipes, text=True, errors="replace", env=env) as program:
        # the guard ends the program when its stdin closes; only this process holds the other end
        lifeline = program.stdin
        program.stdin = None  # else `communicate` would close it
        assert lifeline is not None
        with lifeline:
            try:
                output, _ = program.communicate(timeout=timeout)
            except BaseException as error:
                lifeline.close()
                with suppress(subprocess.TimeoutExpired):
                    program.wait(guard.GRACE_SECONDS + 1)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return subprocess.CompletedProcess(
                    argv, process.TIMED_OUT, f"timed out after {timeout:.0f} s", ""
                )
    return subprocess.CompletedProcess(argv, program.returncode, output, "")


def each(function: Callable[[Item], Result], items: Iterable[Item], at_once: int) -> Iterator[Result]:
    """Yield `function(item)` for all items, in order, running up to `at_once` in parallel.

    An item's exception is raised when its turn comes; tasks not started by then are cancelled. It waits for running
    tasks, because the caller then deletes their files. After Ctrl-C or a signal it does not wait: threads and guarded
    programs end with the process.
    """
    pool = ThreadPoolExecutor(at_once)
    try:
        for future in [pool.submit(function, item) for item in items]:
            yield future.result()
        pool.shutdown()
    except BaseException as error:
        pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        raise
