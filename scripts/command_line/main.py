"""The `megabuild` command; a start imports only the sub-command it runs."""

from __future__ import annotations

from importlib import import_module

import click

from command_line.options import SETTINGS, version_option
from command_line.root import log_folder
from command_line.run_command import Invocation, run

#: Commands, with the first sentence of their help. Each command's module has its name.
HELPS = {
    "audit": "Compare every dependency: upstream, the recipe, conda-forge.",
    "build": "Build each CONFIG: libtorch once, pytorch for every Python, then PyTorch Geometric's extensions.",
    "clean": "List the files of builds by kind and size, and remove some with --apply.",
    "configs": "List the configs, or regenerate them from conda_build_config.yaml.",
    "env": "Make environments from built packages, without conda.",
    "install-pyg": "Install PyTorch Geometric's extensions next to an installed PyTorch.",
    "sizes": "List the sizes of packages, and of GPU code, symbols, headers and tests in them.",
    "slim": "Make an environment or a package smaller, and list the features that break.",
    "status": "Show the progress or the result of each CONFIG's last run.",
    "upload": "List the packages of CONFIG in upload order, and upload them with --apply.",
    "verify": "Inspect packages, wheels or an environment, without a GPU.",
    "verify-gpu": "Try an environment's torch and extensions on this machine's GPUs.",
    "wheels": "Make wheels of CONFIG's packages, and an index of them for pip, uv and poetry.",
}
_ELSEWHERE = {"verify-gpu": "verify"}


class LazyGroup(click.Group):
    """Lists and completes commands without importing them; imports the called one."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with whole sentences, which click would cut off."""
        with formatter.section("Commands"):
            formatter.write_dl(list(HELPS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the command that the first argument names; return it with its arguments."""
        name, listed, arguments = super().resolve_command(ctx, args)
        return name, load(listed.name) if listed and listed.name else None, arguments


def load(name: str) -> click.Command:
    """Import a command."""
    module = import_module(f"{__package__}.{_ELSEWHERE.get(name, name).replace('-', '_')}")
    command = getattr(module, name.replace("-", "_"))
    assert isinstance(command, click.Command)
    return command


@click.group(
    cls=LazyGroup,
    context_settings=SETTINGS,
    commands=[click.Command(name, help=text) for name, text in HELPS.items()],
)
@version_option
def megabuild() -> None:
    """Build PyTorch for conda: libtorch once, pytorch for every Python."""


def main() -> None:
    """Run the command line, then end the process with its exit code."""
    run(megabuild, name="megabuild", invocation=Invocation(log_folder=log_folder()))
