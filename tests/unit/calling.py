"""Calls `megabuild` as its program does: prints a command's result or its error."""

from __future__ import annotations

import sys

import click
from click.testing import CliRunner, Result

from command_line.main import megabuild
from command_line.run_command import Invocation, outcome


def exit_code(invocation: Invocation, *arguments: str) -> int:
    """Call it in this process, with the streams that the test has."""
    invocation.json = "--json" in arguments
    return outcome(
        lambda: megabuild.main(list(arguments), "megabuild", standalone_mode=False, obj=invocation),
        invocation,
    )


def call(invocation: Invocation, *arguments: str) -> Result:
    """Return output and exit code."""
    program = click.Command("program", callback=lambda: sys.exit(exit_code(invocation, *arguments)))
    return CliRunner().invoke(program, catch_exceptions=False)
