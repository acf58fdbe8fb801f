"""`megabuild upload`: the commands that upload what a config built, and whether conda-forge would take it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from command_line.options import GroupedCommand, option
from command_line.root import output_folder
from command_line.run_command import Invocation
from groundwork.result import Result

EXAMPLES = """
{prog} linux_64_cuda130                             the commands, for a channel of yours
{prog} linux_64_cuda130 --check --logs logs.zip     read every package; pack the logs
{prog} linux_64_cuda130 --user conda-forge --check  for a member of its core team
"""
WHERE = "Where it goes"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("config")
@option(WHERE, "--user", metavar="CHANNEL",
        help="The channel on anaconda.org.  [default: a place to put yours]")  # fmt: skip
@option(WHERE, "--label", metavar="LABEL",
        help="[default: cfep03; for conda-forge main, of a release candidate pytorch_rc]")  # fmt: skip
@option("What is looked at", "--check", is_flag=True,
        help="Read every package by conda-forge's rules.")  # fmt: skip
@option("What is looked at", "--output", "-o", metavar="DIR",
        help="The build's.  [default: output/ in the repository]")  # fmt: skip
@option("What is written", "--logs", metavar="FILE.zip", type=click.Path(path_type=Path),
        help="Put the logs of all runs into a zip file, as CFEP-03 asks for them.")  # fmt: skip
@option("What is written", "--json", "as_json", is_flag=True,
        help="One JSON document on standard output, nothing else.")  # fmt: skip
@click.pass_context
def upload(context: click.Context, /, **given: Any) -> Result:
    """Print the commands that upload what CONFIG built to anaconda.org, in order; uploads nothing.

    CONFIG is what its run was called. Of several builds of a package the newest is taken. Exit code 14: there is
    something for which conda-forge would refuse a package; then no commands are printed.
    """
    from command_line.progress_display import reporter
    from megabuild.upload import release, report, rules, steps

    invocation: Invocation = context.obj
    invocation.json = given["as_json"]
    output, user, label = output_folder(given["output"]), given["user"], given["label"]
    for name, value in (("--user", user), ("--label", label)):
        if value is not None and (not value or value.startswith("-")):
            raise click.UsageError(f"{name} names nothing")
    found = release.of_config(output, given["config"])
    findings = list(rules.of_release(found, label))
    if given["check"]:
        with reporter(Console(stderr=True, soft_wrap=True)) as shown:
            findings += rules.of_packages(found, shown.note)
    logs = steps.logs(output / given["config"])
    if given["logs"]:
        steps.pack(logs, given["logs"], os.environ)
    return report.result(found, findings, logs, user=user, label=label, checked=given["check"])
