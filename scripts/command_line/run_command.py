"""Runs a command, prints its result or its error, and turns exceptions into exit codes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO, cast

import click

from command_line.options import WIDEST
from command_line.root import lacking_extra, log_folder, typed
from groundwork import interrupts
from groundwork.bootstrap import open_streams
from groundwork.errors import (
    FULL,
    Interrupted,
    MegabuildError,
    OutOfSpaceError,
    PreflightError,
    UsageError,
    of_system,
    of_text,
)
from groundwork.folding import folded, terminal_width
from groundwork.network import certificates
from groundwork.redact import Mask
from groundwork.result import Result
from groundwork.text import printable
from groundwork.user_folders import replace_home

CRASHED = os.EX_SOFTWARE  # 70
PIPE_CLOSED = 141
#: Group 1: the sequences that rich writes for this program (styles, links, moved and erased lines, a hidden cursor).
#: Without group 1: any other character that controls a terminal or the direction of writing.
_COMMAND = re.compile(
    r"(\x1b\[[0-9;]*[ABKm]|\x1b\[\?25[hl]|\x1b\]8;[^\x00-\x1f\x7f-\x9f]*\x1b\\)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
#: GitHub's workflow commands: "::" at the start of a line, "##[" anywhere.
_GITHUB_COMMAND = re.compile(r"(?m)^(\s*):(?=:)|##(?=\[)")
#: Options that change or delete files; none is suggested for an unknown option.
_ACTING = frozenset({"--apply", "--forget", "--undo", "--remove-trees"})


@dataclass
class Invocation:
    """Facts about one start of the program that an error report needs."""

    log_folder: Path  #: folder for crash files and for the logs of runs
    json: bool = False  #: standard output holds exactly one JSON document
    verbose: bool = False  #: print every line of the builds
    log: Path | None = None  #: log of the run in progress, printed with an error
    #: the entry of one of several configs; its "result" is the JSON document, which is then not printed
    entry: dict[str, object] | None = None


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
    outputs = Output(sys.stdout, mask), Output(sys.stderr, mask)
    sys.stdout, sys.stderr = (cast(TextIO, output) for output in outputs)
    # before click reads the options: an error in them must be a JSON document, too
    invocation.json = "--json" in sys.argv[1:]
    width = terminal_width(sys.stdout, os.environ)
    action = partial(
        command.main,
        prog_name=name,
        standalone_mode=False,
        obj=invocation,
        terminal_width=min(width, WIDEST) - 1 if width else None,  # else click's 80
    )
    with interrupts.stop_on_signals():
        try:
            code = outcome(action, invocation)
        except KeyboardInterrupt:  # a signal while an error was printed
            code = Interrupted.exit_code
        interrupts.ignore_signals()
    if code == 0 and any(output.is_incomplete for output in outputs):
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the output")
        code = _report(of_system(full) or OutOfSpaceError(str(full)), OutOfSpaceError.__name__, invocation)
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
        parts = [part for part in value.split(b":") if part.decode(errors="ignore").encode() == part]
        environ[name] = b":".join(parts)
        if name.decode(errors="ignore").encode() != name:
            del environ[name]


def outcome(action: Callable[[], object], invocation: Invocation) -> int:
    """Call ``action``, print its result or its error, and return the exit code."""
    try:
        with interrupts.stop_on_signals():
            try:
                result = action()
            except click.exceptions.NoArgsIsHelpError as shown:
                result = Result(lines=shown.format_message().splitlines())
            if isinstance(result, Result) and invocation.json:
                _give(result.to_json(), invocation)
            elif isinstance(result, Result) and result.lines:
                print_lines(result.lines, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python prints a second error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except SystemExit:
        raise
    except BaseException as error:  # a panic of rattler is no Exception
        expected = _expected_error(error)
        return _report(expected or _crash(error, invocation), type(expected or error).__name__, invocation)
    if isinstance(result, Result):
        return result.exit_code
    return result if isinstance(result, int) else 0


def _expected_error(error: BaseException) -> MegabuildError | None:
    """Return the error to show the user, or None for a bug of megabuild."""
    stop = error.__cause__ if isinstance(error, click.Abort) else error
    if isinstance(stop, KeyboardInterrupt):
        return Interrupted(f"interrupted by {str(stop) or 'Ctrl-C'}", "run the same command again")
    if isinstance(error, click.ClickException):
        return _usage_error(error)
    if isinstance(error, OSError):
        return of_system(error)
    if isinstance(error, MegabuildError):
        return error
    text = "not enough memory" if isinstance(error, MemoryError) else str(error)
    if text.startswith("Symlink loop from"):  # Path.resolve, before Python 3.13
        return PreflightError(text, "remove the link")
    return lacking_extra(error) if isinstance(error, ModuleNotFoundError) else of_text(text)


def _usage_error(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    remedy = f"run: {typed(context.command_path)} --help" if context else "add --help to the command"
    message = error.format_message()
    if isinstance(error, (click.NoSuchOption, click.exceptions.NoSuchCommand)):
        message = error.message  # without click's guesses
        close = [name for name in error.possibilities or () if name not in _ACTING]
        remedy = f"did you mean {close[0]}? {remedy}" if close else remedy
    return UsageError(message[0].lower() + message[1:].rstrip("."), remedy)


def _crash(error: BaseException, invocation: Invocation) -> MegabuildError:
    """Write a crash file, and return an error that names it."""
    text = "".join(traceback.format_exception(error))
    try:
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        invocation.log_folder.mkdir(parents=True, exist_ok=True)
        crash = invocation.log_folder / f"crash-{stamp}-{os.getpid()}.txt"
        content = f"arguments: {sys.argv[1:]}\nPython {sys.version}\n\n{text}"
        crash.write_text(Mask(os.environ)(content), encoding="utf-8")
        hint = f"report this bug, with the file {crash}"
    except OSError:
        hint = text
    return MegabuildError(f"unexpected {type(error).__name__}: {error}", hint)


def _report(error: MegabuildError, kind: str, invocation: Invocation) -> int:
    """Print an error and return its exit code; no other code prints errors."""
    remedy = certificates.REMEDY if certificates.is_untrusted(error.message) else error.remedy
    log = str(invocation.log or "")
    code = error.exit_code if type(error) is not MegabuildError else CRASHED
    if invocation.json:
        document: dict[str, object] = {
            "kind": kind,
            "message": error.message,
            "remedy": remedy,
            "exit_code": code,
            "log": log or None,
        }
        if error.failure is not None:
            document["failure"] = error.failure.to_dict()
        _give({"error": document}, invocation)
    lines = [f"error: {error.message}"]
    lines += [f"hint: {remedy}"] if remedy else []
    lines += [f"log: {log}"] if log and log not in error.message + remedy else []
    print_lines(lines, sys.stderr)
    return code


def _give(document: Mapping[str, object], invocation: Invocation) -> None:
    if invocation.entry is not None:
        invocation.entry["result"] = document
    else:
        click.echo(json.dumps(document, indent=1))


def print_lines(lines: Sequence[str], stream: IO[str]) -> None:
    """Print lines for people, folded for a terminal, with the signs that the stream can show."""
    click.echo(folded(printable("\n".join(lines), stream), stream), file=stream)


class Output:
    """A text stream that masks secrets and removes terminal commands from everything that any code prints.

    If the terminal is gone or the disk is full, text is dropped: a build continues for hours without one. A closed
    pipe ends the program, unless it is already handling an error. The mask sees one write at a time, so callers write
    whole lines.
    """

    def __init__(self, stream: TextIO, mask: Mask) -> None:
        self.is_incomplete = False  #: text was dropped because the disk is full
        self._stream = stream
        self._mask = mask
        self._terminal = stream.isatty()
        self._on_github = os.environ.get("GITHUB_ACTIONS") == "true"

    def write(self, text: str) -> int:
        """Write text without secrets; return the length of the original, as streams do."""
        shown = _COMMAND.sub(lambda command: command[1] or "?", self._mask(text))
        if self._on_github:
            shown = _GITHUB_COMMAND.sub(lambda command: f"{command[0]} ", shown)
        self._attempt(lambda: self._stream.write(shown))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts without secrets."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Write out buffered text."""
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[[], object]) -> None:
        under_way = sys.exc_info()[1]
        try:
            action()
        except OSError as error:
            self.is_incomplete |= error.errno in FULL
            gone = self.is_incomplete or (error.errno == errno.EIO and self._terminal)
            if not gone and not (error.errno == errno.EPIPE and under_way is not None):
                raise
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
