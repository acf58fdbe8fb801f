"""Completion in bash, zsh and fish."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from command_line.options import OneOf

PROGRAMS = ("build-locally.py", "megabuild", "audit-pins", "install-pyg")


@click.command()
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
@click.argument("program", type=OneOf(PROGRAMS), required=False)
@click.pass_context
def completion(context: click.Context, shell: str, program: str | None) -> None:
    """Print a completion script for PROGRAM, or for all of them, to be read by the shell.

    \b
    bash, in ~/.bashrc:    eval "$(python scripts/megabuild completion bash)"
    zsh, in ~/.zshrc:      eval "$(python scripts/megabuild completion zsh)"
    fish:                  python scripts/megabuild completion fish | source
    installed megabuild:   eval "$(megabuild completion bash megabuild)"

    Programs: build-locally.py, megabuild, audit-pins, install-pyg. Completed is what is called by its name, such as
    ./build-locally.py, and `python build-locally.py` where the shell completes by script name.
    """
    generator = get_completion_class(shell)
    assert generator is not None
    for name in PROGRAMS if program is None else (program,):
        variable = f"_{name.replace('-', '_').replace('.', '_').upper()}_COMPLETE"
        # of the command nothing is in the script: the program is asked when there is something to complete
        click.echo(generator(context.command, {}, name, variable).source())
