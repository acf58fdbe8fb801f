"""From exceptions to exit codes: what the user reads, and what a script sees, when something goes wrong."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

import click

from command_line.root import lacking_extra
from groundwork import interrupts
from groundwork.bootstrap import open_streams
from groundwork.errors import Interrupted, MegabuildError, UsageError, of_system
from groundwork.network import certificates
from groundwork.redact import Mask
from groundwork.result import Result
from groundwork.text import printable
from groundwork.user_folders import replace_home

CRASHED = os.EX_SOFTWARE  # 70
PIPE_CLOSED = 141
#: What this program writes itself, through rich: styles, links, erased and former lines, and whether the cursor shows;
#: or else a character that steers a terminal, or the direction of writing.
_COMMAND = re.compile(
    r"(\x1b\[[0-9;]*[ABKm]|\x1b\[\?25[hl]|\x1b\]8;[^\x00-\x1f\x7f-\x9f]*\x1b\\)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
#: A workflow command of GitHub's: "::" at the start of a line, "##[" anywhere.
_GITHUB_COMMAND = re.compile(r"(?m)^(\s*):(?=:)|##(?=\[)")


def _print(document: object) -> None:
    click.echo(json.dumps(document, indent=1))


@dataclass
class Invocation:
    """What one start of the program came to know, for the case that it fails."""

    log_folder: Path  #: where a crash file goes, and where logs of a failed run lie
    json: bool = False  #: stdout belongs to one JSON document
    verbose: bool = False  #: every line of the builds is shown
    log: Path | None = None  #: the log of the run in progress, named beside an error
    show: Callable[[object], None] = _print  #: takes the JSON document


def run(
    command: click.Command, *, name: str, invocation: Invocation, arguments: list[str] | None = None
) -> NoReturn:
    """Run a click command and end the process with the exit code of what happened.

    The command finds ``invocation`` as ``context.obj``; ``name`` is the program's in help texts.
    """
    open_streams()
    certificates.share_with_programs(os.environ)
    replace_home(os.environ)
    mask = Mask(os.environ)
    sys.stdout = cast(TextIO, Output(sys.stdout, mask))
    sys.stderr = cast(TextIO, Output(sys.stderr, mask))
    # known before the options are understood, which may be what fails
    invocation.json = invocation.json or "--json" in (sys.argv[1:] if arguments is None else arguments)
    code = outcome(
        lambda: command.main(arguments, prog_name=name, standalone_mode=False, obj=invocation), invocation
    )
    if "rattler" not in sys.modules and threading.active_count() == 1:
        sys.exit(code)
    # threads of the solver may outlive a solve, and abort an interpreter that is torn down
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a closed pipe, a closed stream
            stream.flush()
    os._exit(code)


def outcome(action: Callable[[], object], invocation: Invocation) -> int:
    """Call something, print what it returns or report what it raises, and return the exit code."""
    try:
        with interrupts.stop_on_signals():
            result = action()
            if isinstance(result, Result) and invocation.json:
                invocation.show(result.to_json())
            elif isinstance(result, Result) and result.lines:
                _print_lines(result.lines, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output went away. Python would complain once more while closing the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (Exception, KeyboardInterrupt) as error:
        expected = _expected_error(error)
        _report(expected or _crash(error, invocation), type(expected or error).__name__, invocation)
        return expected.exit_code if expected else CRASHED
    if isinstance(result, Result):
        return result.exit_code
    return result if isinstance(result, int) else 0


def _expected_error(error: Exception | KeyboardInterrupt) -> MegabuildError | None:
    """Return what the user can act on; None for a fault of this program."""
    stop = error.__cause__ if isinstance(error, click.Abort) else error
    if isinstance(stop, KeyboardInterrupt):
        return Interrupted(f"interrupted by {str(stop) or 'Ctrl-C'}")
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        return UsageError(error.format_message(), f"see {context.command_path} --help" if context else "")
    if isinstance(error, OSError):
        return of_system(error)
    if isinstance(error, MegabuildError):
        return error
    return lacking_extra(error) if isinstance(error, ModuleNotFoundError) else None


def _crash(error: BaseException, invocation: Invocation) -> MegabuildError:
    """Write a crash file, and return the error that names it."""
    text = "".join(traceback.format_exception(error))
    try:
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        invocation.log_folder.mkdir(parents=True, exist_ok=True)
        crash = invocation.log_folder / f"crash-{stamp}-{os.getpid()}.txt"
        content = f"arguments: {sys.argv[1:]}\nPython {sys.version}\n\n{text}"
        crash.write_text(Mask(os.environ)(content), encoding="utf-8")
        hint = f"see {crash}"
    except OSError:
        hint = text
    return MegabuildError(f"unexpected {type(error).__name__}: {error}", hint)


def _report(error: MegabuildError, kind: str, invocation: Invocation) -> None:
    """Tell of an error, in the only place that does."""
    remedy = certificates.remedy_for(error.message, error.remedy)
    log = str(invocation.log or "")
    if invocation.json:
        code = error.exit_code if type(error) is not MegabuildError else CRASHED
        document = {
            "kind": kind,
            "message": error.message,
            "remedy": remedy,
            "exit_code": code,
            "log": log or None,
        }
        invocation.show({"error": document | ({"failure": error.failure} if error.failure else {})})
    lines = [f"error: {error.message}"]
    lines += [f"hint: {remedy}"] if remedy else []
    lines += [f"log: {log}"] if log and log not in error.message + remedy else []
    _print_lines(lines, sys.stderr)


def _print_lines(lines: Sequence[str], stream: TextIO) -> None:
    click.echo(printable("\n".join(lines), stream), file=stream)


class Output:
    """A text stream to which secrets and foreign commands are not written, whoever prints them.

    A terminal that is gone takes everything in silence: a build continues for hours without one. A closed pipe ends the
    program, unless an error is under way. The mask is applied to every piece of text; the command line writes lines.
    """

    def __init__(self, stream: TextIO, mask: Mask) -> None:
        self._stream = stream
        self._mask = mask
        self._terminal = stream.isatty()
        self._on_github = os.environ.get("GITHUB_ACTIONS") == "true"

    def write(self, text: str) -> int:
        """Write text without secrets; return its length, as streams do."""
        shown = _COMMAND.sub(lambda command: command[1] or "?", self._mask(text))
        if self._on_github:
            shown = _GITHUB_COMMAND.sub(lambda command: f"{command[0]} ", shown)
        self._attempt(lambda: self._stream.write(shown))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write pieces of text without secrets."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Write out what is held back."""
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[[], object]) -> None:
        under_way = sys.exc_info()[1]
        try:
            action()
        except OSError as error:
            gone = error.errno == errno.EIO and self._terminal
            if not gone and not (error.errno == errno.EPIPE and under_way is not None):
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
