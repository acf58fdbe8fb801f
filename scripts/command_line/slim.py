"""`megabuild slim`: make an environment or a package smaller."""

from __future__ import annotations

from pathlib import Path

import click

from command_line.options import GroupedCommand, json_option, option
from command_line.progress_display import Screen
from command_line.root import typed
from groundwork.errors import UsageError
from groundwork.result import Result

EXAMPLES = """
{prog} ~/venv --arch-list native   show the plan for this machine's GPUs
{prog} ~/venv --arch-list 12.0 --keep compile,extensions --apply
{prog} ~/venv --undo               restore the original files
{prog} ~/venv --forget             delete the originals; no way back
{prog} torch_scatter-2.1.2-*.whl --arch-list 9.0 --output wheels
"""
WHAT = "Keep"
DO = "Change"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("subject", metavar="ENVIRONMENT|PACKAGE", type=click.Path(exists=True, path_type=Path))
@option(WHAT, "--arch-list", "gpus", multiple=True, metavar="LIST|native",
        help="Keep code for these GPUs: 12.0, or 8.6,12.0, or native.  [default: keep all code]")  # fmt: skip
@option(WHAT, "--keep", multiple=True, metavar="LIST",
        help="Keep features (compile, compile-cpu, compile-gpu, extensions, distributed, profiler), or skip a step by "
        "name.")  # fmt: skip
@option(DO, "--apply", is_flag=True,
        help="Slim in place, import all modules, restore if one fails. Keeps the originals.")  # fmt: skip
@option(DO, "--check", "checks", multiple=True, metavar="COMMAND",
        help="With --apply: also run COMMAND afterwards, repeatable: 'python -c \"import foo.bar\"'.")  # fmt: skip
@option(DO, "--no-check", is_flag=True, help="With --apply: skip the imports.")
@option(DO, "--output", "-o", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
        help="Write a smaller copy of a package into DIR.")  # fmt: skip
@option(DO, "--undo", is_flag=True, help="Restore the original files.")
@option(DO, "--forget", is_flag=True, help="Delete the originals; with --apply, after the imports.")
@json_option
def slim(
    subject: Path,
    gpus: tuple[str, ...],
    keep: tuple[str, ...],
    apply: bool,
    checks: tuple[str, ...],
    no_check: bool,
    output: Path | None,
    undo: bool,
    forget: bool,
) -> Result:
    """Make an environment or a package smaller, and list the features that break.

    Removes code for other GPUs, symbol tables, Triton, headers, static libraries and NVIDIA's unused libraries. Without
    --apply or --output, it shows the plan: the bytes that each step saves, and the features that it breaks.
    """  # fmt: skip
    from gpu_tools.slim import commands
    from gpu_tools.slim.steps import SlimRequest, parse_gpus, parse_keep

    modes = {"--apply": apply, "--output": output, "--undo": undo, "--forget": forget and not apply}
    modes_named = [name for name, chosen in modes.items() if chosen]
    if len(modes_named) > 1:
        raise UsageError(f"{' and '.join(modes_named)} exclude each other", "pass only one of them")
    commands.check_subject(subject, in_place=apply or undo or forget, writes=output is not None)
    if (checks or no_check) and not apply:
        raise UsageError(f"{'--check' if checks else '--no-check'} needs --apply", "add --apply")
    if checks and no_check:
        raise UsageError("--check and --no-check exclude each other", "pass only one of them")
    if undo:
        with Screen(what="restoring the originals"):
            return commands.undo(subject)
    if forget and not apply:
        with Screen(what="deleting the originals"):
            return commands.forget(subject)
    request = SlimRequest(gpus=parse_gpus(gpus), keep=parse_keep(keep))
    with Screen() as shown:
        if output is not None:
            return commands.write(subject, output, request, shown.note)
        if apply:
            return commands.apply(
                subject, request, shown.note, checks=None if no_check else checks, keep_originals=not forget,
                command=typed("megabuild slim"),
            )  # fmt: skip
        return commands.plan(subject, request, shown.note)
