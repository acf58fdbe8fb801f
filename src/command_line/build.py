"""The build command: `build-locally.py CONFIG...`, also `megabuild build CONFIG...`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from command_line.build_options import BuildOptions
from command_line.configs import choose, is_pattern, list_names
from command_line.options import json_option, version_option
from command_line.parameters import command
from command_line.root import feedstock, output_folder
from command_line.run_command import Invocation, run
from groundwork.errors import UsageError
from groundwork.machine import machine_platform
from groundwork.result import Result
from megabuild.configs.config import available, list_command, load, of_provider
from megabuild.configs.provider_name import ProviderName
from megabuild.configs.sharing import sort_for_sharing
from megabuild.plan.run_choices import PygMode, RunChoices

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
    _refuse_unused(options.run)
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
            build_options=options,
            root=repository,
            output=folder,
            earlier=chosen[:number],
        )
        for number, file in enumerate(files)
    ]
    return run_configs(requests, options, invocation)


def _refuse_unused(choices: RunChoices) -> None:
    """Raise UsageError if an option chooses extensions, but the run makes none."""
    if choices.pyg is not PygMode.NONE:
        return
    given = {
        "--extension": choices.extensions,
        "--pyg-index": choices.pyg_index,
        "--pyg-sources": choices.pyg_sources,
    }
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} needs extensions, but --pyg is none", "leave out one of them")


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
