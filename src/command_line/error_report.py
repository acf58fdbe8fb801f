"""Turns exceptions into the errors that users see."""

from __future__ import annotations

import os
import sys
import traceback
from datetime import datetime, timezone
from pathlib import Path

import click

from command_line.root import lacking_extra, typed
from groundwork.errors import (
    Interrupted,
    MegabuildError,
    PreflightError,
    UsageError,
    of_system,
    of_text,
)
from groundwork.redact import Mask

#: Options that change or delete files; none is suggested for an unknown option.
_ACTING = frozenset({"--apply", "--forget", "--undo", "--remove-trees"})


def expected_error(error: BaseException) -> MegabuildError | None:
    """Return the error to show the user, or None for a bug of megabuild."""
    if isinstance(error, click.Abort) and isinstance(error.__cause__, KeyboardInterrupt):
        error = error.__cause__
    if isinstance(error, KeyboardInterrupt):
        return Interrupted(f"interrupted by {str(error) or 'Ctrl-C'}", "run the same command again")
    if isinstance(error, click.ClickException):
        return _usage_error(error)
    if isinstance(error, MegabuildError):
        return error
    if isinstance(error, OSError):
        return of_system(error)
    if isinstance(error, ModuleNotFoundError):
        return lacking_extra(error)
    if isinstance(error, MemoryError):
        return of_text("not enough memory")
    text = str(error)
    if text.startswith("Symlink loop from"):  # Path.resolve, before Python 3.13
        return PreflightError(text, "remove the link")
    return of_text(text)


def _usage_error(error: click.ClickException) -> UsageError:
    message = error.format_message()
    remedy = "add --help to the command"
    context = getattr(error, "ctx", None)
    if context:
        remedy = f"run: {typed(context.command_path)} --help"
    if isinstance(error, (click.NoSuchOption, click.exceptions.NoSuchCommand)):
        message = error.message  # without click's guesses
        close = [name for name in error.possibilities or () if name not in _ACTING]
        if close:
            remedy = f"did you mean {close[0]}? {remedy}"
    return UsageError(message[0].lower() + message[1:].rstrip("."), remedy)


def write_crash(error: BaseException, folder: Path) -> MegabuildError:
    """Write a crash file, and return an error that names it, or has the traceback if it cannot be written."""
    text = "".join(traceback.format_exception(error))
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    crash = folder / f"crash-{stamp}-{os.getpid()}.txt"
    content = f"arguments: {sys.argv[1:]}\nPython {sys.version}\n\n{text}"
    hint = f"report this bug, with the file {crash}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # a message may name a file whose name is no UTF-8
        crash.write_text(Mask(os.environ)(content), encoding="utf-8", errors="backslashreplace")
    except OSError:
        hint = text
    return MegabuildError(f"unexpected {type(error).__name__}: {error}", hint)
