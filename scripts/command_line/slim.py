"""`megabuild slim`: an environment or a package without what is not needed."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from command_line.options import GroupedCommand, option
from command_line.progress_display import Screen
from groundwork.errors import UsageError
from groundwork.result import Result

EXAMPLES = """
{prog} ~/venv --arch-list native     the plan, for this machine's GPUs
{prog} ~/venv --arch-list 12.0 --keep compile,extensions --apply
{prog} ~/venv --undo           every byte back
{prog} ~/venv --forget         free their room; no way back
{prog} ~/venv --arch-list 8.6,12.0 --output /opt/venv
{prog} torch_scatter-2.1.2-*.whl --arch-list 9.0 --output wheels
{prog} output/packages/linux_64_cuda132_wheel --arch-list 9.0 --output slim
"""
WHAT = "What to keep"
DO = "What to do"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument(
    "subject", metavar="ENVIRONMENT|PACKAGE|CHANNEL", type=click.Path(exists=True, path_type=Path)
)
@option(WHAT, "--arch-list", "gpus", multiple=True, metavar="LIST|native",
        help="Code for these GPUs stays: 12.0, or 8.6,12.0; native: those of this machine. All without "
        "it.")  # fmt: skip
@option(WHAT, "--keep", multiple=True, metavar="LIST",
        help="Leave out the steps that cost these: compile, compile-cpu, compile-gpu, extensions, distributed, "
        "profiler; or steps by their name.")  # fmt: skip
@option(WHAT, "--drop-lto-ir", is_flag=True,
        help="Take LTO-IR from libraries, too, which they may compile at run time.")  # fmt: skip
@option(DO, "--apply", is_flag=True,
        help="Slim an environment in place, import all that is in it, and undo it if something fails. Originals are "
        "kept.")  # fmt: skip
@option(DO, "--check", "checks", multiple=True, metavar="COMMAND",
        help="With --apply: what must succeed afterwards, too, such as 'python -c \"import foo.bar\"'; as often as "
        "needed.")  # fmt: skip
@option(DO, "--no-check", is_flag=True, help="With --apply: import and run nothing.")
@option(DO, "--output", "-o", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
        help="Write a smaller copy: of an environment into this new folder, of a package into a file in "
        "it.")  # fmt: skip
@option(DO, "--undo", is_flag=True, help="Put the originals back.")
@option(DO, "--forget", is_flag=True, help="Delete the originals; with --apply, right afterwards.")
@option(DO, "--for-myself", is_flag=True,
        help="The package stays with you: libraries of NVIDIA's in it may be changed, too.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_context
def slim(
    context: click.Context,
    subject: Path,
    gpus: tuple[str, ...],
    keep: tuple[str, ...],
    drop_lto_ir: bool,
    apply: bool,
    checks: tuple[str, ...],
    no_check: bool,
    output: Path | None,
    undo: bool,
    forget: bool,
    for_myself: bool,
    as_json: bool,
) -> Result:
    """Make an environment or a package smaller, and say what still works.

    GPU code for other GPUs, symbol tables, Triton, headers, static libraries, tests, byte code and libraries that
    nothing names go; each step says what it costs. Without --apply or --output nothing is touched.
    """  # fmt: skip
    from gpu_tools.slim import commands
    from gpu_tools.slim.steps import SlimRequest, parse_gpus, parse_keep

    context.obj.json = as_json
    _one_of(apply=apply, output=output is not None, undo=undo, forget=forget and not apply)
    commands.check_subject(subject, in_place=apply or undo or forget, writes=output is not None)
    if (checks or no_check) and not apply:
        raise UsageError("only what is slimmed in place is checked", "add --apply")
    if checks and no_check:
        raise UsageError("--check and --no-check exclude each other", "choose one")
    if undo:
        return commands.undo(subject)
    if forget and not apply:
        return commands.forget(subject)
    request = SlimRequest(gpus=parse_gpus(gpus), keep=parse_keep(keep), lto_ir=not drop_lto_ir)
    with Screen(Console(stderr=True, soft_wrap=True)) as shown:
        if output is not None:
            return commands.write(subject, output, request, shown.note, for_myself=for_myself)
        if apply:
            tried = None if no_check else checks
            return commands.apply(subject, request, shown.note, checks=tried, forget=forget)
        return commands.plan(subject, request, shown.note)


def _one_of(**given: bool) -> None:
    named = [f"--{name}" for name, value in given.items() if value]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other", "choose one")
