"""The `megabuild` command; a start imports only the sub-command it runs."""

from __future__ import annotations

from importlib import import_module

import click

from command_line.options import CommandGroup, version_option
from command_line.run_command import run

#: Each command's module has its name.
COMMANDS = (
    "audit",
    "build",
    "clean",
    "configs",
    "env",
    "install-pyg",
    "sizes",
    "slim",
    "status",
    "upload",
    "verify",
    "verify-gpu",
    "wheels",
)


class LazyGroup(CommandGroup):
    """Imports a command when its name or help text is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        return load(cmd_name)


def load(name: str) -> click.Command:
    """Import a command."""
    module = import_module(f"{__package__}.{name.removesuffix('-gpu').replace('-', '_')}")
    command = getattr(module, name.replace("-", "_"))
    assert isinstance(command, click.Command)
    return command


@click.group(cls=LazyGroup)
@version_option
def megabuild() -> None:
    """Build PyTorch for conda: libtorch once, pytorch for every Python."""


def main() -> None:
    """Run the command line, then end the process with its exit code."""
    run(megabuild, name="megabuild")
