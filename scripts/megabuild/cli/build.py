"""The build command: `build-locally.py CONFIG`, also `megabuild build CONFIG`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from megabuild.cli.choose import choose, person_present
from megabuild.cli.completion import config_names
from megabuild.cli.exits import Invocation
from megabuild.cli.listing import describe, document
from megabuild.cli.options import GroupedCommand, option
from megabuild.cli.root import repository
from megabuild.configs.config import Config, available, load, python_version, select
from megabuild.configs.overrides import other_torch, python_pins
from megabuild.errors import UsageError

EXAMPLES = """
{prog} --list                               what there is
{prog} linux_64_cpu --rehearse              all of it, in minutes
{prog} linux_64_cpu_debian --plan           what would be built
{prog} linux_64_cpu_debian -p 3.12 -p 3.13  two Pythons only
{prog} linux_64_cpu_wheel -e scatter        one extension only
{prog} linux_64_cuda130_wheel --torch 2.14.1 another release
{prog} --filter 'linux_64_cuda*'            choose among some
"""
HELP = {"help_option_names": ["-h", "--help"]}
CHOICE = "Choosing what is built"
SHOW = "Only showing"
HOW = "How it is built"
PYG = "PyTorch Geometric's extensions"
DEBUG = "Debugging a build"


@click.command(cls=GroupedCommand, examples=EXAMPLES, context_settings=HELP)
@click.argument("config", required=False, shell_complete=config_names)
@option(
    CHOICE, "--filter", "pattern", metavar="GLOB", help="Offer only matching configs; a single one is taken."
)
@option(
    CHOICE,
    "--python",
    "-p",
    "pythons",
    multiple=True,
    metavar="X.Y",
    help="Only this Python; may be repeated.",
)
@option(CHOICE, "--torch", metavar="X.Y.Z", help="Another release of PyTorch than the config's.")
@option(
    CHOICE,
    "--torch-source",
    type=click.Path(path_type=Path),
    metavar="DIR|TARBALL",
    help="PyTorch's source, submodules included, in place of the provider's.",
)
@option(CHOICE, "--torch-sha256", metavar="HEX", help="Of that tarball, or of --torch's official one.")
@option(CHOICE, "--rehearse", is_flag=True, help="A scaled model of PyTorch's tree: minutes, not hours.")
@option(SHOW, "--list", "listing", is_flag=True, help="List the configs and end.")
@option(SHOW, "--plan", "plan_only", is_flag=True, help="Show packages, order, disk and memory, and end.")
@option(SHOW, "--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else.")
@option(
    HOW,
    "--engine",
    type=click.Choice(["auto", "host", "docker", "podman", "bubblewrap"]),
    default="auto",
    show_default=True,
    help="Where the build runs; auto is what the config's provider needs.",
)
@option(
    HOW,
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    metavar="N",
    help="Compile jobs; without it CPU_COUNT, or what cores and memory allow.",
)
@option(
    HOW,
    "--optimization",
    type=click.Choice(["0", "2"]),
    help="2 as released, 0 for a quick proof of the pipeline.",
)
@option(
    HOW, "--keep-going", "-k", is_flag=True, help="After a failed package, build those that do not need it."
)
@option(
    HOW,
    "--output",
    "-o",
    metavar="DIR",
    help="Packages, logs and work trees.  [default: output/ in the repository]",
)
@option(
    PYG,
    "--pyg",
    type=click.Choice(["auto", "source", "prebuilt", "none"]),
    default="auto",
    show_default=True,
    help="auto: a wheel where one fits and passes verification, else compile.",
)
@option(
    PYG,
    "--extension",
    "-e",
    "extensions",
    multiple=True,
    metavar="NAME",
    help="Only this one and what it needs; may be repeated.",
)
@option(
    PYG, "--pyg-index", metavar="URL|DIR", help="Where wheels are looked for.  [default: the official index]"
)
@option(PYG, "--pyg-sources", metavar="URL|DIR", help="Where source archives lie.  [default: PyPI's]")
@option(PYG, "--arch-list", metavar="LIST", help="CUDA architectures in place of the config's: '9.0;12.0'.")
@option(
    PYG,
    "--memory",
    type=click.FloatRange(min=1),
    metavar="GB",
    help="Most memory for their compilers together.  [default: what is free]",
)
@option(DEBUG, "--debug", is_flag=True, help="Make the build environment and print how to enter it.")
@option(
    DEBUG, "--output-id", metavar="NAME", help="With --debug: which package's.  [default: libtorch-staging]"
)
@click.pass_context
def build(
    context: click.Context,
    config: str | None,
    pattern: str | None,
    pythons: tuple[str, ...],
    torch: str | None,
    torch_source: Path | None,
    torch_sha256: str | None,
    rehearse: bool,
    listing: bool,
    plan_only: bool,
    as_json: bool,
    engine: str,
    jobs: int | None,
    optimization: str | None,
    keep_going: bool,
    output: str | None,
    pyg: str,
    extensions: tuple[str, ...],
    pyg_index: str | None,
    pyg_sources: str | None,
    arch_list: str | None,
    memory: float | None,
    debug: bool,
    output_id: str | None,
) -> int:
    """Build CONFIG: libtorch once, pytorch for every Python, then PyTorch Geometric's extensions.

    Without CONFIG you are asked for one. A second run continues where the first one ended: finished packages are
    skipped, and an unfinished compile goes on.
    """
    invocation: Invocation = context.obj
    invocation.json = as_json
    root = repository()
    if output == "":
        raise click.UsageError("--output names no folder")
    folder = (Path(output) if output else root / "output").absolute()
    invocation.log_folder = folder / "logs"
    if output_id and not debug:
        raise click.UsageError("--output-id goes with --debug")
    if listing:
        _list(root, pattern, as_json=as_json)
        return 0

    name = choose(available(root), config, pattern, may_ask=person_present() and not as_json)
    file = load(root, name)
    chosen = _with_torch(file, torch, torch_source, torch_sha256, rehearse=rehearse)
    from megabuild.files import cache_folder  # not before: these take a moment to import
    from megabuild.plan.options import Options

    options = Options(
        config=chosen,
        root=root,
        output=folder,
        cache=cache_folder(os.environ),
        rehearse=rehearse,
        pythons=_narrowed(chosen, pythons),
        engine=None if engine == "auto" else engine,
        keep_going=keep_going,
        optimization=optimization,
        cpu_count=jobs,
        pyg=pyg,
        pyg_index=pyg_index,
        pyg_sources=pyg_sources,
        extensions=extensions,
        arch_list=arch_list,
        memory=int(memory * 1e9) if memory is not None else None,
        torch=torch if torch != file.torch_version else None,
        torch_source=torch_source.absolute() if torch_source else None,
        torch_sha256=torch_sha256,
    )
    if debug:
        from megabuild.cli.debug import STAGING, debug_package

        return debug_package(options, output_id or STAGING, invocation)
    from megabuild.cli.running import plan_and_build

    return plan_and_build(options, invocation, plan_only=plan_only)


def _with_torch(
    config: Config, torch: str | None, source: Path | None, digest: str | None, *, rehearse: bool
) -> Config:
    """Return the config for the PyTorch that was asked for, where its provider can have that."""
    compiles = config.provider != "wheel"
    if source is not None and not compiles:
        raise UsageError(f"{config.name} compiles no PyTorch, it takes wheels apart", "leave out --torch-source")
    if digest is not None and (not compiles or (source is None and torch is None)):
        raise UsageError("--torch-sha256 says nothing here", "it goes with --torch-source, or with --torch")
    if torch is None:
        return config
    known = torch == config.torch_version or (digest is not None and config.provider == "conda-forge")
    if compiles and source is None and not known and not rehearse:
        raise UsageError(
            f"{config.name} knows no source of PyTorch {torch}",
            "name one with --torch-source"
            + (", or its official tarball's --torch-sha256" if config.provider == "conda-forge" else ""),
        )
    return other_torch(config, torch, None if source else digest)


def _list(root: Path, pattern: str | None, *, as_json: bool) -> None:
    names = select(available(root), pattern) if pattern else available(root)
    configs = [load(root, name) for name in names]
    if as_json:
        click.echo(json.dumps(document(configs), indent=1))
    elif sys.stdout.isatty():
        click.echo("\n".join(describe(configs)))
    else:  # for scripts: a name a line
        click.echo("\n".join(names))


def _narrowed(config: Config, pythons: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(python_version(pin) for pin in python_pins(config, pythons)) if pythons else ()
