"""Find and download PyTorch's official wheels, one for each Python, for a config's version and accelerator."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from groundwork import redact
from groundwork.errors import ProviderError
from groundwork.files import FileLock, link
from groundwork.network.client import NetworkError
from groundwork.network.index import offered, places
from groundwork.network.resolver import PAGE_TIMEOUTS, REMEDY, NoFittingWheels, UnreachableIndexes
from groundwork.progress import Notes
from megabuild.configs.config import Config
from megabuild.providers.command import each
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.pypi import download
from megabuild.providers.pypi import lock as locking
from megabuild.providers.pypi.lock import Lock

_AT_ONCE = 2  # each runs an interpreter and uv
#: Name on PyPI.
_TOOLKIT = "cuda-toolkit"
#: PyTorch's own indexes, one for each accelerator (pytorch.org/get-started).
UPSTREAM = "https://download.pytorch.org/whl"


@dataclass(frozen=True, kw_only=True)
class TorchWheels:
    """The wheels available for a config."""

    locks: Mapping[str, Lock]  #: X.Y(t) to the lock that holds that Python's wheel alone.
    left_out: Mapping[str, str]  #: X.Y(t) to the reason why it has none.
    #: Indexes with these wheels that are not in pip's configuration.
    more: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  #: Notes for the plan, one for each unreachable index.


def upstream(config: Config) -> str:
    """Return the URL of PyTorch's own index with the config's wheels, of releases or of nightly builds."""
    kind = "nightly/" if ".dev" in config.torch_version else ""
    return f"{UPSTREAM}/{kind}{_tag(config)}"


def find(
    config: Config, interpreters: Mapping[str, Interpreter], folder: Path, needed: Collection[str] = ()
) -> TorchWheels:
    """Find the PyTorch wheel that fits each interpreter (by X.Y(t)), without downloading it.

    The indexes of pip's configuration come first. For Pythons without a wheel there, PyTorch's own index is used, but
    only if they are among the ``needed`` ones (empty: all of the config).

    Raises ProviderError: No wheel fits any of the Pythons.
    """
    pythons = [python for python in config.pythons if python in interpreters]
    search = _Search(config, interpreters, folder / "locks")

    def look(python: str) -> _Answer:
        return search.look(python, with_upstream=not needed or python in needed)

    locks: dict[str, Lock] = {}
    missing: dict[str, NoWheel] = {}
    more: dict[str, None] = {}
    notes: dict[str, None] = {}
    for python, answer in zip(pythons, each(look, pythons, _AT_ONCE), strict=True):
        if isinstance(answer.found, Lock):
            locks[python] = answer.found
        else:
            missing[python] = answer.found
        if answer.source:
            more[answer.source] = None
        if answer.trouble:
            notes[answer.trouble] = None
    if not locks:
        raise _none_fits(config, missing, notes)
    _check_answered(config, missing, needed)
    left_out = {python: answer.reason for python, answer in missing.items()}
    return TorchWheels(locks=locks, left_out=left_out, more=tuple(more), notes=tuple(notes))


@dataclass(frozen=True, kw_only=True)
class _Answer:
    found: Lock | NoWheel
    source: str = ""  #: an index with the wheel that is not in pip's configuration
    trouble: str = ""  #: why PyTorch's own index cannot be used


@dataclass(frozen=True)
class _Search:
    """Looks for wheels, from several threads."""

    config: Config
    interpreters: Mapping[str, Interpreter]
    locks: Path  #: folder

    def look(self, python: str, *, with_upstream: bool) -> _Answer:
        """Look for a Python's wheel on pip's indexes, then on PyTorch's own one if it answers."""
        interpreter = self.interpreters[python]
        answer = _find_lock(self.config, interpreter, self.locks, None)
        if isinstance(answer, Lock) or not with_upstream:
            return _Answer(found=answer)
        if self._trouble:
            return _Answer(found=answer, trouble=self._trouble)
        address = upstream(self.config)
        other = _find_lock(self.config, interpreter, self.locks, address)
        if isinstance(other, Lock):
            return _Answer(found=other, source=address)
        return _Answer(found=answer)

    @functools.cached_property
    def _trouble(self) -> str:
        return _why_silent(upstream(self.config))


def _check_answered(config: Config, missing: Mapping[str, NoWheel], needed: Collection[str]) -> None:
    """Raise ProviderError if no index answered for a needed Python: a fault of the network must not drop it."""
    unanswered: list[str] = []
    for python, answer in missing.items():
        if not answer.is_known and (not needed or python in needed):
            unanswered.append(python)
    if not unanswered:
        return
    reason = missing[unanswered[0]].reason
    raise ProviderError(
        f"{config.name}: PyTorch's wheel for Python {', '.join(unanswered)} cannot be looked up: {reason}",
        "check the network and pip's indexes, then run again, or build for the other Pythons with --python",
    )


def _none_fits(config: Config, missing: Mapping[str, NoWheel], notes: Iterable[str]) -> ProviderError:
    pythons: dict[str, list[str]] = {}
    for python, answer in missing.items():
        pythons.setdefault(answer.reason, []).append(python)
    reasons = [f"Python {', '.join(several)}: {reason}" for reason, several in pythons.items()]
    remedy = REMEDY
    if any(answer.is_known for answer in missing.values()):
        remedy = _remedy(config, next(iter(missing)))
        if _is_not_on_pypi(config):
            reasons.append("PyPI has no CPU wheels of PyTorch for x86-64")
    return ProviderError(f"{config.name}: no wheel of PyTorch fits ({'; '.join([*reasons, *notes])})", remedy)


def _is_not_on_pypi(config: Config) -> bool:
    """Return whether PyPI never has a config's wheels: its wheels for x86-64 are CUDA builds, others are for CPUs."""
    return config.platform == "linux-64" and not config.cuda_version


def _remedy(config: Config, python: str) -> str:
    """Return the ways to a config's wheels without PyTorch's own index (docs/firewall.md)."""
    wheel = f"torch-{config.torch_version}+{_tag(config)}-cp{python.replace('.', '').rstrip('t')}-*.whl"
    return (
        f"put {wheel} into a folder and set PIP_FIND_LINKS to the folder, "
        f"or set PIP_EXTRA_INDEX_URL to a mirror of {upstream(config)} (docs/firewall.md)"
    )


def _why_silent(index: str) -> str:
    """Return why an index cannot be used for PyTorch, or an empty string."""
    try:
        where = places(index=index)
        offered("torch", where, where.client(PAGE_TIMEOUTS).page)
    except NetworkError as error:
        return f"{redact.address(index)}: cannot be searched for PyTorch's wheels: {error.message}"
    return ""


def _tag(config: Config) -> str:
    if config.cuda_version is None:
        return "cpu"
    return f"cu{config.cuda_version.replace('.', '')}"


@dataclass(frozen=True, kw_only=True)
class NoWheel:
    """No wheel of PyTorch is found for a Python."""

    reason: str
    is_known: bool  #: an index answered that there is none; False: none could be asked


def _find_lock(config: Config, interpreter: Interpreter, locks: Path, index: str | None) -> Lock | NoWheel:
    """Return the lock with the wheel that fits, or the reason why none fits."""
    version = config.torch_version
    reasons: list[str] = []
    silent: dict[str, None] = {}
    failure = ""
    is_known = True
    # "===" compares text: "2.13.0" does not match a wheel with a local version, such as 2.13.0+cpu
    for exact in (version, f"{version}+{_tag(config)}"):
        try:
            lock = locking.resolve([f"torch==={exact}"], interpreter, locks, dependencies=False, index=index)
        except ProviderError as error:
            failure = error.message.splitlines()[0]
            is_known = is_known and isinstance(error, NoFittingWheels)
            if isinstance(error, UnreachableIndexes):
                silent |= dict.fromkeys(error.reasons)
            continue
        cuda = accelerator(lock)
        if cuda == config.cuda_version:
            return lock
        made_for = f"CUDA {cuda}" if cuda else "CPU"
        reasons.append(f"the wheel of torch {exact} is for {made_for}")
    return NoWheel(reason="; ".join([*reasons, *silent]) or failure, is_known=is_known)


def accelerator(lock: Lock) -> str | None:
    """Return the CUDA version that the wheel of PyTorch in a lock is for ("13.0"), or None for CPU.

    Read from the wheel's local version (``2.13.0+cpu``), or without one, as on PyPI, from its requirements.
    """
    (wheel,) = lock.wheels
    local = wheel.version.partition("+")[2]
    if match := re.fullmatch(r"cu(\d+)(\d)", local):
        return f"{match[1]}.{match[2]}"
    for requirement in wheel.needs(lock.environment):
        named = re.fullmatch(r"cuda-toolkit|nvidia-cuda-runtime(-cu\d+)?", requirement.name)
        version = re.search(r"==\s*(\d+\.\d+)", str(requirement.specifier))
        if named and version:
            return version[1]
    return None


def folder(config: Config, cache: Path) -> Path:
    """Return the folder of a config's wheels, which has a subfolder for each Python."""
    return cache / "torch-wheels" / f"{config.torch_version}-{config.accelerator}"


def fetch(config: Config, wheels: TorchWheels, pythons: Sequence[str], *, cache: Path, report: Notes) -> None:
    """Download the wheels for `pythons`, each into the folder of its Python, which has no other files.

    Raises ProviderError: A download failed.
    Raises IntegrityError: A file does not match its lock.
    """
    path = folder(config, cache)
    path.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        needed = locking.wheels_of(wheels.locks[python] for python in pythons)
        download.download(needed, cache / "wheels", report, more=wheels.more)
        for python in pythons:
            (wheel,) = wheels.locks[python].wheels
            source = wheel.path(cache / "wheels")
            target = path / python / wheel.file_name
            if not (target.is_file() and target.samefile(source)):
                shutil.rmtree(target.parent, ignore_errors=True)
                link(source, target)


def requirements(lock: Lock, parts: Sequence[str]) -> list[str]:
    """Return the NVIDIA requirements of the CUDA wheel in a lock, and of ``parts`` of the same toolkit.

    Parts are extras of ``cuda-toolkit``, such as "nvcc".

    Raises ProviderError: The wheel does not require a CUDA toolkit.
    """
    (wheel,) = lock.wheels
    needed: list[str] = []
    toolkit = ""
    for requirement in wheel.needs(lock.environment):
        if requirement.name.startswith(("nvidia-", _TOOLKIT)):
            extras = ",".join(sorted(requirement.extras))
            name = f"{requirement.name}[{extras}]" if extras else requirement.name
            needed.append(f"{name}{requirement.specifier}")
        if requirement.name == _TOOLKIT:
            toolkit = f"{_TOOLKIT}[{','.join(parts)}]{requirement.specifier}"
    if not toolkit:
        raise ProviderError(
            f"{wheel.file_name}: unknown CUDA toolkit, because the wheel does not require cuda-toolkit",
            "pass --torch with PyTorch 2.11 or newer, whose wheels require it",
        )
    return [*needed, toolkit]


def named_triton(requirements: Iterable[Requirement]) -> str | None:
    """Return the Triton version of some requirements (the lowest allowed of ``~=3.9.0``), or None."""
    for requirement in requirements:
        if requirement.name not in ("triton", "pytorch-triton"):
            continue
        for specifier in requirement.specifier:
            if specifier.operator in ("==", "~=", ">="):
                return specifier.version
    return None
