"""`megabuild slim`: an environment or a package without what is not needed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from megabuild.arch_list import cuda_archs
from megabuild.cli.options import GroupedCommand, option
from megabuild.cli.reporters import reporter
from megabuild.cli.slim_plan import checked_lines, plan_lines
from megabuild.cli.text import Signs, plain, size, table, wrapped
from megabuild.errors import NoGpuError, UsageError
from megabuild.sizes.installed import is_environment
from megabuild.sizes.packed import packages_in
from megabuild.slim.listing import ASIDE
from megabuild.verify.gpu_probe import archs_here
from megabuild.wording import counted

EXAMPLES = """
{prog} ~/venv --gpu native     the plan, for this machine's GPUs
{prog} ~/venv --gpu 12.0 --keep compile,extensions --apply
{prog} ~/venv --undo           every byte back
{prog} ~/venv --forget         give the room free; no way back
{prog} ~/venv --gpu 8.6,12.0 --output /opt/venv
{prog} torch_scatter-2.1.2-*.whl --gpu 9.0 --output wheels
{prog} output/packages/linux_64_cuda132_wheel --gpu 9.0 --output slim
"""
WHAT = "What to keep"
DO = "What to do"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument(
    "subject", metavar="ENVIRONMENT|PACKAGE|CHANNEL", type=click.Path(exists=True, path_type=Path)
)
@option(
    WHAT,
    "--gpu",
    "gpus",
    multiple=True,
    metavar="LIST|native",
    help="Code for these GPUs stays: 12.0, or 8.6,12.0; native: those of this machine. All without it.",
)
@option(
    WHAT,
    "--keep",
    multiple=True,
    metavar="LIST",
    help="Leave out the steps that cost these: compile, compile-cpu, compile-gpu, extensions, distributed, "
    "profiler; or steps by their name.",
)
@option(
    WHAT,
    "--unsupported-gpu",
    "unsupported",
    is_flag=True,
    help="Go on although nothing there has code for a GPU that is named.",
)
@option(
    WHAT,
    "--drop-lto-ir",
    is_flag=True,
    help="Take LTO-IR from libraries, too, which they may compile at run time.",
)
@option(
    DO,
    "--plan",
    is_flag=True,
    help="Say what each step would give and cost; nothing is touched. The default.",
)
@option(
    DO,
    "--apply",
    is_flag=True,
    help="Slim an environment in place, import all that is in it, and undo it if something fails. Originals are kept.",
)
@option(
    DO,
    "--check",
    "checks",
    multiple=True,
    metavar="COMMAND",
    help="With --apply: what must succeed afterwards, too, such as 'python -c \"import foo.bar\"'; as often as needed.",
)
@option(DO, "--no-check", is_flag=True, help="With --apply: import and run nothing.")
@option(
    DO,
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a smaller copy: of an environment into this new folder, of a package into a file in it.",
)
@option(DO, "--undo", is_flag=True, help="Put the originals back.")
@option(DO, "--forget", is_flag=True, help="Delete the originals; with --apply, right afterwards.")
@option(
    DO,
    "--for-myself",
    is_flag=True,
    help="The package stays with you: libraries of NVIDIA's in it may be changed, too.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_context
def slim(
    context: click.Context,
    subject: Path,
    gpus: tuple[str, ...],
    keep: tuple[str, ...],
    unsupported: bool,
    drop_lto_ir: bool,
    plan: bool,
    apply: bool,
    checks: tuple[str, ...],
    no_check: bool,
    output: Path | None,
    undo: bool,
    forget: bool,
    for_myself: bool,
    as_json: bool,
) -> None:
    """Make an environment or a package smaller, and say what still works.

    GPU code for other GPUs, symbol tables, Triton, headers, static libraries, tests, byte code and libraries that
    nothing names go; each step says what it costs. Without --apply or --output nothing is touched.
    """  # fmt: skip
    from megabuild.slim import apply as in_place
    from megabuild.slim.check import Check
    from megabuild.slim.output import copied, names_itself
    from megabuild.slim.repack import channel, repacked, unpacked
    from megabuild.slim.savings import make_plan
    from megabuild.slim.steps import Request, wanted

    context.obj.json = as_json
    _one_of(plan=plan, apply=apply, output=output is not None, undo=undo, forget=forget and not apply)
    is_env, packages = is_environment(subject), []
    if subject.is_dir() and not is_env:
        packages = packages_in(subject)
        if not packages:
            raise UsageError(
                f"{subject} is no environment or channel",
                "give a venv, a conda environment, a channel, or a .whl or .conda file",
            )
        if output is None:
            raise UsageError(
                "the packages of a channel are slimmed into another one", "name it: --output DIR"
            )
    if not is_env and (apply or undo or forget):
        raise UsageError("a package is not changed in place", "--output DIR writes a new one")
    if (checks or no_check) and not apply:
        raise UsageError("only what is slimmed in place is checked", "add --apply")
    if checks and no_check:
        raise UsageError("--check and --no-check exclude each other", "choose one")
    if undo:
        count = in_place.undo(subject)
        line = f"{counted(count, 'file')} put back; {plain(str(subject))} is as it was"
        _show(context, {"restored": count}, wrapped(line))
        return
    if forget and not apply:
        freed = in_place.forget(subject)
        _show(context, {"freed": freed}, [f"{size(freed)} given free; there is no way back now"])
        return
    request = Request(
        gpus=_archs(gpus),
        keep=wanted(_listed(keep)),
        lto_ir=not drop_lto_ir,
        unsupported=unsupported,
    )
    console = Console(stderr=True, soft_wrap=True)
    more: dict[str, Any] = {}
    with reporter(console) as shown:
        if output is not None and packages:
            written = [*channel(packages, output, request, shown.note, for_myself=for_myself)]
        elif output is not None and is_env:
            made = copied(subject, output, request, shown.note)
            more = {"output": str(output), "names_its_old_place": names_itself(subject)}
        elif output is not None:
            made, file = repacked(subject, output, request, shown.note, for_myself=for_myself)
            more = {"output": str(file), "download": [subject.stat().st_size, file.stat().st_size]}
        elif apply:
            check = None if no_check else Check(subject, checks, shown.note)
            made = in_place.apply(subject, request, shown.note, check)
            more = {"checked": check.result.to_json() if check else None}
            if forget:
                in_place.forget(subject)
            elif (older := in_place.not_back(subject)).files:
                more["not_back"] = {"files": older.files, "bytes": older.size, "packages": older.packages}
        elif is_env:
            made = make_plan(in_place.environment(subject), request, shown.note)
        else:
            with unpacked(subject) as contents:
                made = make_plan(contents, request, shown.note)
    if packages:
        rows = [(file.name, size(one.before), size(one.after)) for one, file in written]
        documents = [{**one.to_json(), "output": str(file)} for one, file in written]
        lines = [*table(("", "before", "now"), rows, right=frozenset({1, 2})), "", f"written to {output}"]
        _show(context, {"state": "written", "packages": documents}, lines)
        return
    state = "applied" if apply else "written" if output is not None else "planned"
    lines = [*plan_lines(made, Signs.of(sys.stdout), done=state != "planned")]
    lines += _what_next(state, subject, more, forget)
    _show(context, {"state": state, **made.to_json(), **more}, lines)


def _what_next(state: str, subject: Path, more: dict[str, Any], forgotten: bool) -> Iterator[str]:
    yield ""
    if state == "planned":
        yield "nothing was touched: --apply does it in place, --output DIR in a copy"
    elif state == "applied" and forgotten:
        yield from checked_lines(more["checked"])
        yield "the originals are deleted: there is no way back"
    elif state == "applied":
        yield from checked_lines(more["checked"])
        command = f"megabuild slim {shlex.quote(str(subject))}"
        yield from wrapped(
            f"the originals are kept in {subject / ASIDE} and take their room until they are put back or deleted:"
        )
        yield f"  {command} --undo"
        yield f"  {command} --forget"
        yield "Programs that run go on with what they have loaded."
        if older := more.get("not_back"):
            yield from wrapped(f"{counted(older['files'], 'original')} of a former slimming could not be put back "
                f"({size(older['bytes'])} of {', '.join(older['packages'])}) and are kept there as well")  # fmt: skip
    elif stuck := more.get("names_its_old_place"):
        yield from wrapped(
            f"written to {more['output']}; {counted(len(stuck), 'program')} in bin name {subject} and run only once "
            "the copy lies there (as in a container's next stage); python -m runs them anywhere"
        )
    else:
        yield f"written to {more['output']}"
        if "download" in more:
            before, after = more["download"]
            yield f"to download: {size(before)}, now {size(after)}"


def _show(context: click.Context, document: object, lines: Iterable[str]) -> None:
    if context.obj.json:
        context.obj.show(document)
    else:
        click.echo("\n".join(lines))


def _one_of(**given: bool) -> None:
    chosen = [f"--{name}" for name, value in given.items() if value]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other", "choose one")


def _listed(given: tuple[str, ...]) -> list[str]:
    return [word.strip() for text in given for word in text.split(",") if word.strip()]


def _archs(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return GPUs as ``sm_120``.

    Raises
    ------
    NoGpuError
        Those of this machine were asked for, and there is none.
    UsageError
        Something else than an architecture was given.
    """
    found: dict[str, None] = {}
    for word in _listed(given):
        here = archs_here() if word == "native" else word
        if not here:
            raise NoGpuError(
                "no NVIDIA GPU was found on this machine (neither nvidia-smi nor the driver tells of one)",
                "name the GPUs that it is to run on: --gpu 12.0",
            )
        for arch in cuda_archs(here):
            if arch.endswith(("+PTX", "a", "f")):
                raise UsageError(
                    f"{arch} is no GPU", "write the compute capability of a GPU, such as 9.0 or 12.0"
                )
            found[f"sm_{arch.replace('.', '')}"] = None
    return tuple(found)
