"""Completion of config names and options in bash, zsh and fish."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from megabuild.cli.root import repository
from megabuild.configs.config import available

PROGRAM = "build-locally.py"


def config_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the config names that start with what was typed."""
    return [CompletionItem(name) for name in available(repository()) if name.startswith(incomplete)]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for build-locally.py, to be read by the shell.

    \b
    bash, in ~/.bashrc:    eval "$(python scripts/megabuild completion bash)"
    zsh, in ~/.zshrc:      eval "$(python scripts/megabuild completion zsh)"
    fish:                  python scripts/megabuild completion fish | source

    It completes ./build-locally.py, and `python build-locally.py` where the shell completes by script name.
    """
    from megabuild.cli.build import build

    generator = get_completion_class(shell)
    assert generator is not None
    click.echo(generator(build, {}, PROGRAM, "_BUILD_LOCALLY_PY_COMPLETE").source())
