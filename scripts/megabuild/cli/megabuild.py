"""The `megabuild` command with its sub-commands."""

from __future__ import annotations

import click

from megabuild.cli.audit import audit
from megabuild.cli.build import build
from megabuild.cli.completion import completion
from megabuild.cli.configs import configs
from megabuild.cli.containerfile import containerfile
from megabuild.cli.env import env
from megabuild.cli.exits import Invocation, run
from megabuild.cli.install_pyg import install_pyg
from megabuild.cli.root import repository
from megabuild.cli.sizes import sizes
from megabuild.cli.slim import slim
from megabuild.cli.verify import verify, verify_gpu
from megabuild.cli.wheels import wheels


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=None, version="0.1.0", prog_name="megabuild")
def megabuild() -> None:
    """Build PyTorch for conda: libtorch once, pytorch for every Python."""


megabuild.add_command(audit)
megabuild.add_command(build)
megabuild.add_command(configs)
megabuild.add_command(containerfile)
megabuild.add_command(env)
megabuild.add_command(install_pyg)
megabuild.add_command(sizes)
megabuild.add_command(slim)
megabuild.add_command(verify)
megabuild.add_command(verify_gpu)
megabuild.add_command(wheels)
megabuild.add_command(completion)


def main() -> None:
    """Run the command line and end the process."""
    run(megabuild, name="megabuild", invocation=Invocation(log_folder=repository() / "output" / "logs"))
