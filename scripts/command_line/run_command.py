"""From exceptions to exit codes: what the user reads, and what a script sees, when something goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import NoReturn, TextIO, cast

import click

from command_line.root import lacking_extra
from command_line.streams import Output
from groundwork import interrupts
from groundwork.bootstrap import DELETE, STAMP, open_streams
from groundwork.errors import Interrupted, MegabuildError, of_system
from groundwork.network import certificates
from groundwork.redact import Mask
from groundwork.result import Result
from groundwork.text import Signs, fitted, plain_lines
from groundwork.user_folders import replace_home

CRASHED = os.EX_SOFTWARE  # 70
PIPE_CLOSED = 141


def _print(document: object) -> None:
    click.echo(json.dumps(document, indent=1))


@dataclass
class Invocation:
    """What one start of the program came to know, for the case that it fails."""

    log_folder: Path  #: where a crash file goes, and where logs of a failed run lie
    json: bool = False  #: stdout belongs to one JSON document
    verbose: bool = False  #: every line of the builds is shown
    log: Path | None = None  #: the log of the run in progress, named beside an error
    after_stop: str = ""  #: what an interrupted command leaves, and how to go on
    show: Callable[[object], None] = _print  #: takes the JSON document
    runs: list[str] = field(default_factory=list)  #: names of the runs that were begun
    #: takes every document, printed or not
    noted: Callable[[object], None] = lambda document: None
    beside: dict[str, object] = field(default_factory=dict)  #: what an error's document has beside the error


def run(
    command: click.Command, *, name: str, invocation: Invocation, arguments: list[str] | None = None
) -> NoReturn:
    """Run a click command and end the process with the exit code of what happened.

    The command finds ``invocation`` as ``context.obj``; ``name`` is the program's in help texts; ``arguments`` are
    those of the command line where none are given.
    """
    open_streams()
    certificates.share_with_programs(os.environ)
    replace_home(os.environ)
    # nothing secret gets out, whoever prints it: a plan, an excerpt of a log, a library's complaint
    mask = Mask(os.environ)
    sys.stdout = cast(TextIO, Output(sys.stdout, mask))
    sys.stderr = cast(TextIO, Output(sys.stderr, mask))
    # known before the options are understood, which may be what fails
    invocation.json = invocation.json or "--json" in (sys.argv[1:] if arguments is None else arguments)
    _leave(
        outcome(
            lambda: command.main(arguments, prog_name=name, standalone_mode=False, obj=invocation), invocation
        )
    )


def _leave(code: int) -> NoReturn:
    """End the process, and with it the threads that an interrupted run no longer waits for.

    The solver's native threads may outlive a solve, and abort an interpreter that is torn down.
    """
    if "rattler" not in sys.modules and threading.active_count() == 1:
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a closed pipe, a closed stream
            stream.flush()
    os._exit(code)


def outcome(action: Callable[[], object], invocation: Invocation) -> int:
    """Call something, print what it returns or report what it raises, and return the exit code."""
    try:
        with interrupts.stop_on_signals():
            result = action()
            if isinstance(result, Result):
                _show(result, invocation)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.Abort as abort:
        if isinstance(abort.__cause__, KeyboardInterrupt):
            return _told(_stopped(abort.__cause__, invocation), invocation)
        return _told(Interrupted("nothing was chosen"), invocation)
    except click.ClickException as error:
        _give(_document("UsageError", error.format_message(), "", error.exit_code, invocation), invocation)
        error.show(sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as stop:
        return _told(_stopped(stop, invocation), invocation)
    except MegabuildError as error:
        return _told(error, invocation)
    except BrokenPipeError:
        # Whoever read our output went away. Python would complain once more while closing the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        refused = of_system(error) if isinstance(error, OSError) else lacking_extra(error)
        return _told(refused, invocation) if refused else _crashed(error, invocation)
    if isinstance(result, Result):
        return result.exit_code
    return result if isinstance(result, int) else 0


def _show(result: Result, invocation: Invocation) -> None:
    """Print what a command returned: the only place that chooses between a document and text."""
    _give(result.to_json(), invocation)
    if result.lines and not invocation.json:
        text = _fitted(plain_lines("\n".join(result.lines)), sys.stdout)
        click.echo(Signs.of(sys.stdout).in_place_of_unicode(text))


def _stopped(by: KeyboardInterrupt, invocation: Invocation) -> Interrupted:
    return Interrupted(f"interrupted by {str(by) or 'Ctrl-C'}", invocation.after_stop)


def _told(error: MegabuildError, invocation: Invocation) -> int:
    error.remedy = certificates.remedy_for(error.message, error.remedy)
    _give(document_of(error, invocation), invocation)
    log = str(invocation.log or "")
    lines = [f"error: {error.message}"]
    lines += [f"  {error.remedy}"] if error.remedy else []
    lines += [f"  log: {log}"] if log and log not in error.message + error.remedy else []
    _complain("\n".join(lines))
    if os.environ.get("MEGABUILD_TRACEBACK"):
        traceback.print_exception(error)
    return error.exit_code


def _complain(text: str) -> None:
    click.echo(_fitted(plain_lines(text), sys.stderr), err=True)


def _fitted(text: str, stream: TextIO) -> str:
    return fitted(text, shutil.get_terminal_size().columns) if stream.isatty() else text


def _crashed(error: Exception, invocation: Invocation) -> int:
    text = "".join(traceback.format_exception(error))
    note = ""
    if isinstance(error, (ImportError, SyntaxError, AttributeError)) and Path(sys.prefix, STAMP).is_file():
        note = f"\n  if a file of .venv is missing or damaged, {DELETE}"
    try:
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        invocation.log_folder.mkdir(parents=True, exist_ok=True)
        crash = invocation.log_folder / f"crash-{stamp}-{os.getpid()}.txt"
        content = f"arguments: {sys.argv[1:]}\nPython {sys.version}\n\n{text}"
        crash.write_text(Mask(os.environ)(content), encoding="utf-8")
        note += f"\n  details: {crash}"
    except OSError:
        note += f"\n{text}"
    message = f"unexpected {type(error).__name__}: {error}"
    _give(_document(type(error).__name__, message, note.strip(), CRASHED, invocation), invocation)
    _complain(f"error: {message}{note}")
    if os.environ.get("MEGABUILD_TRACEBACK"):
        _complain(text)
    return CRASHED


def document_of(error: MegabuildError, invocation: Invocation) -> dict[str, object]:
    """Return an error as a document."""
    document = _document(type(error).__name__, error.message, error.remedy, error.exit_code, invocation)
    details = {"failure": error.failure} if error.failure else {}
    return {"error": {**document["error"], **details}, **invocation.beside}


def _document(
    kind: str, message: str, remedy: str, exit_code: int, invocation: Invocation
) -> dict[str, dict[str, object]]:
    log = str(invocation.log) if invocation.log else None
    error = {"kind": kind, "message": message, "remedy": remedy, "exit_code": exit_code, "log": log}
    return {"error": error}


def _give(document: Mapping[str, object], invocation: Invocation) -> None:
    """Give scripts a document, where they asked for one."""
    invocation.noted(document)
    if invocation.json:
        invocation.show(document)
