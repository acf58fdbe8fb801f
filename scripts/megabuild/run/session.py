"""One run of a plan from lock to summary."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from filelock import Timeout

from groundwork import files, in_use, interrupts
from groundwork.errors import (
    BuildError,
    BusyError,
    DeadlineError,
    Interrupted,
    MegabuildError,
)
from groundwork.files import FileLock
from groundwork.machine import give_back_memory
from groundwork.redact import Mask
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.run.driver import Driver
from megabuild.run.logfile import LogFile
from megabuild.run.preparation import Prepare
from megabuild.run.summary import LATEST, RECORDS, Summary
from megabuild.status import trace
from megabuild.status.status import Status, logger


def execute(
    plan: Plan, follow: Callable[[Status], None] = lambda status: None, prepare: Prepare | None = None
) -> Summary:
    """Run a plan to its end; ``follow`` takes its status, and the logger ``megabuild`` has its sentences.

    Where the plan's environment is not ready, ``prepare`` makes what it lacks.

    The summary is also written into a record of its own below the state folder's ``runs``, whatever happened, and to
    ``run.json``, which a run that had nothing to do leaves as it is; as it does what others are told of the last one.

    Raises MegabuildError: What stopped the run; everything finished is kept.
    """
    options = plan.options
    in_use.mark(options.output)
    in_use.mark(options.state)
    files.writable(options.state, "choose another folder with --output")
    give_back_memory()
    with (
        locked(options),
        interrupts.stop_on_signals(),
        LogFile(options.state / "logs", options.run_name, Mask(os.environ), latest=False) as log_file,
    ):
        run = Driver(plan, log_file, follow, prepare)
        handler = _FileHandler(log_file)
        logger.addHandler(handler)
        error, status, code = "interrupted", "interrupted", Interrupted.exit_code
        try:
            run.go()
            error, status, code = "", "done", 0
        except DeadlineError as late:
            error, code = log_file.mask(late.message), late.exit_code
            raise
        except MegabuildError as failed:
            error, status, code = log_file.mask(failed.message), "failed", failed.exit_code
            raise
        except KeyboardInterrupt as stop:
            raise Interrupted(
                f"interrupted by {str(stop) or 'Ctrl-C'}",
                "finished packages and objects are kept: run again to continue",
            ) from None
        except Exception as failed:
            error, status = log_file.mask(f"{type(failed).__name__}: {failed}"), "failed"
            code = os.EX_SOFTWARE
            raise
        finally:
            logger.removeHandler(handler)
            if error:
                log_file.write("driver", f"error: {error}")
            steps = trace.ninja_steps(options.state / "tree" / "build", run.status.record.began)
            summary = replace(run.summary(error), slowest_steps=trace.slowest(steps))
            if status == "done" and not summary.ok:
                status, code = "failed", BuildError.exit_code
            # on a full disk the run's own error is the one to tell
            with contextlib.suppress(OSError) if error else contextlib.nullcontext():
                run.note_channels()
                summary.write(options.state / RECORDS / f"{log_file.stamp}.json")
            if run.status.spans:
                path = options.state / RECORDS / f"{log_file.stamp}{trace.SUFFIX}"
                trace.write_trace(path, run.status.spans, steps, run.status.record.began)
                if not run.idle:
                    summary.write(options.state / LATEST)
            run.end(status, error, code, summary)
    return summary


class _FileHandler(logging.Handler):
    """Writes sentences into the run's log."""

    def __init__(self, file: LogFile) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        self._file.write("driver", record.getMessage())


@contextlib.contextmanager
def locked(options: Options) -> Iterator[None]:
    """Hold the config's lock; the process that has it is named in a file beside it.

    Raises BusyError: Another process has it.
    """
    holder = options.state / "lock.pid"
    lock = FileLock(options.state / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        owner = holder.read_text() if holder.exists() else "unknown"
        raise BusyError(
            f"{options.run_name} is already being built (process {owner}, {options.state})",
            "wait for it, or give another --output",
        ) from None
    with lock:
        lock.release()  # counted: the context holds it once more
        files.write(holder, str(os.getpid()))
        yield
