"""Containerfiles: PyTorch's wheel with extensions, or packages that were built, in an image without compilers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from megabuild.errors import PreflightError, UsageError
from megabuild.extension_table import EXTENSIONS
from megabuild.plan import published
from megabuild.verify.gpu_probe import archs_here as archs_here

#: Where PyTorch's wheels for CPUs are; those on pip's default index are for CUDA.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
#: Folder in the image, and name of the build context, of the channel that packages need besides.
_BESIDE = "beside"


def wheel(
    *,
    torch: str,
    cuda: str | None,
    archs: str,
    extensions: tuple[str, ...],
    base: str | None,
    slim: str = "",
) -> str:
    """Return a Containerfile that installs PyTorch's wheel, and the extensions beside it.

    Parameters
    ----------
    torch:
        PyTorch's version.
    cuda:
        The CUDA version of its wheel on pip's default index, or None for CPUs.
    archs:
        CUDA architectures that extensions are compiled for.
    extensions:
        Their names; empty for those whose sources are on PyPI.
    base:
        Image to begin with, Debian's or one derived from it, or None for the usual one.
    slim:
        Options of ``megabuild slim`` without its GPUs, which are those of ``archs``; empty: it is not called.
    """
    names = extensions or tuple(one.name for one in EXTENSIONS if one.name != "pyg_lib")
    values = {
        "TORCH": torch,
        "TORCH_INDEX": "" if cuda else CPU_INDEX,
        "CUDA": cuda or "",
        "ARCHS": archs,
        "EXTENSIONS": " ".join(names),
        "SLIM": slim,
    }
    return _filled("wheel", {**values, **({"BASE": base} if base else {})}, contexts={})


def built(
    channel: Path,
    *,
    packages: tuple[str, ...],
    python: str | None,
    base: str | None,
    archs: str = "",
    slim: str = "",
) -> str:
    """Return a Containerfile that installs published packages.

    Parameters
    ----------
    channel:
        The published channel.
    packages:
        Match specs; empty for the extensions that there are, or PyTorch.
    python, base:
        Its Python, and the image to begin with, or None.
    archs, slim:
        As for `wheel`; packages keep code for all that they were compiled for where ``archs`` is empty.

    Raises
    ------
    PreflightError
        The channel that they need besides is not known.
    """
    beside = published.channels_beside(channel)
    if not beside:
        raise PreflightError(
            f"the channel that the packages in {channel} need besides is gone, or was never noted",
            "run the build again: what is built is not built again",
        )
    there = {name.rsplit("-", 2)[0] for name in published.records(channel)}
    specs = packages or tuple(one.conda for one in EXTENSIONS if one.conda in there) or ("pytorch",)
    other = beside[0][0]
    values = {
        "CONFIG": channel.name,
        "CUDA": cuda_of(channel.name) or "",
        "PACKAGES": " ".join([*specs, *([f"python={python}"] if python else [])]),
        "SLIM": slim,
        "ARCHS": archs,
        "BESIDE": f"/opt/{_BESIDE}" if isinstance(other, Path) else other,
    }
    contexts = {"built": channel, **({_BESIDE: other} if isinstance(other, Path) else {})}
    return _filled("built", {**values, **({"BASE": base} if base else {})}, contexts)


def cuda_of(run_name: str) -> str | None:
    """Return the CUDA version in a config's name: ``13.2`` for ``linux_64_cuda132_wheel``."""
    found = re.search(r"_cuda(\d+)(\d)(?:_|-|$)", run_name)
    return f"{found[1]}.{found[2]}" if found else None


def _filled(name: str, values: Mapping[str, str], contexts: Mapping[str, Path]) -> str:
    """Fill in a template, which is a Containerfile by itself, and say in it how an image is made of it."""
    text = (files("megabuild.using") / f"{name}.Containerfile").read_text(encoding="utf-8")
    for key, value in values.items():
        if re.search(r'["\\$`\x00-\x1f\x7f]', value):
            raise UsageError(
                f"{value!r} does not fit into a Containerfile", "leave out its quotes, $ and line breaks"
            )
        line = f'ARG {key}="{value}"' if value else f"ARG {key}="
        text = re.sub(rf"^ARG {key}=.*$", line, text, flags=re.MULTILINE)  # no backslashes in it
    if name == "built" and _BESIDE not in contexts:
        text = text.replace(f"COPY --from={_BESIDE} . /opt/{_BESIDE}/\n", "")
    for path in contexts.values():
        if re.search(r"[\x00-\x1f\x7f]", str(path)):  # it would end the comment, and be an instruction
            raise UsageError(
                f"{str(path)!r} does not fit into a line of a Containerfile", "rename the folder, or move it"
            )
    more = "".join(f" --build-context {shlex.quote(f'{key}={path}')}" for key, path in contexts.items())
    how = f"# podman build -t pyg -f THIS-FILE{more} FOLDER-OF-MEGABUILD\n"
    first, rest = text.split("ARG BASE", 1)
    return f"{first}#\n{how}ARG BASE{rest}"
