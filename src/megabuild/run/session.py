"""One run of a plan from lock to summary."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from filelock import Timeout

from groundwork import files, in_use, interrupts
from groundwork.errors import BuildError, BusyError, DeadlineError, Interrupted, MegabuildError
from groundwork.files import FileLock
from groundwork.redact import Mask
from megabuild.plan.options import Options
from megabuild.run.driver import Driver
from megabuild.run.logfile import LogFile
from megabuild.run.outlook import Outlook
from megabuild.run.summary import LATEST, ResultStatus, Summary, follow_command
from megabuild.run.work_folders import remove_work
from megabuild.status.record import RunStatus
from megabuild.status.status import Status, logger
from megabuild.timeline.kept_files import keep_steps


def execute(outlook: Outlook, status: Status) -> Summary:
    """Run a plan to its end and return the summary.

    The run changes ``status``; its messages go to the logger ``megabuild``. Unless the run had nothing to do, the
    summary is also written to ``run.json``, even after an error.
    """
    options = outlook.options
    in_use.mark(options.output)
    in_use.mark(options.state)
    files.writable(options.state, "choose another folder with --output")
    with (
        locked(options),
        interrupts.stop_on_signals(),
        LogFile(options.state / "logs", options.run_name, Mask(os.environ)) as log,
    ):
        logger.addHandler(log)
        _remove_unfinished(options)
        run = Driver(outlook, log, status)
        failed = _go(run)
        end = _end_of(failed, log.mask)
        if failed is not None:
            log.write("driver", f"error: {end.message}")
        summary = run.summary(end.message)
        if failed is None and not summary.ok:
            end = _End(status=RunStatus.FAILED, exit_code=BuildError.exit_code)
        try:
            run.note_channels()
            if any(row.status is not ResultStatus.SKIPPED for row in summary.packages):
                summary.write(options.state / LATEST)
        except OSError:
            if failed is None:  # else report that error rather than a full disk
                raise
        status.end(end.status, end.message, end.exit_code, summary.seconds)
        if failed is not None:
            raise failed
    return summary


def _go(run: Driver) -> Exception | None:
    """Carry out a run; return the error that ended it."""
    try:
        run.go()
    except KeyboardInterrupt as stop:
        return Interrupted(
            f"interrupted by {str(stop) or 'Ctrl-C'}",
            "run again to resume: finished packages and objects are kept",
        )
    except Exception as error:
        return error
    return None


@dataclass(frozen=True, kw_only=True)
class _End:
    """The end of a run, as its record tells it."""

    status: RunStatus
    exit_code: int
    message: str = ""  #: without secrets


def _end_of(failed: Exception | None, mask: Mask) -> _End:
    if failed is None:
        return _End(status=RunStatus.DONE, exit_code=0)
    if isinstance(failed, (Interrupted, DeadlineError)):
        return _End(status=RunStatus.INTERRUPTED, exit_code=failed.exit_code, message=mask(failed.message))
    if isinstance(failed, MegabuildError):
        return _End(status=RunStatus.FAILED, exit_code=failed.exit_code, message=mask(failed.message))
    message = mask(f"{type(failed).__name__}: {failed}")
    return _End(status=RunStatus.FAILED, exit_code=os.EX_SOFTWARE, message=message)


def _remove_unfinished(options: Options) -> None:
    """Remove temporary files that killed runs of the config left."""
    for folder in (options.state, options.packages):
        files.remove_unfinished(folder)
    files.remove_unfinished(options.output, age=60.0)  # other configs' runs write there, maybe on other hosts


def locked(options: Options) -> contextlib.AbstractContextManager[object]:
    """Take the config's lock, which ends with a context; raise BusyError if another process has it."""
    try:
        return FileLock(options.state / "lock", timeout=0).acquire()
    except Timeout:
        raise BusyError(
            f"{options.run_name} is already being built in {options.state}",
            f"pass another --output, or wait for it: {follow_command(options)}",
        ) from None


def remove_trees(options: Options) -> int:
    """Remove a finished config's compiled tree and rattler-build's output; return the freed bytes.

    Packages, logs, records, ninja's log and the object cache stay.

    Raises BusyError: Another process is building the config.
    """
    with locked(options):
        keep_steps(options.state)
        return remove_work(options.state)
