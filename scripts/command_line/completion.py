"""Completion in bash, zsh and fish."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAMS = ("build-locally.py", "audit-pins", "install-pyg", "megabuild")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.argument("program", type=click.Choice(PROGRAMS), default=PROGRAMS[0])
@click.pass_context
def completion(context: click.Context, shell: str, program: str) -> None:
    """Print a completion script for a program, to be read by the shell.

    \b
    bash, in ~/.bashrc:    eval "$(python scripts/megabuild completion bash)"
    zsh, in ~/.zshrc:      eval "$(python scripts/megabuild completion zsh)"
    fish:                  python scripts/megabuild completion fish | source
    installed megabuild:   eval "$(megabuild completion bash megabuild)"

    It completes ./build-locally.py, and `python build-locally.py` where the shell completes by script name.
    """
    generator = get_completion_class(shell)
    assert generator is not None
    variable = f"_{program.replace('-', '_').replace('.', '_').upper()}_COMPLETE"
    # of the command nothing is in the script: the program is asked when there is something to complete
    click.echo(generator(context.command, {}, program, variable).source())
