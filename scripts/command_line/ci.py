"""`megabuild ci`: workflows for CI services."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from command_line.configs import choose, config_names
from command_line.options import GroupedCommand, option
from command_line.root import repository
from groundwork.errors import ConfigError, UsageError
from groundwork.result import Result
from megabuild.configs.config import Config, available, load

if TYPE_CHECKING:
    from megabuild.ci.settings import Job

EXAMPLES = """
{prog} linux_64_cpu --rehearse --on pull_request  a rehearsal for each pull request
{prog} linux_64_cpu_debian --store s3://bucket/prefix
{prog} 'linux_64_cuda13*' --runner namespace-profile-16cpu-on-linux-64 --cores 16 --deadline 23h
{prog} linux_64_cpu --continuations 2 --output -  see it
{prog} linux_64_cpu --continuations 2 --check  is the file still what this writes?
"""
WHAT = "What it builds"
WHERE = "Where and when it runs"
FILE = "The file"
#: What the content of the file does not depend on.
_NOT_OF_THE_CONTENT = ("check", "output")


@click.group()
def ci() -> None:
    """Write a workflow that builds configs in CI."""


@ci.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("configs", nargs=-1, metavar="[CONFIG]...", shell_complete=config_names)
@option(WHAT, "--python", "-p", "pythons", multiple=True, metavar="X.Y",
        help="Only this Python; may be repeated.")  # fmt: skip
@option(WHAT, "--rehearse", is_flag=True, help="A scaled model of PyTorch's tree: minutes, not hours.")
@option(WHAT, "--pyg", type=click.Choice(["auto", "source", "prebuilt", "none"]), default="auto",
        show_default=True, help="PyTorch Geometric's extensions, as for build-locally.py.")  # fmt: skip
@option(WHERE, "--on", "events", multiple=True, type=click.Choice(["pull_request", "push"]),
        help="Also for each pull request, or push to main; may be repeated.  [default: only by hand]")  # fmt: skip
@option(WHERE, "--runner", "labels", multiple=True, metavar="LABEL",
        help="A runner with this label; may be repeated.  [default: the config's github_actions_labels, else "
        "GitHub's own]")  # fmt: skip
@option(WHERE, "--cores", type=click.IntRange(min=1), metavar="N", default=4, show_default=True,
        help="What such a runner has; the number of continuations is estimated by that.")  # fmt: skip
@option(WHERE, "--deadline", metavar="TIME", default="5h30m", show_default=True,
        help="After which a build ends. The job gets half an hour more.")  # fmt: skip
@option(WHERE, "--continuations", type=click.IntRange(min=0, max=20), metavar="N",
        help="Jobs that go on with libtorch where the one before did not finish.  [default: as estimated]")  # fmt: skip
@option(WHERE, "--store", metavar="ADDRESS", default="",
        help="The store for finished work: a folder of the runner, http(s)://…, s3://…, or a secret that has it: "
        "'${{ secrets.NAME }}'.  [default: artifacts]")  # fmt: skip
@option(WHERE, "--secret", "secrets", multiple=True, metavar="NAME",
        help="A secret that writing to the store needs in the environment; may be repeated.  [default, for s3://: "
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY]")  # fmt: skip
@option(FILE, "--output", "-o", metavar="FILE", default=".github/workflows/megabuild.yml", show_default=True,
        help="In the repository; - for standard output.")  # fmt: skip
@option(
    FILE, "--check", is_flag=True, help="Write nothing; fail where the file is not what would be written."
)
@click.pass_context
def github(context: click.Context, /, **given: Any) -> Result:
    """Write a workflow of GitHub Actions that builds each CONFIG, or all.

    For each config: libtorch with one Python's pytorch, in as many jobs as its compile takes within the runner's limit;
    then pytorch, one job for each further Python; then PyTorch Geometric's extensions.

    A file that this command has not written stays as it is.
    """
    from megabuild.ci import generated_file
    from megabuild.ci.github import workflow
    from megabuild.ci.settings import Settings, secrets, store

    root, output, command = repository(), given["output"], _command(context)
    names = available(root)
    chosen = choose(names, given["configs"], None, may_ask=False) if given["configs"] else names
    made = Settings(
        command=command,
        configs=[_job(load(root, name), given) for name in chosen],
        deadline=given["deadline"],
        events=given["events"],
        store=store(given["store"]),
        secrets=secrets(given["secrets"], given["store"]),
        rehearse=given["rehearse"],
        pyg=given["pyg"],
    )
    content = generated_file.text(workflow(made), command)
    if output == "-":
        return Result(format="ci", document={"content": content}, lines=content.splitlines())
    path = root / output
    document = {"file": str(path), "configs": list(chosen)}
    if not given["check"]:
        generated_file.write(path, content)
        return Result(format="ci", document=document, lines=[f"{output}: written"])
    if not generated_file.is_current(path, content):
        raise ConfigError(f"{output} is not what this command writes", f"write it again: {command}")
    return Result(format="ci", document=document, lines=[f"{output} is what this command writes"])


def _job(config: Config, given: Mapping[str, Any]) -> Job:
    """Return how a config is cut into jobs.

    Raises UsageError: It has no such Python, or it cannot be cut so.
    """
    from megabuild.ci.settings import Job, base_first, continuations, runner

    if lacking := [python for python in given["pythons"] if python not in config.pythons]:
        raise UsageError(
            f"{config.name} has no Python {lacking[0]}", f"it is built for {', '.join(config.pythons)}"
        )
    number = given["continuations"]
    if number is None:
        number = continuations(
            config, rehearse=given["rehearse"], within=given["deadline"], cores=given["cores"]
        )
    return Job(
        config=config,
        pythons=base_first(tuple(given["pythons"]) or config.pythons, config),
        runner=runner(config, given["labels"]),
        continuations=number,
    )


def _command(context: click.Context) -> str:
    """Return the line that was given, without what the content of the file does not depend on."""
    words = ["python", "scripts/megabuild", "ci", "github", *context.params["configs"]]
    for parameter in context.command.params:
        name = parameter.name or ""
        value = context.params.get(name)
        asked = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not asked or name in _NOT_OF_THE_CONTENT or not isinstance(parameter, click.Option):
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0]] if parameter.is_flag else [parameter.opts[0], str(one)]
    return shlex.join(words)
