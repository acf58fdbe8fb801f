"""Run programs whose failure is a ProviderError, and functions in parallel."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

from groundwork import guard, process
from groundwork.errors import ProviderError

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
    is_relevant: Callable[[str], bool] = lambda line: not line.startswith("WARNING:"),
) -> str:
    """Run a program and return what it printed on stdout.

    `what`: what is being done, as the subject of an error message: "resolving wheels for Python 3.12".
    `guarded`: End the program, and what it starts, with this process, even by ``kill -9``: for what goes on for
      minutes. Its complaints are among what it printed.

    Raises ProviderError: The program is missing, failed, or took longer than `timeout`; with the last lines it
        printed.
    """
    done = _run_guarded(argv, timeout, env) if guarded else process.run(argv, timeout=timeout, environ=env)
    if done.returncode:
        printed = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        tail = "\n  ".join(([line for line in printed if is_relevant(line)] or printed)[-_LINES_SHOWN:])
        raise ProviderError(f"{what}: {argv[0]} failed with exit status {done.returncode}:\n  {tail}", remedy)
    return done.stdout


def _run_guarded(
    argv: Sequence[str], timeout: float, env: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with process.start_guarded(argv, **pipes, text=True, errors="replace", env=env) as program:
        # the guard ends everything when its input closes, whose other end only this process has
        held, program.stdin = program.stdin, None  # or `communicate` would close it
        assert held is not None
        with held:
            try:
                output, _ = program.communicate(timeout=timeout)
            except BaseException as error:
                held.close()
                with suppress(subprocess.TimeoutExpired):
                    program.wait(guard.GRACE_SECONDS + 1)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return subprocess.CompletedProcess(
                    argv, process.TIMED_OUT, f"no end after {timeout:.0f} s", ""
                )
    return subprocess.CompletedProcess(argv, program.returncode, output, "")


@contextmanager
def threads(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a thread pool that does not delay an interrupt.

    Running tasks are awaited, also after a failure, since the caller cleans up after them. After Ctrl-C or a signal
    the process ends with its threads, and guarded programs end with the process.
    """
    pool = ThreadPoolExecutor(at_once)
    try:
        yield pool
        pool.shutdown()
    except BaseException as error:
        pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        raise


def each(function: Callable[[Item], Result], items: Iterable[Item], at_once: int) -> Iterator[Result]:
    """Yield `function(item)` for all items in their order, working on up to `at_once` of them.

    The first failure is raised as soon as its turn comes; tasks that have not started by then never do.
    """
    with threads(at_once) as pool:
        for future in [pool.submit(function, item) for item in items]:
            yield future.result()
