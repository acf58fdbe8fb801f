"""Calls `megabuild` as its program does: prints a command's result or its error."""

from __future__ import annotations

import sys

import click
from click.testing import CliRunner, Result

from command_line.main import megabuild
from command_line.run_command import Invocation, outcome


def call(invocation: Invocation, *arguments: str) -> Result:
    """Return output and exit code."""

    def program() -> None:
        sys.exit(
            outcome(
                lambda: megabuild.main(arguments, "megabuild", standalone_mode=False, obj=invocation),
                invocation,
            )
        )

    return CliRunner().invoke(click.Command("program", callback=program), catch_exceptions=False)
