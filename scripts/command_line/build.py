"""The build command: `build-locally.py CONFIG...`, also `megabuild build CONFIG...`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from command_line.configs import choose, config_names, is_pattern, list_names
from command_line.options import json_option, version_option
from command_line.parameters import command
from command_line.root import feedstock, output_folder
from command_line.run_command import Invocation, run
from groundwork.errors import UsageError
from groundwork.machine import machine_platform
from groundwork.option_fields import argument, option, switch
from groundwork.result import Result
from megabuild.configs.config import available, list_command, load, of_provider
from megabuild.configs.provider_name import ProviderName
from megabuild.configs.sharing import sort_for_sharing
from megabuild.plan.run_choices import BUILD, SELECT, RunChoices

EXAMPLES = """
{prog} linux_64_cpu --rehearse              the whole pipeline on a small model
{prog} linux_64_cpu_debian --plan           show the plan
{prog} linux_64_cpu_debian -p 3.12 -p 3.13  two Pythons only
{prog} linux_64_cuda132_wheel -e scatter    one extension only
{prog} linux_64_cuda130_wheel --torch 2.14.1  another release
{prog} 'linux_64_*' --provider conda-forge  several configs
{prog} --all --plan                         plans of all configs
{prog} linux_64_cpu --deadline 5h30m        stop in time; run again to resume
{prog} --root ../zstd-feedstock linux_64_   a config of another feedstock
"""
SHOW = "Show"


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The options of the command; those of each config's run are in ``run``."""

    configs: tuple[str, ...] = argument("[CONFIG]...", required=False, complete=config_names)
    every: bool = switch(SELECT, "--all", help="Every config of this machine's platform.")
    provider: ProviderName | None = option(
        SELECT, "--provider", choices=[name.value for name in ProviderName], convert=ProviderName,
        help="Only configs of this provider. With --root, 'local' builds with this machine's compilers and Pythons and "
        "with PyPI's wheels.",
    )  # fmt: skip
    root: Path | None = option(
        SELECT, "--root", metavar="FEEDSTOCK",
        help="Folder of another feedstock with a recipe.yaml.  [default: this repository]",
    )  # fmt: skip
    plan_only: bool = switch(
        SHOW, "--plan", help="Show packages, order, disk, memory and hours; build nothing."
    )
    verbose: bool = switch(
        SHOW, "--verbose", "-v", help="Also print every line of the builds; the log always has them."
    )
    run: RunChoices
    remove_trees: bool = switch(
        BUILD, "--remove-trees", help="Delete each config's build tree (4 to 30 GB) after success."
    )
    zip_logs: bool = switch(
        BUILD, "--zip-logs",
        help="At the end, also after a failure or Ctrl-C, zip this run's logs: output/logs/logs-TIME.zip.",
    )  # fmt: skip
    output: str | None = option(
        BUILD, "--output", "-o", metavar="DIR",
        help="Folder for packages, logs and trees.  [default: output/ in the repository or FEEDSTOCK]",
    )  # fmt: skip


@command(BuildOptions, examples=EXAMPLES)
@json_option
@version_option
@click.pass_obj
def build(invocation: Invocation, options: BuildOptions) -> Result:
    """Build each CONFIG: libtorch once, pytorch for every Python, then PyTorch Geometric's extensions.

    A quoted pattern ('linux_64_*') selects several configs. Run the same command again to resume: it skips finished
    packages and continues the compile.
    """
    if options.every and options.configs:
        raise UsageError("--all takes no names", "leave out --all or the names")
    invocation.verbose = options.verbose
    repository = feedstock(options.root)
    folder = output_folder(options.output, repository)
    invocation.log_folder = folder / "logs"
    words = options.configs
    if options.every:
        words = (f"{machine_platform().replace('-', '_')}_*",)
    names = _selectable(repository, options.provider, words)
    if options.root and not words and len(names) > 1:
        return list_names(names)
    chosen = choose(names, words, list_all=list_command(repository))
    files = [load(repository, name) for name in chosen]

    # imported late: a wrong option or config is answered at once
    from command_line.running import ConfigRequest, run_configs

    requests = [
        ConfigRequest(
            file=file,
            choices=options.run,
            provider=options.provider,
            root=repository,
            output=folder,
            earlier=chosen[:number],
        )
        for number, file in enumerate(files)
    ]
    return run_configs(
        requests,
        invocation,
        plan_only=options.plan_only,
        remove_trees=options.remove_trees,
        zip_logs=options.zip_logs,
    )


def _selectable(repository: Path, provider: ProviderName | None, words: Sequence[str]) -> Sequence[str]:
    """Return the names of the configs that ``words`` select from, sorted for sharing if a word is a pattern."""
    names: Sequence[str] = available(repository)
    # config names given in full are not filtered by provider
    if provider and not (words and set(words) <= set(names)):
        names = of_provider(repository, names, provider)
    if any(is_pattern(word) for word in words):
        return sort_for_sharing(repository, names)
    return names


def main() -> None:
    """Run the command line of `build-locally.py` (conda-smithy's name), then end the process with its exit code."""
    run(build, name="build-locally.py")
