"""What every build ends with, whatever became of it: hashes of the packages, and a zip of the logs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from command_line.run_command import Invocation
from groundwork.errors import ConfigError, MegabuildError, UsageError
from groundwork.result import Result
from groundwork.text import UNICODE, display, plain_lines
from megabuild.run.artifacts import pack_logs, write_sums


def conclude(action: Callable[[], Result], output: Path, invocation: Invocation) -> Result:
    """Run a build, and leave hashes and logs; not where the command line was wrong: nothing was built then."""
    began = time.time()
    try:
        result = action()
    except (UsageError, ConfigError, click.ClickException):
        raise
    except BaseException:
        document, lines = _leave(output, invocation, began)
        invocation.beside.update(document)
        click.echo(plain_lines("\n".join(lines)), err=True)
        raise
    document, lines = _leave(output, invocation, began)
    # the table of results stays the last thing on the screen
    return replace(result, document={**result.document, **document}, lines=["", *lines, *result.lines])


def _leave(output: Path, invocation: Invocation, began: float) -> tuple[dict[str, object], list[str]]:
    """Write the files; a disk that is full, or not ours to write to, costs these and nothing else."""
    document: dict[str, object] = {"sums": None, "log_archive": None}
    if not invocation.runs:
        return document, []  # nothing has begun
    lines = []
    try:
        sums = write_sums(output)
        document["sums"] = str(sums)
        lines.append(f"packages and their hashes: {display(sums)}")
        if logs := pack_logs(output, invocation.runs, began):
            document["log_archive"] = str(logs)
            lines.append(f"logs and records: {display(logs)}")
    except (OSError, MegabuildError) as error:
        lines.append(f"{UNICODE.warning} no hashes and no zip of logs: {error}")
    return document, lines
