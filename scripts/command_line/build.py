"""The build command: `build-locally.py CONFIG...`, also `megabuild build CONFIG...`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from command_line.configs import choose, config_names, person_present
from command_line.options import SETTINGS, GroupedCommand, json_option, option, version
from command_line.root import feedstock, is_own, log_folder, output_folder
from command_line.run_command import Invocation, run
from groundwork.interrupts import parse_deadline
from groundwork.machine import machine_platform
from groundwork.result import Result
from megabuild.configs.config import Config, available, load, of_provider
from megabuild.configs.overrides import use_provider

if TYPE_CHECKING:
    from megabuild.plan.options import Options

EXAMPLES = """
{prog} linux_64_cpu --rehearse              all of it, in minutes
{prog} linux_64_cpu_debian --plan           what would be built
{prog} linux_64_cpu_debian -p 3.12 -p 3.13  two Pythons only
{prog} linux_64_cuda132_wheel -e scatter    one extension only
{prog} linux_64_cuda130_wheel --torch 2.14.1  another release
{prog} 'linux_64_*' --provider conda-forge  several, one by one
{prog} --all --plan                         what they take together
{prog} linux_64_cpu --deadline 5h30m        in time; again goes on
{prog} --root ../zstd-feedstock linux_64_   another feedstock's
"""
CHOICE = "Choosing what is built"
SHOW = "Only showing"
HOW = "How it is built"
PYG = "PyTorch Geometric's extensions"
#: Options that the run takes as they are.
_TAKEN = (
    "rehearse", "pythons", "keep_going", "optimization", "cpu_count", "pyg", "pyg_index", "pyg_sources", "extensions",
    "arch_list", "upstream_tests", "deadline",
)  # fmt: skip


@click.command(cls=GroupedCommand, examples=EXAMPLES, context_settings=SETTINGS)
@click.argument("configs", nargs=-1, metavar="[CONFIG]...", shell_complete=config_names)
@option(CHOICE, "--all", "every", is_flag=True,
        help="Every config of this machine's platform.")  # fmt: skip
@option(CHOICE, "--provider", type=click.Choice(["conda-forge", "debian", "wheel", "local"]),
        help="Only configs whose build environments come from there. Another feedstock's (--root) belong to none: "
        "'local' builds them with this machine's compilers and Pythons, and PyPI's wheels.")  # fmt: skip
@option(CHOICE, "--root", metavar="FEEDSTOCK", type=click.Path(),
        help="Another feedstock, with a recipe in the v1 format.  [default: this repository]")  # fmt: skip
@option(CHOICE, "--python", "-p", "pythons", multiple=True, metavar="X.Y",
        help="Only this Python; may be repeated.")  # fmt: skip
@option(CHOICE, "--torch", metavar="X.Y.Z", help="Another release of PyTorch, or for wheels a nightly.")
@option(CHOICE, "--torch-source", type=click.Path(path_type=Path), metavar="DIR|TARBALL",
        help="PyTorch's source, submodules included, in place of the provider's.")  # fmt: skip
@option(CHOICE, "--rehearse", is_flag=True, help="A scaled model of PyTorch's tree: minutes, not hours.")
@option(SHOW, "--plan", "plan_only", is_flag=True, help="Show packages, order, disk and memory, and end.")
@option(SHOW, "--verbose", "-v", is_flag=True,
        help="Every line that the builds print, too; the log has them anyway.")  # fmt: skip
@json_option(SHOW)
@option(HOW, "--engine", type=click.Choice(["auto", "host", "docker", "podman", "bubblewrap"]), default="auto",
        show_default=True, help="Where the build runs; auto is what the config's provider needs.")  # fmt: skip
@option(HOW, "--jobs", "-j", "cpu_count", type=click.IntRange(min=1), metavar="N",
        help="Compile jobs; without it CPU_COUNT, or what cores and memory allow.")  # fmt: skip
@option(HOW, "--optimization", type=click.Choice(["0", "2"]),
        help="2 as released, 0 for a quick proof of the pipeline.  [default: the config's, 2]")  # fmt: skip
@option(HOW, "--upstream-tests", is_flag=True,
        help="Also the package pytorch-tests: PyTorch's own tests of its numerics, run for one Python.")  # fmt: skip
@option(HOW, "--keep-going", "-k", is_flag=True,
        help="After a failed package, build those that do not need it.")  # fmt: skip
@option(HOW, "--deadline", metavar="TIME",
        help="End within this time ('5h30m', '90m'), all kept: the next run goes on. Exit code 28.")  # fmt: skip
@option(HOW, "--remove-trees", is_flag=True,
        help="Once a config is done, remove what it was compiled in: 4 to 30 GB. Packages, logs and the object cache "
        "stay.")  # fmt: skip
@option(HOW, "--output", "-o", metavar="DIR",
        help="Packages, logs and work trees.  [default: output/ in the repository or FEEDSTOCK]")  # fmt: skip
@option(PYG, "--pyg", type=click.Choice(["auto", "source", "prebuilt", "none"]), default="auto", show_default=True,
        help="auto: a wheel where one fits and passes verification, else compile.")  # fmt: skip
@option(PYG, "--extension", "-e", "extensions", multiple=True, metavar="NAME",
        help="Only this one and what it needs; may be repeated.")  # fmt: skip
@option(PYG, "--pyg-index", metavar="URL|DIR",
        help="Where wheels are looked for.  [default: the official index]")  # fmt: skip
@option(PYG, "--pyg-sources", metavar="URL|DIR", help="Where source archives lie.  [default: PyPI's]")
@option(PYG, "--arch-list", metavar="LIST", help="CUDA architectures in place of the config's: '9.0;12.0'.")
@option(PYG, "--memory", type=click.FloatRange(min=1), metavar="GB",
        help="Most memory for compilers together, PyTorch's as well.  [default: what is free]")  # fmt: skip
@version("build-locally.py")
@click.pass_context
def build(context: click.Context, /, **given: Any) -> Result:
    """Build each CONFIG: libtorch once, pytorch for every Python, then PyTorch Geometric's extensions.

    Without CONFIG you are asked for one; patterns ('linux_64_*', in quotes) mean all that match. A second run continues
    where the first one ended: finished packages are skipped, and an unfinished compile goes on.
    """
    invocation: Invocation = context.obj
    invocation.verbose = given["verbose"]
    root = feedstock(given["root"])
    if given["output"] == "":
        raise click.UsageError("--output names no folder")
    folder = output_folder(given["output"], root)
    invocation.log_folder = folder / "logs"
    names = available(root)
    # a named config speaks for itself
    if given["provider"] and not set(names) >= set(given["configs"] or "?"):
        names = of_provider(root, names, given["provider"])
    may_ask = person_present() and not invocation.json
    all_of = machine_platform() if given["every"] else ""
    chosen = choose(names, given["configs"], all_of=all_of, may_ask=may_ask)
    given["deadline"] = parse_deadline(given["deadline"]) if given["deadline"] else None
    options = {name: partial(options_of, load(root, name), root, folder, given) for name in chosen}
    from command_line.running import run_configs

    return run_configs(options, invocation, plan_only=given["plan_only"], remove_trees=given["remove_trees"])


def main() -> None:
    """Run the command line of `build-locally.py`, the name that conda-smithy gave it, and end the process."""
    run(build, name="build-locally.py", invocation=Invocation(log_folder=log_folder()))


def options_of(file: Config, root: Path, folder: Path, given: dict[str, Any]) -> Options:
    """Return the options of one config's run."""
    from groundwork.files import cache_folder
    from megabuild.plan.options import Options
    from megabuild.plan.torch_version import with_torch

    torch, source, memory = given["torch"], given["torch_source"], given["memory"]
    config = use_provider(file, given["provider"], os.environ)
    return Options(
        config=with_torch(config, torch, source),
        own=is_own(root),
        root=root,
        output=folder,
        cache=cache_folder(os.environ),
        engine=None if given["engine"] == "auto" else given["engine"],
        memory=int(memory * 1e9) if memory is not None else None,
        torch=torch if torch != file.torch_version else None,
        torch_source=source.absolute() if source else None,
        **{name: given[name] for name in _TAKEN},
    )
