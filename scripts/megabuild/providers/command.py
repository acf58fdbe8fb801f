"""Run programs whose failure is a ProviderError, and functions in parallel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeVar

from groundwork import guard
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
      minutes.

    Raises ProviderError: The program is missing, failed, or took longer than `timeout`; with the last lines it
        printed.
    """
    # the guard ends everything when its input closes, whose other end only this process has
    before = [sys.executable, "-I", "-S", guard.__file__] if guarded else []
    try:
        process = subprocess.Popen(
            [*before, *argv],
            stdin=subprocess.PIPE if guarded else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=None if env is None else dict(env),
        )
        held, process.stdin = process.stdin, None  # or `communicate` would close it
        with process, held or nullcontext():
            try:
                output, complaints = process.communicate(timeout=timeout)
            except BaseException:
                if held is None:
                    process.kill()
                else:
                    held.close()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(guard.GRACE_SECONDS + 1)
                raise
    except FileNotFoundError as error:
        raise ProviderError(f"{what}: {argv[0]} is not installed", remedy) from error
    except subprocess.TimeoutExpired as error:
        raise ProviderError(f"{what}: no end after {timeout:.0f} s", remedy) from error
    if process.returncode != 0:
        printed = [line for line in (output + complaints).splitlines() if line.strip()]
        tail = "\n  ".join(([line for line in printed if is_relevant(line)] or printed)[-_LINES_SHOWN:])
        raise ProviderError(f"{what} failed with exit status {process.returncode}:\n  {tail}", remedy)
    return output


@contextmanager
def threads(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a thread pool that does not delay an interrupt.

    Running tasks are awaited, also after a failure, since the caller cleans up after them. After Ctrl-C or a signal
    the process ends with its threads, and guarded programs end with the process.
    """
    pool = ThreadPoolExecutor(at_once)
    try:
        yield pool
    except Exception:
        pool.shutdown(cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    else:
        pool.shutdown()


def each(function: Callable[[Item], Result], items: Iterable[Item], at_once: int) -> Iterator[Result]:
    """Yield `function(item)` for all items in their order, working on up to `at_once` of them.

    The first failure is raised as soon as its turn comes; tasks that have not started by then never do.
    """
    with threads(at_once) as pool:
        for future in [pool.submit(function, item) for item in items]:
            yield future.result()
