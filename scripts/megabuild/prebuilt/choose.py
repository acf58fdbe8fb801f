"""Prebuilt or compile, for one extension and Python: a verified wheel, or the reason why there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from megabuild.errors import IntegrityError, ProviderError
from megabuild.prebuilt.extensions import Extension, find
from megabuild.prebuilt.fetch import digest, fetch
from megabuild.prebuilt.fit import Target, fitting
from megabuild.prebuilt.index import INDEX, Wheel, candidates
from megabuild.prebuilt.intact import why_broken

_FOLDER = "pyg-wheels"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What becomes of one extension for one Python.

    Parameters
    ----------
    extension:
        conda's name: ``pytorch_scatter``.
    python:
        ``3.12``.
    wheel:
        The verified wheel in the cache, or None: compile.
    version:
        The wheel's version with its local part, or an empty string.
    reason:
        For the plan: ``prebuilt: torch_scatter-2.1.2+pt213cu130-…``, or ``compile: `` and why.
    """

    extension: str
    python: str
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


class Index:
    """An index whose pages are read once.

    Parameters
    ----------
    source:
        URL or folder.
    """

    def __init__(self, source: str = INDEX) -> None:
        self.source = source
        self._pages: dict[tuple[str, str], tuple[Wheel, ...] | ProviderError] = {}

    def wheels(self, torch_version: str, tag: str) -> tuple[Wheel, ...]:
        """Return what the index offers; one that does not answer is not asked for the same page again.

        Raises
        ------
        ProviderError
            The index does not answer.
        """
        key = (torch_version, tag)
        if key not in self._pages:
            try:
                self._pages[key] = candidates(self.source, torch_version=torch_version, tag=tag)
            except ProviderError as error:
                self._pages[key] = error
        page = self._pages[key]
        if isinstance(page, ProviderError):
            raise ProviderError(page.message, page.remedy)
        return page


def choose(
    extension: str,
    *,
    python: str,
    torch_version: str,
    cuda_version: str | None,
    platform: str,
    source: str | Index,
    cache: Path,
    archs: Sequence[str],
    report: Callable[[str], None],
    judge: Judge,
    version: str | None = None,
    glibc: str = "2.28",
    beside: Path | None = None,
) -> Choice:
    """Look for a wheel that fits, fetch it and look inside.

    Parameters
    ----------
    extension:
        Any of its names.
    python, torch_version, cuda_version, platform, glibc:
        What it must fit (see `Target`).
    source:
        URL or folder of the index; an `Index`, where several extensions are looked up one after another.
    cache:
        The folder that configs share; wheels lie in ``pyg-wheels`` below it.
    archs:
        CUDA archs that must be covered.
    report:
        Takes a sentence for everything that takes time.
    judge:
        Looks inside the wheel.
    version:
        Only this version, or None for the newest.
    beside:
        The environment the wheel is for, or None.

    Returns
    -------
    A choice in any case: an index that does not answer, a broken file or a wheel that fails is a reason to compile.
    """
    subject = find(extension)
    target = Target(
        python=python, torch_version=torch_version, cuda_version=cuda_version, platform=platform, glibc=glibc
    )
    wanted = Wanted(extension=subject, target=target, archs=tuple(archs), beside=beside)

    def compiled(why: str) -> Choice:
        return Choice(extension=subject.conda, python=python, wheel=None, reason=f"compile: {why}")

    index = source if isinstance(source, Index) else Index(source)
    try:
        offered = index.wheels(torch_version, target.tag)
    except ProviderError as error:
        return compiled(error.message)
    if not offered:
        return compiled(f"the index has no page for torch {target.torch_minor} {target.tag}")
    fit = fitting(subject.name, offered, target, version)
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
            return Choice(
                extension=subject.conda,
                python=python,
                wheel=path,
                version=wheel.version,
                reason=f"prebuilt: {wheel.file_name}",
            )
        problem = problem or f"the wheel {found}"
    return compiled(problem)


def _fetched(wheel: Wheel, cache: Path, report: Callable[[str], None]) -> Path:
    """Return a whole copy of the wheel in the cache, from there if it is in it."""
    key = hashlib.sha256(f"{wheel.url}#{wheel.sha256}".encode()).hexdigest()[:16]
    path = cache / _FOLDER / key / wheel.file_name
    if wheel.sha256 is not None and path.is_file() and digest(path) == wheel.sha256:
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
