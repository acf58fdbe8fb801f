"""Prebuilt or compile, for one extension and Python: a verified wheel, or the reason why there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from megabuild import files
from megabuild.errors import IntegrityError, ProviderError
from megabuild.extensions.download import fetch
from megabuild.extensions.fit import Target, fitting
from megabuild.extensions.index import Index, Wheel
from megabuild.extensions.intact import why_broken
from megabuild.extensions.table import Extension

_FOLDER = "pyg-wheels"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A wheel, or why there is none.

    Parameters
    ----------
    wheel:
        The verified wheel in the cache, or None: compile.
    reason:
        For the plan: the wheel's name, or why there is none.
    version:
        The wheel's version with its local part, or an empty string.
    """

    wheel: Path | None
    reason: str
    version: str = ""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a wheel's libraries must be; the question to whoever looks inside.

    Parameters
    ----------
    extension:
        Which one.
    target:
        PyTorch, accelerator, Python.
    archs:
        CUDA archs that must be covered, as in ``TORCH_CUDA_ARCH_LIST``; empty where any will do.
    exact_archs:
        They must be there themselves; otherwise it is enough that such a GPU can run what is there.
    beside:
        The environment with the PyTorch that the wheel is to work with, where there is one already.
    """

    extension: Extension
    target: Target
    archs: tuple[str, ...] = ()
    exact_archs: bool = False
    beside: Path | None = None


#: Looks inside a wheel: an empty string for one that is what was wanted, else what it is instead.
Judge = Callable[[Path, Wanted], str]


def choose(
    wanted: Wanted,
    version: str,
    *,
    index: Index,
    cache: Path,
    report: Callable[[str], None],
    judge: Judge,
) -> Choice:
    """Look for a wheel that fits, fetch it and look inside.

    Parameters
    ----------
    wanted:
        What it must be.
    version:
        Only this version, or an empty string for the newest.
    index:
        Where to look.
    cache:
        The folder that configs share; wheels lie in ``pyg-wheels`` below it.
    report:
        Takes a sentence for everything that takes time.
    judge:
        Looks inside the wheel.

    Returns
    -------
    A choice in any case: an index that does not answer, a broken file or a wheel that fails is a reason to compile.
    """
    target = wanted.target
    try:
        offered = index.wheels(target.torch_version, target.tag)
    except ProviderError as error:
        return Choice(wheel=None, reason=error.message)
    if not offered:
        return Choice(wheel=None, reason=f"the index has no page for torch {target.torch_minor} {target.tag}")
    fit = fitting(wanted.extension.name, offered, target, version or None)
    problem = fit.reason
    for wheel in fit.wheels:
        try:
            path = _fetched(wheel, cache, report)
        except (ProviderError, IntegrityError) as error:
            problem = problem or error.message
            continue
        report(f"looking into {wheel.file_name}")
        found = judge(path, wanted)
        if not found:
            return Choice(wheel=path, version=wheel.version, reason=wheel.file_name)
        problem = problem or f"the wheel {found}"
    return Choice(wheel=None, reason=problem)


def _fetched(wheel: Wheel, cache: Path, report: Callable[[str], None]) -> Path:
    """Return a whole copy of the wheel in the cache, from there if it is in it."""
    key = hashlib.sha256(f"{wheel.url}#{wheel.sha256}".encode()).hexdigest()[:16]
    path = cache / _FOLDER / key / wheel.file_name
    if wheel.sha256 is not None and path.is_file() and files.sha256(path) == wheel.sha256:
        return path
    # Without a hash an index may change a file under the same name; a local folder costs nothing to read again.
    kept = wheel.sha256 is None and not wheel.url.startswith("file:") and path.is_file()
    if not kept or why_broken(path):
        report(f"fetching {wheel.file_name}")
        fetch(wheel.url, path, wheel.sha256)
    broken = why_broken(path)
    if broken:
        path.unlink()
        raise IntegrityError(f"the wheel is damaged: {broken}", "the index or a proxy in between is at fault")
    return path
