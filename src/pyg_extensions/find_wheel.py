"""Find an extension's prebuilt wheel on an index and verify it, or give the reason to compile the extension."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cuda_code.judge import empty
from groundwork import files, redact
from groundwork.errors import FULL, IntegrityError, ProviderError
from groundwork.keys import Key
from groundwork.network.client import Timeouts
from groundwork.network.index import Configured, File, local_path
from groundwork.wheel_file import why_broken
from pyg_extensions.pyg_index import PygIndex, WheelTarget, fitting
from pyg_extensions.table import Extension

if TYPE_CHECKING:
    from gpu_tools.verify.check import LibraryVerdict  # slow to import

_FOLDER = "pyg-wheels"
_TIMEOUTS = Timeouts(read=20.0, total=900.0)  # a wheel with kernels for many GPUs has tens of megabytes
_LARGEST_WHEEL = 16 << 30  # bytes


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A wheel, or the reason why none was found."""

    wheel: Path | None  #: the verified wheel in the cache; None: compile
    reason: str  #: for the plan: the wheel's name, or the reason why none was found


@dataclass(frozen=True, kw_only=True)
class WheelRequirements:
    """The requirements on a wheel's libraries."""

    extension: Extension
    target: WheelTarget  #: PyTorch, accelerator, Python
    #: CUDA archs that the wheel must run on, as in ``TORCH_CUDA_ARCH_LIST``; empty: any
    archs: tuple[str, ...] = ()
    #: the wheel must have code for each of these archs; if False, any code that these GPUs can run is enough. PTX is
    #: always required for an arch with ``+PTX``
    exact_archs: bool = False
    #: the environment with the PyTorch that the wheel must work with, if it exists already
    beside: Path | None = None


def find_wheel(
    wanted: WheelRequirements,
    version: str,
    *,
    index: PygIndex,
    cache: Path,
    report: Callable[[str], None],
) -> Choice:
    """Fetch a fitting wheel into the cache and verify it; an empty ``version`` means the newest.

    A silent index, a broken file or a wheel that fails verification is a reason to compile, not an error.
    ``report`` gets a sentence for each slow step.
    """
    wheels, problem = offers(wanted, version, index)
    for wheel in wheels:
        try:
            path = _in_cache(wheel, cache, report)
        except (ProviderError, IntegrityError) as error:
            problem = problem or error.message
            continue
        report(f"verifying {wheel.name}")
        fault = find_fault(path, wanted)
        if not fault:
            return Choice(wheel=path, reason=wheel.name)
        problem = problem or f"the wheel {fault}"
    return Choice(wheel=None, reason=problem)


def offers(wanted: WheelRequirements, version: str, index: PygIndex) -> tuple[list[File], str]:
    """Return the wheels whose names fit, the best first, or why there are none, without fetching any."""
    target = wanted.target
    try:
        offered = index.wheels(target.torch_version, target.tag)
    except ProviderError as error:
        return [], error.message
    return fitting(wanted.extension.name, offered, target, version or None)


@dataclass(frozen=True, kw_only=True)
class Download(Key):
    """A wheel in the cache."""

    url: str
    sha256: str  #: as the index lists it, or empty


def download_key(wheel: File) -> Download:
    """Return the key of a wheel in the cache."""
    return Download(url=wheel.url, sha256=wheel.sha256)


def _in_cache(wheel: File, cache: Path, report: Callable[[str], None]) -> Path:
    """Return an intact copy of the wheel in the cache, fetching it if needed."""
    key = download_key(wheel)
    path = cache / _FOLDER / key.digest[:16] / wheel.name
    # Without a hash a changed file goes unnoticed: local files, which are cheap to read, are always copied again.
    if not path.is_file() or wheel.url.startswith("file:") or why_broken(path):
        report(f"fetching {wheel.name}")
        fetch(wheel.url, path, wheel.sha256)
        if broken := why_broken(path):
            path.unlink()
            raise IntegrityError(
                f"{wheel.name} is damaged: {broken}", "use another index, or check the proxy"
            )
    return path


def fetch(
    address: str, target: Path, sha256: str, where: Configured | None = None, *, limit: int = _LARGEST_WHEEL
) -> Path:
    """Copy a file of at most ``limit`` bytes from an ``http:``, ``https:`` or ``file:`` address to ``target``.

    ``target`` appears complete and with the expected hash (an empty string: any hash), or not at all. ``where`` has the
    credentials and certificates of pip's indexes.

    Raises OSError: The disk is full.
    """
    try:
        with files.scratch(target.parent) as empty:
            partial = empty / target.name
            if urlsplit(address).scheme == "file":
                shutil.copyfile(local_path(address), partial)
            else:
                (where or Configured()).client(_TIMEOUTS).save(address, partial, limit=limit)
            check_sha256(partial, sha256)
            partial.replace(target)
    except OSError as error:
        if error.errno in FULL:
            raise
        raise ProviderError(
            f"{redact.address(address)}: cannot copy: {error.strerror or error}",
            "check the folder's permissions and the disk",
        ) from error
    return target


def check_sha256(path: Path, expected: str) -> None:
    """Raise IntegrityError if a file has another sha256 than ``expected``; an empty string accepts any."""
    digest = files.sha256(path)
    if expected not in ("", digest):
        raise IntegrityError(
            f"{path.name}: sha256 is {digest[:12]}…, expected {expected[:12]}…",
            "download it again; if it differs again, check pip's index (pip config list) and the proxy",
        )


def find_fault(path: Path, wanted: WheelRequirements) -> str:
    """Return the fault of a wheel, or of one extension in an environment; an empty string if it has none.

    Raises UsageError: The environment cannot be inspected, which is not the extension's fault.
    """
    from gpu_tools.verify.check import verify  # here, because it is slow to import
    from gpu_tools.verify.expectation import Expectation

    target = wanted.target
    expect = Expectation(
        accelerator=target.tag.replace("cu", "cuda"),
        archs=wanted.archs,
        python=target.python,
        torch_version=target.torch_version,
        exact_archs=wanted.exact_archs,
    )
    beside = wanted.beside if path != wanted.beside else None
    try:
        verdict = verify(path, beside=beside, expect=expect)
    except IntegrityError as error:
        return f"cannot be read: {error.message}"
    mine = [library for library in verdict.libraries if wanted.extension.name in Path(library.path).parts]
    if not any(library.path.endswith(".so") for library in mine):
        return f"has {empty(wanted.extension.name).reason}"
    wrong = _first_wrong(mine)
    if wrong is None:
        return ""
    return f"does not fit ({Path(wrong.path).name}: {wrong.reason})"


def _first_wrong(libraries: Iterable[LibraryVerdict]) -> LibraryVerdict | None:
    """Return a faulty library; an unknown verdict is settled later, by importing the extension."""
    for library in libraries:
        if not library.ok and not library.unknown:
            return library
    return None


def check_package(
    package: Path, *, accelerator: str, archs: tuple[str, ...], python: str | None, torch_version: str
) -> None:
    """Raise IntegrityError if an extension's package, built for one Python or (None) for all, must not be published."""
    from gpu_tools.verify.check import verify
    from gpu_tools.verify.expectation import Expectation

    expect = Expectation(accelerator=accelerator, archs=archs, python=python, torch_version=torch_version)
    verdict = verify(package, expect=expect)
    wrong = _first_wrong(verdict.libraries)
    if wrong is not None:
        reason = f"{Path(wrong.path).name}: {wrong.reason}"
        raise IntegrityError(f"{package.name} is not published: {reason}", wrong.remedy)
    if not verdict.libraries:
        raise IntegrityError(f"{package.name} is not published: {verdict.subject} has no fitting library")
