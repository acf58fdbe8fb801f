"""`megabuild containerfile`: PyTorch and its extensions as a container image, for the GPU that one has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from megabuild.cli.options import GroupedCommand, option
from megabuild.cli.root import repository
from megabuild.configs.config import available, load
from megabuild.configs.overrides import arch_list, cuda_archs
from megabuild.errors import UsageError

EXAMPLES = """
{prog} > Containerfile                                  PyTorch's wheel, for the GPU here
{prog} --arch-list 12.0 torch_scatter > Containerfile   for an RTX 50, one extension only
{prog} --cpu --base python:3.12-slim > Containerfile
{prog} --arch-list 12.0 --slim > Containerfile          without what no RTX 50 needs
{prog} --from linux_64_cpu_wheel > Containerfile        what was built
"""
WHAT = "What is in it"
BUILT = "From packages that were built"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("packages", metavar="[EXTENSION]...", nargs=-1)
@option(
    WHAT,
    "--arch-list",
    metavar="LIST",
    help='CUDA architectures: "9.0;12.0+PTX".  [default: those of the GPUs here]',
)
@option(WHAT, "--cpu", is_flag=True, help="For CPUs.")
@option(WHAT, "--torch", metavar="X.Y.Z", help="PyTorch's version.  [default: the newest that is known here]")
@option(WHAT, "--base", metavar="IMAGE", help="Debian or derived from it.  [default: debian:trixie-slim]")
@option(
    WHAT,
    "--slim",
    is_flag=True,
    help="Take out what these GPUs, and an image without compilers, do not need.",
)
@option(
    WHAT, "--keep", metavar="LIST", help="With --slim: what is to stay, as `megabuild slim --keep` takes it."
)
@option(BUILT, "--from", "config", metavar="CONFIG",
        help="The config that was built, in place of a wheel; EXTENSIONs are its packages then.")  # fmt: skip
@option(BUILT, "--python", "-p", metavar="X.Y", help="Its Python.  [default: the newest that fits]")
@option(BUILT, "--output", "-o", metavar="DIR", help="The build's.  [default: output/ in the repository]")
def containerfile(**given: Any) -> None:
    """Print a Containerfile: everything is installed, or compiled, in a first stage; the second has no compilers.

    How an image is made of it stands in its first lines. PyPI and Debian's archive are enough.
    """
    from megabuild.using import image, prefix

    packages = given["packages"]
    slimmed = _slimmed(given["slim"], given["keep"] or "")
    if given["config"]:
        _alone(given, "cpu", "torch")
        if given["arch_list"] and not slimmed:
            raise UsageError(
                "packages have their architectures already", "leave out --arch-list, or add --slim"
            )
        output = Path(given["output"] or repository() / "output").absolute()
        channel = prefix.find(output, given["config"])
        archs = given["arch_list"] or (image.archs_here() if slimmed else "")
        text = image.built(
            channel,
            packages=packages,
            python=given["python"],
            base=given["base"],
            archs=";".join(cuda_archs(archs)),
            slim=slimmed,
        )
    else:
        _alone(given, "python", "output")
        root = repository()
        kind = "_cpu_wheel" if given["cpu"] else "_wheel"
        known = [load(root, name) for name in available(root) if name.endswith(kind)]
        config = max(known, key=lambda one: (bool(one.cuda_version), float(one.cuda_version or 0)))
        archs = "" if given["cpu"] else given["arch_list"] or image.archs_here()
        if not given["cpu"] and not archs:
            raise UsageError(
                "there is no NVIDIA GPU here",
                "name its architecture (--arch-list 12.0 for an RTX 50), or --cpu",
            )
        text = image.wheel(
            torch=given["torch"] or config.torch_version,
            cuda=config.cuda_version,
            archs=arch_list(config, archs) if archs else "",
            extensions=packages,
            base=given["base"],
            slim=slimmed,
        )
    click.echo(text, nl=False)


def _slimmed(slim: bool, keep: str) -> str:
    """Return options for slimming; byte code stays, as a container could not keep what it would write again."""
    from megabuild.slim.steps import wanted

    if keep and not slim:
        raise UsageError("--keep goes with --slim", "without --slim all stays")
    names = [word.strip() for word in keep.split(",") if word.strip()]
    wanted(names)
    return f"--keep {','.join(['byte-code', *names])}" if slim else ""


def _alone(given: dict[str, Any], *others: str) -> None:
    for name in others:
        if given[name]:
            word = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{word} does not go {'with' if given['config'] else 'without'} --from",
                "leave out one of them",
            )
