"""`megabuild slurm`: builds as jobs of a Slurm cluster."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from command_line.build import PYG, build, options_of
from command_line.configs import choose, config_names
from command_line.options import GroupedCommand, option
from command_line.root import display, feedstock, output_folder, repository
from command_line.run_command import Invocation
from groundwork.deadline import seconds_of
from groundwork.errors import UsageError
from groundwork.result import Result
from megabuild.cluster import slurm as batch
from megabuild.cluster.jobs import graph
from megabuild.configs.config import available, load, python_version
from megabuild.isolation.base import Host

EXAMPLES = """
{prog} linux_64_cpu --dry-run   scripts and commands; submits nothing
{prog} linux_64_cpu linux_64_cuda130 --time 12h
{prog} linux_64_cpu -p 3.12 --cpus 32 --mem 128G
{prog} linux_64_cpu -- --account=torch --exclusive
"""
JOBS = "What each job asks for"
SHOW = "Only showing"
#: Options of builds that every job takes as they are. Those of PyTorch Geometric's extensions are for the last one.
_TORCH = frozenset({
    "provider", "root", "torch", "torch_index", "torch_source", "torch_sha256", "triton", "rehearse", "engine",
    "optimization", "upstream_tests",
})  # fmt: skip
_PYG = frozenset({one.name for one in build.params if getattr(one, "group", "") == PYG} - {"memory"})
_PYTHONS = frozenset({"pythons"})


def _with_options_of_builds(command: click.Command) -> click.Command:
    """Give a command those options of builds that jobs take, before its own."""
    taken = [one for one in build.params if one.name in _TORCH | _PYG | _PYTHONS | {"output"}]
    command.params = [command.params[0], *taken, *command.params[1:]]
    return command


@_with_options_of_builds
@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("configs", nargs=-1, required=True, metavar="CONFIG... [-- SBATCH_OPTION...]",
                shell_complete=config_names)  # fmt: skip
@option(JOBS, "--time", metavar="TIME", default="12h", show_default=True,
        help="Its limit ('5h30m'). A build that takes longer is requeued in time, and goes on.")  # fmt: skip
@option(JOBS, "--requeues", type=click.IntRange(min=0), metavar="N", default=10, show_default=True,
        help="How often it is.")  # fmt: skip
@option(JOBS, "--cpus", type=click.IntRange(min=1), metavar="N", default=16, show_default=True,
        help="Processors, and compile jobs.")  # fmt: skip
@option(
    JOBS,
    "--mem",
    metavar="SIZE",
    default="",
    help="As sbatch takes it: 64G.  [default: 4G for each processor]",
)
@option(JOBS, "--partition", metavar="NAME", default="", help="[default: the cluster's]")
@option(SHOW, "--dry-run", is_flag=True, help="Print scripts and commands; submit nothing.")
@option(SHOW, "--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else.")
@click.pass_context
def slurm(context: click.Context, /, **given: Any) -> Result:
    """Submit each CONFIG as jobs of Slurm: libtorch and one Python, an array over others, then the rest.

    Each is planned first. Jobs hand on what they built through a store: MEGABUILD_STORE, or a folder in the output
    folder, which all nodes have to see at the same path, as they do this checkout. `megabuild status` says where jobs
    stand. After a failure the same line goes on: what is done is in the store. What follows -- goes to sbatch.
    """
    invocation: Invocation = context.obj
    invocation.json = given["as_json"]
    names, further = _apart(given["configs"])
    wanted = batch.Wanted(
        seconds=seconds_of(given["time"]), cpus=given["cpus"], memory=given["mem"], partition=given["partition"],
        requeues=given["requeues"], further=further,
    )  # fmt: skip
    root, dry = feedstock(given["root"]), given["dry_run"]
    output, folder = output_folder(given["output"], root), Path.cwd()
    runs = [
        _run(name, root, output, context, wanted)
        for name in choose(available(root), names, None, may_ask=False)
    ]
    ids: dict[str, list[str]] = {}
    lines = []
    for run in runs:
        if dry:
            lines += [*batch.shown(run, folder), ""]
            continue
        made = batch.submit(run, folder)
        ids[run.name] = [job.id for job in made]
        lines.append(f"{run.name}: submitted {', '.join(f'{job.name} ({job.id})' for job in made)}")
        lines.append(f"  scripts and logs: {display(run.folder)}")
    return Result(
        format="slurm",
        document={"runs": [{**batch.document(run, folder), "ids": ids.get(run.name, [])} for run in runs]},
        lines=lines,
    )


def _apart(words: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """Separate configs from what is sbatch's; the -- between them is taken away by click."""
    at = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
    if at == 0:
        raise click.UsageError("name a config before --")
    return words[:at], tuple(words[at:])


def _run(name: str, root: Path, output: Path, context: click.Context, wanted: batch.Wanted) -> batch.Run:
    """Plan a config's run, which shows in seconds what a job would find after hours in the queue; return its jobs."""
    from command_line.running import planned  # the engine takes a moment to import

    torch, pyg, pythons = (list(_words(context, names)) for names in (_TORCH, _PYG, _PYTHONS))
    with build.make_context("build-locally.py", [name, *torch, *pyg, *pythons]) as parsed:
        options = options_of(load(root, name), root, output, parsed.params)
    plan = planned(options, Console(stderr=True, soft_wrap=True))
    # official wheels have nothing to compile, and of other feedstocks nobody knows the Python of what they stage
    base = next(iter(plan.config.variant.get("torch_python_base", ())), "") if plan.compiles_torch else ""
    if isinstance(plan.isolation, Host):
        raise UsageError(
            f"{options.run_name} would be built on the nodes as they are, where what is made holds the path of its "
            "job's folder, so that no other job could take it",
            "give them one path: --engine bubblewrap, podman or docker",
        )
    jobs = graph(
        output,
        options.run_name,
        [python_version(pin) for pin in plan.overrides.get("python", ())],
        base=base,
        extensions=bool(plan.extensions.tasks),
        torch=torch,
        rest=[*pythons, *pyg],
    )
    program = (str(Path(sys.executable).resolve()), "-I", str(repository() / "build-locally.py"))
    return batch.Run(name=options.run_name, output=output, jobs=jobs, build=(*program, name), wanted=wanted)


def _words(context: click.Context, names: Collection[str | None]) -> Iterator[str]:
    """Give the words that the user has given for options of builds."""
    for one in build.params:
        if one.name not in names or context.get_parameter_source(str(one.name)) is ParameterSource.DEFAULT:
            continue
        value = context.params[str(one.name)]
        for each in value if one.multiple else [value]:
            yield from [one.opts[0]] if each is True else [one.opts[0], str(each)]
