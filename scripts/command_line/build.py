"""The build command: `build-locally.py CONFIG...`, also `megabuild build CONFIG...`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click

from command_line.configs import choose, config_names, list_names
from command_line.options import GroupedCommand, json_option, option, version_option
from command_line.root import feedstock, is_own, output_folder
from command_line.run_command import Invocation, run
from groundwork.errors import UsageError
from groundwork.interrupts import parse_deadline
from groundwork.machine import machine_platform
from groundwork.result import Result
from megabuild.configs.config import available, list_command, load, of_provider
from megabuild.configs.overrides import use_provider
from megabuild.configs.provider_name import ProviderName
from megabuild.configs.sharing import sort_for_sharing
from megabuild.isolation.engine import Engine

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
CHOICE = "Select"
SHOW = "Show"
HOW = "Build"
PYG = "PyTorch Geometric's extensions"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("configs", nargs=-1, metavar="[CONFIG]...", shell_complete=config_names)
@option(CHOICE, "--all", "every", is_flag=True,
        help="Every config of this machine's platform.")  # fmt: skip
@option(CHOICE, "--provider", type=click.Choice([name.value for name in ProviderName]),
        help="Only configs of this provider. With --root, 'local' builds with this machine's compilers and Pythons and "
        "with PyPI's wheels.")  # fmt: skip
@option(CHOICE, "--root", metavar="FEEDSTOCK", type=click.Path(),
        help="Folder of another feedstock with a recipe.yaml.  [default: this repository]")  # fmt: skip
@option(CHOICE, "--python", "-p", "pythons", multiple=True, metavar="X.Y",
        help="Only this Python, repeatable.  [default: all of the config]")  # fmt: skip
@option(CHOICE, "--torch", metavar="X.Y.Z",
        help="Another release, also a nightly for wheel configs. To compile one, add --torch-source.")  # fmt: skip
@option(CHOICE, "--torch-source", type=click.Path(path_type=Path), metavar="DIR|TARBALL",
        help="Source of PyTorch with submodules, instead of the provider's.")  # fmt: skip
@option(CHOICE, "--rehearse", is_flag=True, help="Build a small model of PyTorch: minutes, not hours.")
@option(SHOW, "--plan", "plan_only", is_flag=True,
        help="Show packages, order, disk, memory and hours; build nothing.")  # fmt: skip
@option(SHOW, "--verbose", "-v", is_flag=True,
        help="Also print every line of the builds; the log always has them.")  # fmt: skip
@option(HOW, "--engine", type=click.Choice(["auto", *(engine.value for engine in Engine)]), default="auto",
        show_default=True, help="Where the build runs; auto follows the provider.")  # fmt: skip
@option(HOW, "--jobs", "-j", "cpu_count", type=click.IntRange(min=1), metavar="N",
        help="Compile jobs.  [default: CPU_COUNT, or by cores and memory]")  # fmt: skip
@option(HOW, "--memory", type=click.FloatRange(min=1), metavar="GB",
        help="Memory for all compilers together, in GB.  [default: the free memory]")  # fmt: skip
@option(HOW, "--arch-list", metavar="LIST",
        help="CUDA architectures to compile for, such as '9.0;12.0'.  [default: the config's]")  # fmt: skip
@option(HOW, "--optimization", type=click.Choice(["0", "2"]),
        help="Optimization level: 2 as released, 0 for a quick trial.  [default: 2]")  # fmt: skip
@option(HOW, "--upstream-tests", is_flag=True,
        help="Also build pytorch-tests, PyTorch's own tests of numerics, and run it once.")  # fmt: skip
@option(HOW, "--keep-going", "-k", is_flag=True,
        help="After a failure, build the packages that do not need the failed one.")  # fmt: skip
@option(HOW, "--deadline", metavar="TIME",
        help="Stop after this time (5h30m, 90m) with exit code 28; run again to resume.")  # fmt: skip
@option(HOW, "--remove-trees", is_flag=True,
        help="Delete each config's build tree (4 to 30 GB) after success.")  # fmt: skip
@option(HOW, "--zip-logs", is_flag=True,
        help="At the end, also after a failure or Ctrl-C, zip this run's logs: output/logs/logs-TIME.zip.")  # fmt: skip
@option(HOW, "--output", "-o", metavar="DIR",
        help="Folder for packages, logs and trees.  [default: output/ in the repository or FEEDSTOCK]")  # fmt: skip
@option(PYG, "--pyg", type=click.Choice(["auto", "source", "prebuilt", "none"]), default="auto", show_default=True,
        help="auto: a verified wheel of the index, else compile. source: compile. prebuilt: wheels only. none: no "
        "extensions.")  # fmt: skip
@option(PYG, "--extension", "-e", "extensions", multiple=True, metavar="NAME",
        help="Only this extension and those it needs, repeatable.")  # fmt: skip
@option(PYG, "--pyg-index", metavar="URL|DIR",
        help="Index of the extensions' wheels.  [default: the official one]")  # fmt: skip
@option(PYG, "--pyg-sources", metavar="URL|DIR", help="The extensions' source archives.  [default: PyPI]")
@json_option
@version_option
@click.pass_obj
def build(
    invocation: Invocation, /, *, configs: tuple[str, ...], every: bool, provider: str | None, root: str | None,
    pythons: tuple[str, ...], torch: str | None, torch_source: Path | None, rehearse: bool, plan_only: bool,
    verbose: bool, engine: str, cpu_count: int | None, optimization: str | None, upstream_tests: bool,
    keep_going: bool, deadline: str | None, remove_trees: bool, zip_logs: bool, output: str | None, pyg: str,
    extensions: tuple[str, ...], pyg_index: str | None, pyg_sources: str | None, arch_list: str | None,
    memory: float | None,
) -> Result:  # fmt: skip
    """Build each CONFIG: libtorch once, pytorch for every Python, then PyTorch Geometric's extensions.

    A quoted pattern ('linux_64_*') selects several configs. Run the same command again to resume: it skips finished
    packages and continues the compile.
    """
    invocation.verbose = verbose
    repository = feedstock(root)
    folder = output_folder(output, repository)
    invocation.log_folder = folder / "logs"
    names = available(repository)
    # config names given in full are not filtered by provider
    if provider and not set(names) >= set(configs or "?"):
        names = of_provider(repository, names, ProviderName(provider))
    if every and configs:
        raise UsageError("--all takes no names", "leave out --all or the names")
    words = (f"{machine_platform().replace('-', '_')}_*",) if every else configs
    if any(set(word) & set("*?[") for word in words):
        names = sort_for_sharing(repository, names)
    if root and not words and len(names) > 1:
        return list_names(names)
    chosen = choose(names, words, list_all=list_command(repository))
    until = parse_deadline(deadline) if deadline else None

    # imported late: a wrong option or config is answered at once
    from command_line.running import run_configs
    from groundwork.files import cache_folder
    from megabuild.plan.options import Options, PygMode
    from megabuild.plan.torch_version import with_torch

    files = {name: load(repository, name) for name in chosen}
    wanted = ProviderName(provider) if provider else None

    def options_of(name: str) -> Options:
        file = files[name]
        return Options(
            config=with_torch(use_provider(file, wanted, os.environ), torch, torch_source),
            root=repository,
            output=folder,
            cache=cache_folder(os.environ),
            own=is_own(repository),
            rehearse=rehearse,
            pythons=pythons,
            engine=None if engine == "auto" else Engine(engine),
            keep_going=keep_going,
            optimization=optimization,
            upstream_tests=upstream_tests,
            cpu_count=cpu_count,
            pyg=PygMode(pyg),
            pyg_index=pyg_index,
            pyg_sources=pyg_sources,
            extensions=extensions,
            arch_list=arch_list,
            memory=int(memory * 1e9) if memory is not None else None,
            torch=torch if torch != file.torch_version else None,
            torch_source=torch_source.absolute() if torch_source else None,
            deadline=until,
            earlier=chosen[: chosen.index(name)],
        )

    by_config = {name: partial(options_of, name) for name in chosen}
    return run_configs(
        by_config, invocation, plan_only=plan_only, remove_trees=remove_trees, zip_logs=zip_logs
    )


def main() -> None:
    """Run the command line of `build-locally.py` (conda-smithy's name), then end the process with its exit code."""
    run(build, name="build-locally.py")
