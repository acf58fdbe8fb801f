"""Completion in bash, zsh and fish."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "build-locally.py"
AUDIT = "audit-pins"
INSTALL = "install-pyg"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.argument("program", type=click.Choice([PROGRAM, AUDIT, INSTALL]), default=PROGRAM)
def completion(shell: str, program: str) -> None:
    """Print a completion script for build-locally.py, audit-pins or install-pyg, to be read by the shell.

    \b
    bash, in ~/.bashrc:    eval "$(python scripts/megabuild completion bash)"
    zsh, in ~/.zshrc:      eval "$(python scripts/megabuild completion zsh)"
    fish:                  python scripts/megabuild completion fish | source

    It completes ./build-locally.py, and `python build-locally.py` where the shell completes by script name.
    """
    from megabuild.cli.audit import audit
    from megabuild.cli.build import build
    from megabuild.cli.install_pyg import install_pyg

    generator = get_completion_class(shell)
    assert generator is not None
    command = {PROGRAM: build, AUDIT: audit, INSTALL: install_pyg}[program]
    variable = f"_{program.replace('-', '_').replace('.', '_').upper()}_COMPLETE"
    click.echo(generator(command, {}, program, variable).source())
