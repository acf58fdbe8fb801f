"""The `megabuild` command with its sub-commands, of which a start imports only the one that is called."""

from __future__ import annotations

from typing import NamedTuple

import click

from megabuild.bootstrap import import_whole
from megabuild.cli.exits import Invocation, run
from megabuild.cli.root import repository


class Place(NamedTuple):
    """Where a command is, and how its own help begins: what the list of commands shows of it."""

    module: str
    attribute: str
    help: str


_CLI = "megabuild.cli"
PLACES = {
    "audit": Place(
        f"{_CLI}.audit",
        "audit",
        "Compare what upstream, the recipe and conda-forge say of every dependency.",
    ),
    "build": Place(
        f"{_CLI}.build",
        "build",
        "Build each CONFIG: libtorch once, pytorch for every Python, then PyTorch Geometric's extensions.",
    ),
    "completion": Place(
        f"{_CLI}.completion",
        "completion",
        "Print a completion script for a program, to be read by the shell.",
    ),
    "configs": Place(
        f"{_CLI}.configs", "configs", "List the configs, or keep them in step with conda_build_config.yaml."
    ),
    "env": Place(f"{_CLI}.env", "env", "Make environments of what was built."),
    "install-pyg": Place(
        f"{_CLI}.install_pyg",
        "install_pyg",
        "Install PyTorch Geometric's extensions beside an installed PyTorch.",
    ),
    "sizes": Place(f"{_CLI}.sizes", "sizes", "Say where the bytes of an installation go."),
    "slim": Place(
        f"{_CLI}.slim", "slim", "Make an environment or a package smaller, and say what still works."
    ),
    "verify": Place(
        f"{_CLI}.verify", "verify", "Read built packages, wheels or an environment, without a GPU."
    ),
    "verify-gpu": Place(
        f"{_CLI}.verify", "verify_gpu", "Try an environment's torch and extensions on this machine's GPUs."
    ),
    "wheels": Place(
        f"{_CLI}.wheels",
        "wheels",
        "Make wheels of what CONFIG built, and an index of them for pip, uv and poetry.",
    ),
}


class LazyGroup(click.Group):
    """Lists and completes its commands from the table; imports the one that is called."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named by the first argument, and the arguments that are its own."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, load(PLACES[listed.name]) if listed and listed.name else None, rest


def load(place: Place) -> click.Command:
    """Import a command.

    Raises
    ------
    IntegrityError
        Something that it needs is damaged in the private environment.
    """
    command = getattr(import_whole(place.module), place.attribute)
    assert isinstance(command, click.Command)
    return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    commands=[click.Command(name, help=place.help) for name, place in PLACES.items()],
)
@click.version_option(package_name=None, version="0.1.0", prog_name="megabuild")
def megabuild() -> None:
    """Build PyTorch for conda: libtorch once, pytorch for every Python."""


def main() -> None:
    """Run the command line and end the process."""
    run(megabuild, name="megabuild", invocation=Invocation(log_folder=repository() / "output" / "logs"))
