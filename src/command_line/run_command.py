"""Runs a command, prints its result or its error, and ends the process with its exit code."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, NoReturn, TextIO, cast

import click

from command_line.error_report import expected_error, write_crash
from command_line.options import WIDEST
from command_line.output_stream import Output
from command_line.root import log_folder
from groundwork import interrupts
from groundwork.bootstrap import open_streams
from groundwork.errors import Interrupted
from groundwork.folding import folded, terminal_width
from groundwork.network import certificates
from groundwork.redact import Mask
from groundwork.result import Result
from groundwork.text import printable
from groundwork.user_folders import replace_home

CRASHED = os.EX_SOFTWARE  # 70
PIPE_CLOSED = 141


@dataclass
class Invocation:
    """Facts about one start of the program that an error report needs."""

    log_folder: Path  #: folder for crash files and for the logs of runs
    json: bool = False  #: standard output holds exactly one JSON document
    log: Path | None = None  #: log of the run in progress, printed with an error


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The end of a command, or of one of its configs."""

    exit_code: int
    #: the result or the error for ``--json``; None if there is none, or the reader closed the pipe
    document: Mapping[str, object] | None = None


def run(command: click.Command, *, name: str, invocation: Invocation | None = None) -> NoReturn:
    """Run a click command, then end the process with its exit code.

    The command gets ``invocation`` as ``context.obj``. ``name`` is the program's name in help texts.
    """
    invocation = invocation or Invocation(log_folder=log_folder())
    open_streams()
    certificates.share_with_programs(os.environ)
    _keep_utf8(os.environb)
    replace_home(os.environ)
    mask = Mask(os.environ)
    stdout = Output(sys.stdout, mask)
    stderr = Output(sys.stderr, mask)
    sys.stdout = cast(TextIO, stdout)
    sys.stderr = cast(TextIO, stderr)
    # before click reads the options: an error in them must be a JSON document, too
    invocation.json = "--json" in sys.argv[1:]
    action = partial(
        command.main, prog_name=name, standalone_mode=False, obj=invocation, terminal_width=_help_width()
    )
    with interrupts.stop_on_signals():
        try:
            code = outcome(action, invocation)
        except KeyboardInterrupt:  # a signal while an error was printed
            code = Interrupted.exit_code
        interrupts.ignore_signals()
    if code == 0 and (stdout.is_incomplete or stderr.is_incomplete):
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the output")
        code = _report(full, invocation).exit_code
    end_process(code)


def _help_width() -> int | None:
    """Return the width of help texts; None, where no terminal has one, for click's 80."""
    width = terminal_width(sys.stdout, os.environ)
    if not width:
        return None
    return min(width, WIDEST) - 1


def end_process(code: int) -> NoReturn:
    """End the process with an exit code, also if threads of the solver are still running."""
    if "rattler" not in sys.modules and threading.active_count() == 1:
        sys.exit(code)
    # the solver's threads may still run, and would abort the process while Python shuts down
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a closed pipe, a closed stream
            stream.flush()
    os._exit(code)


def _keep_utf8(environ: MutableMapping[bytes, bytes]) -> None:
    """Remove other text from variables, in lists such as PATH only these entries: rattler panics on it."""
    for name, value in list(environ.items()):
        if not _is_utf8(name):
            del environ[name]
            continue
        parts = filter(_is_utf8, value.split(b":"))
        environ[name] = b":".join(parts)


def _is_utf8(text: bytes) -> bool:
    return text.decode(errors="ignore").encode() == text


def outcome(action: Callable[[], object], invocation: Invocation) -> int:
    """Call ``action``, print its result or its error, with ``--json`` as a document, and return the exit code."""
    ending = finish(action, invocation)
    if not invocation.json or ending.document is None:
        return ending.exit_code
    printed = finish(partial(_print_document, ending.document), invocation)
    return ending.exit_code or printed.exit_code


def finish(action: Callable[[], object], invocation: Invocation) -> Ending:
    """Call ``action`` and print its error, or its result unless ``--json`` asks for the document."""
    try:
        with interrupts.stop_on_signals():
            result = _call(action)
            if isinstance(result, Result) and result.lines and not invocation.json:
                print_lines(result.lines, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python prints a second error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Ending(exit_code=PIPE_CLOSED)
    except SystemExit:
        raise
    except BaseException as error:  # a panic of rattler is no Exception
        return _report(error, invocation)
    if isinstance(result, Result):
        return Ending(exit_code=result.exit_code, document=result.to_json())
    return Ending(exit_code=result)


def _call(action: Callable[[], object]) -> Result | int:
    """Return an action's result, or the exit code that click returns."""
    try:
        result = action()
    except click.exceptions.NoArgsIsHelpError as shown:
        return Result(lines=shown.format_message().splitlines())
    if isinstance(result, (Result, int)):
        return result
    return 0


def _report(error: BaseException, invocation: Invocation) -> Ending:
    """Print an error, and return its exit code and document; no other code prints errors."""
    shown = expected_error(error)
    if shown is None:
        kind = type(error).__name__
        code = CRASHED
        shown = write_crash(error, invocation.log_folder)
    else:
        kind = type(shown).__name__
        code = shown.exit_code
    remedy = shown.remedy
    if certificates.is_untrusted(shown.message):
        remedy = certificates.REMEDY
    log = str(invocation.log or "")
    lines = [f"error: {shown.message}"]
    if remedy:
        lines.append(f"hint: {remedy}")
    if log and log not in shown.message + remedy:
        lines.append(f"log: {log}")
    print_lines(lines, sys.stderr)
    document: dict[str, object] = {
        "kind": kind,
        "message": shown.message,
        "remedy": remedy,
        "exit_code": code,
        "log": log or None,
    }
    if shown.failure is not None:
        document["failure"] = shown.failure.to_dict()
    return Ending(exit_code=code, document={"error": document})


def _print_document(document: Mapping[str, object]) -> None:
    click.echo(json.dumps(document, indent=1))


def print_lines(lines: Sequence[str], stream: IO[str]) -> None:
    """Print lines for people, folded for a terminal, with the signs that the stream can show."""
    click.echo(folded(printable("\n".join(lines), stream), stream), file=stream)
