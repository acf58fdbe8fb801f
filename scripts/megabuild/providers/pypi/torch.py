"""Official wheels of PyTorch: one for every Python, all of the config's version and accelerator."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from groundwork import redact
from groundwork.errors import IntegrityError, ProviderError
from groundwork.files import FileLock, link
from groundwork.network.client import NetworkError
from groundwork.network.index import HEADERS, Configured, File, offered, places
from groundwork.network.resolver import PAGE_TIMEOUTS
from groundwork.network.resolver import REMEDY as INDEX_REMEDY
from groundwork.network.wheel_contents import Content, Contents
from groundwork.progress import Notes
from megabuild.configs.config import Config
from megabuild.providers.command import each
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.pypi import download
from megabuild.providers.pypi import lock as locking
from megabuild.providers.pypi.lock import Lock

_AT_ONCE = 2  # an interpreter and uv each
#: Upstream's own indexes: one for each accelerator (pytorch.org/get-started).
UPSTREAM = "https://download.pytorch.org/whl"
_REMEDY = "Name an index or folder that has it (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS), or choose others with --python."


@dataclass(frozen=True, kw_only=True)
class TorchWheels:
    """The wheels available for a config."""

    locks: Mapping[str, Lock]  #: X.Y(t) to the lock that holds that Python's wheel alone.
    left_out: Mapping[str, str]  #: X.Y(t) to the reason why it has none.
    #: Further indexes with these wheels, besides those that pip is configured with.
    more: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  #: Indexes that could not be reached, a sentence each.


def upstream(config: Config) -> str:
    """Return the address of upstream's index with the config's wheels, of releases or of nightly builds."""
    kind = "nightly/" if ".dev" in config.torch_version else ""
    return f"{UPSTREAM}/{kind}{_tag(config)}"


def find(
    config: Config,
    interpreters: Mapping[str, Interpreter],
    folder: Path,
    needed: Collection[str] = (),
) -> TorchWheels:
    """Find the wheels of PyTorch that fit the interpreters by X.Y(t); nothing is downloaded.

    The indexes that pip is configured with come first, then upstream's for what they lack, if that is one of the
    ``needed`` Pythons (empty: all of the config).

    Raises ProviderError: No Python has a wheel that fits.
    """
    locks: dict[str, Lock] = {}
    left_out: dict[str, str] = {}
    more: list[str] = []
    notes: list[str] = []
    for address in (None, upstream(config)):
        missing = [python for python in config.pythons if python in interpreters and python not in locks]
        if not missing or (locks and needed and not set(needed).intersection(missing)):
            break
        if address and (trouble := _why_silent(address)):
            notes.append(trouble)
            left_out = {python: f"{redact.address(address)} cannot be used" for python in missing} | left_out
            continue

        def look(python: str, address: str | None = address) -> Lock | str:
            return _find_lock(config, interpreters[python], folder / "locks", address)

        for python, answer in zip(missing, each(look, missing, _AT_ONCE), strict=True):
            if isinstance(answer, str):
                left_out.setdefault(python, answer)
                continue
            locks[python] = answer
            left_out.pop(python, None)
            more += [address] if address and address not in more else []
    if not locks:
        reasons = [
            f"Python {', '.join(python for python in left_out if left_out[python] == reason)}: {reason}"
            for reason in dict.fromkeys(left_out.values())
        ]
        raise ProviderError(
            f"{config.name}: no wheel of PyTorch fits ({'; '.join([*reasons, *notes])})", _REMEDY
        )
    locks = {python: locks[python] for python in config.pythons if python in locks}
    return TorchWheels(locks=locks, left_out=left_out, more=tuple(more), notes=tuple(notes))


def of_release(config: Config, folder: Path) -> Content:
    """Return the content of a Linux wheel of the config's version, for any Python and processor.

    A wheel for CUDA, if there is one: those for CPUs name no Triton.

    Raises ProviderError: No index answers, or none has such a wheel.
    """
    reasons: list[str] = []
    for address in (None, upstream(config)):
        where = places(index=address)
        try:
            wheels = _wheels(where)
        except NetworkError as error:
            reasons.append(error.message)
            continue
        fitting = [
            wheel
            for wheel in wheels
            if wheel.version.public == config.torch_version and "linux" in wheel.name
        ]
        if fitting:
            best = min(fitting, key=lambda file: (file.version.local is not None, "x86_64" not in file.name))
            return Contents(where, folder / "locks").of(best)
        reasons.append(
            f"no wheel of it for Linux on {redact.address(address) if address else 'the indexes of pip'}"
        )
    raise ProviderError("; ".join(reasons), INDEX_REMEDY)


def _why_silent(index: str) -> str:
    """Return why an index cannot be used for PyTorch, or an empty string."""
    try:
        _wheels(places(index=index))
    except NetworkError as error:
        return f"{redact.address(index)} was queried for PyTorch's wheels: {error.message}"
    return ""


def _wheels(where: Configured) -> list[File]:
    """Return PyTorch's wheels for whatever machine and Python; raises NetworkError."""
    client = where.client(PAGE_TIMEOUTS)
    files, _ = offered("torch", where, lambda url: client.get(url, headers=HEADERS))
    return [file for file in files if file.tags]


def _tag(config: Config) -> str:
    return f"cu{config.cuda_version.replace('.', '')}" if config.cuda_version else "cpu"


def _find_lock(config: Config, interpreter: Interpreter, locks: Path, index: str | None) -> Lock | str:
    """Return the lock with the wheel that fits, or a few words why none does."""
    version = config.torch_version
    reasons: list[str] = []
    failure = ""
    # "===" compares the text, so that a wheel with a local version cannot stand for the one without
    for exact in (version, f"{version}+{_tag(config)}"):
        try:
            lock = locking.resolve([f"torch==={exact}"], interpreter, locks, dependencies=False, index=index)
        except ProviderError as error:
            failure = error.message.splitlines()[0]
            continue
        cuda = accelerator(lock)
        if cuda == config.cuda_version:
            return lock
        reasons.append(f"the wheel of torch {exact} is for {f'CUDA {cuda}' if cuda else 'CPU'}")
    return "; ".join(reasons) or failure


def accelerator(lock: Lock) -> str | None:
    """Return the CUDA version that the wheel of PyTorch in a lock is for ("13.0"), or None for CPU.

    It is in the wheel's local version (``2.13.0+cpu``) or, where it has none as those on PyPI, in what it requires.
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
    """Return where the wheels of a config lie, in one folder for each Python."""
    return cache / "torch-wheels" / f"{config.torch_version}-{config.accelerator}"


def fetch(config: Config, wheels: TorchWheels, pythons: Sequence[str], *, cache: Path, report: Notes) -> None:
    """Download the wheels of some Pythons into their folders, each of which holds nothing else.

    Raises ProviderError: A download failed.
    Raises IntegrityError: A file is not the resolved one, or its content is for a different accelerator than its
        metadata.
    """
    path = folder(config, cache)
    path.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        locks = [wheels.locks[python] for python in pythons]
        files = download.download(locks, cache / "wheels", report, more=wheels.more)
        for python in pythons:
            (wheel,) = wheels.locks[python].wheels
            source, target = files[wheel.sha256], path / python / wheel.file_name
            check_accelerator(source, config.cuda_version)
            if not (target.is_file() and target.samefile(source)):
                shutil.rmtree(target.parent, ignore_errors=True)
                link(source, target)


def check_accelerator(path: Path, cuda: str | None) -> None:
    """Check a wheel's content: its metadata can be right and the build wrong."""
    with zipfile.ZipFile(path) as archive:
        text = archive.read("torch/version.py").decode()
    named = re.search(r"^cuda\b[^=]*=\s*(?:'([\d.]+)'|None)", text, re.MULTILINE)
    if named is None or named[1] != cuda:
        raise IntegrityError(
            f"{path.name} is for {f'CUDA {named[1]}' if named and named[1] else 'CPU'}, by its torch/version.py",
            f"Delete {path.parent}, and look where pip got it from.",
        )


def requirements(lock: Lock, parts: Sequence[str]) -> list[str]:
    """Return the NVIDIA requirements of the CUDA wheel in a lock, with further ``parts`` of the same toolkit.

    Parts are extras of ``cuda-toolkit``, such as "nvcc".

    Raises ProviderError: The wheel does not name its CUDA toolkit.
    """
    (wheel,) = lock.wheels
    needed, toolkit = [], ""
    for requirement in wheel.needs(lock.environment):
        if requirement.name.startswith(("nvidia-", "cuda-toolkit")):
            extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
            needed.append(f"{requirement.name}{extras}{requirement.specifier}")
        if requirement.name == "cuda-toolkit":
            toolkit = f"cuda-toolkit[{','.join(parts)}]{requirement.specifier}"
    if not toolkit:
        raise ProviderError(
            f"{wheel.file_name} does not say which CUDA toolkit it was built with",
            "This provider knows wheels from PyTorch 2.11 on.",
        )
    return [*needed, toolkit]


def named_triton(requirements: Iterable[Requirement]) -> str | None:
    """Return the Triton that requirements name (of ``~=3.9.0`` the least version that they allow), or None."""
    for requirement in requirements:
        if requirement.name in ("triton", "pytorch-triton"):
            for specifier in requirement.specifier:
                if specifier.operator in ("==", "~=", ">="):
                    return specifier.version
    return None
