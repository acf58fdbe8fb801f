"""`megabuild configs`: the list of configs, and keeping them in step with the matrix."""

from __future__ import annotations

import json

import click

from megabuild.cli.listing import describe, document
from megabuild.cli.root import display, repository
from megabuild.configs.config import available, load, select
from megabuild.errors import ConfigError


@click.command()
@click.option("--filter", "pattern", metavar="GLOB", help="Only configs whose name matches.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.option(
    "--write", "action", flag_value="write", help="Regenerate .ci_support from conda_build_config.yaml."
)
@click.option("--check", "action", flag_value="check", help="Fail when .ci_support is not in step with it.")
@click.option("--table", "action", flag_value="table", help="Regenerate tests/data/rendered.json.")
@click.pass_context
def configs(context: click.Context, pattern: str | None, as_json: bool, action: str | None) -> None:
    """List the configs, or keep them in step with conda_build_config.yaml."""
    root = repository()
    context.obj.json = as_json
    if action == "table":
        from megabuild.configs.table import write_table

        click.echo(f"written: {display(write_table(root))}")
    elif action is not None:
        from megabuild.configs import matrix

        states = matrix.write(root) if action == "write" else matrix.outdated(root)
        if as_json:
            click.echo(json.dumps(states, indent=1))
        else:
            for name, state in states.items():
                click.echo(f"{state:8} {name}")
        if states and action == "check":
            raise ConfigError(f"{len(states)} files in .ci_support are not in step with conda_build_config.yaml",
                              "run: python scripts/megabuild configs --write")  # fmt: skip
    else:
        names = select(available(root), pattern) if pattern else available(root)
        found = [load(root, name) for name in names]
        click.echo(json.dumps(document(found), indent=1) if as_json else "\n".join(describe(found)))
