"""`megabuild slim`: make an environment or a package smaller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from command_line.options import json_option
from command_line.parameters import command
from command_line.progress_display import Screen
from command_line.root import typed
from groundwork.errors import UsageError
from groundwork.option_fields import PathRule, argument, option, repeatable, switch
from groundwork.result import Result

EXAMPLES = """
{prog} ~/venv --arch-list native   show the plan for this machine's GPUs
{prog} ~/venv --arch-list 12.0 --keep compile,extensions --apply
{prog} ~/venv --undo               restore the original files
{prog} ~/venv --forget             delete the originals; no way back
{prog} torch_scatter-2.1.2-*.whl --arch-list 9.0 --output wheels
"""
KEEP = "Keep"
CHANGE = "Change"


@dataclass(frozen=True, kw_only=True)
class SlimOptions:
    """The options of the command."""

    subject: Path = argument("ENVIRONMENT|PACKAGE", path_rule=PathRule.EXISTING)
    gpus: tuple[str, ...] = repeatable(
        KEEP, "--arch-list", metavar="LIST|native",
        help="Keep code for these GPUs: 12.0, or 8.6,12.0, or native.  [default: keep all code]",
    )  # fmt: skip
    keep: tuple[str, ...] = repeatable(
        KEEP, "--keep", metavar="LIST",
        help="Keep features (compile, compile-cpu, compile-gpu, extensions, distributed, profiler), or skip a step by "
        "name.",
    )  # fmt: skip
    apply: bool = switch(
        CHANGE, "--apply",
        help="Slim in place, import all modules, restore if one fails. Keeps the originals.",
    )  # fmt: skip
    checks: tuple[str, ...] = repeatable(
        CHANGE, "--check", metavar="COMMAND",
        help="With --apply: also run COMMAND afterwards, repeatable: 'python -c \"import foo.bar\"'.",
    )  # fmt: skip
    no_check: bool = switch(CHANGE, "--no-check", help="With --apply: skip the imports.")
    output: Path | None = option(
        CHANGE, "--output", "-o", metavar="DIR", path_rule=PathRule.NEW_OR_FOLDER,
        help="Write a smaller copy of a package into DIR.",
    )  # fmt: skip
    undo: bool = switch(CHANGE, "--undo", help="Restore the original files.")
    forget: bool = switch(CHANGE, "--forget", help="Delete the originals; with --apply, after the imports.")


@command(SlimOptions, examples=EXAMPLES)
@json_option
def slim(options: SlimOptions) -> Result:
    """Make an environment or a package smaller, and list the features that break.

    Removes code for other GPUs, symbol tables, Triton, headers, static libraries and NVIDIA's unused libraries. Without
    --apply or --output, it shows the plan: the bytes that each step saves, and the features that it breaks.
    """  # fmt: skip
    from gpu_tools.slim import commands
    from gpu_tools.slim.steps import SlimRequest, parse_gpus, parse_keep

    _check_combination(options)
    subject = options.subject
    in_place = options.apply or options.undo or options.forget
    commands.check_subject(subject, in_place=in_place, writes=options.output is not None)
    _check_checks(options)
    if options.undo:
        with Screen(what="restoring the originals"):
            return commands.undo(subject)
    if options.forget and not options.apply:
        with Screen(what="deleting the originals"):
            return commands.forget(subject)
    request = SlimRequest(gpus=parse_gpus(options.gpus), keep=parse_keep(options.keep))
    with Screen() as shown:
        if options.output is not None:
            return commands.write(subject, options.output, request, shown.note)
        if options.apply:
            checks = None if options.no_check else options.checks
            return commands.apply(
                subject,
                request,
                shown.note,
                checks=checks,
                keep_originals=not options.forget,
                command=typed("megabuild slim"),
            )
        return commands.plan(subject, request, shown.note)


def _check_combination(options: SlimOptions) -> None:
    """Raise UsageError for two actions, except --apply and --forget."""
    actions: list[str] = []
    if options.apply:
        actions.append("--apply")
    if options.output:
        actions.append("--output")
    if options.undo:
        actions.append("--undo")
    if options.forget and not options.apply:
        actions.append("--forget")
    if len(actions) > 1:
        raise UsageError(f"{' and '.join(actions)} exclude each other", "pass only one of them")


def _check_checks(options: SlimOptions) -> None:
    """Raise UsageError for --check and --no-check without --apply, or together."""
    if options.checks and not options.apply:
        raise UsageError("--check needs --apply", "add --apply")
    if options.no_check and not options.apply:
        raise UsageError("--no-check needs --apply", "add --apply")
    if options.checks and options.no_check:
        raise UsageError("--check and --no-check exclude each other", "pass only one of them")
