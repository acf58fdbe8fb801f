"""Which wheels a set of requirements means for one Python: the answer, kept so that it is found only once."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from packaging.metadata import parse_email
from packaging.requirements import Requirement

from megabuild import files
from megabuild.markers import marker_environment
from megabuild.providers.command import run
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.pypi import offers, resolver
from megabuild.providers.pypi.resolver import Found

_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel of a lock: file name, hash and bytes, and the metadata that matters here. Never its address."""

    name: str
    version: str
    file_name: str
    sha256: str
    requires: tuple[str, ...]
    requires_python: str
    size: int = 0

    def needs(self, environment: Mapping[str, str]) -> Iterator[Requirement]:
        """Yield its requirements that hold for these values of markers; extras are never asked for here."""
        for requirement in map(Requirement, self.requires):
            if requirement.marker is None or requirement.marker.evaluate({**environment, "extra": ""}):
                yield requirement


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The wheels of one Python, and the values that markers take there."""

    python: str
    environment: Mapping[str, str]
    wheels: tuple[Wheel, ...]


def resolve(
    requirements: Sequence[str],
    interpreter: Interpreter,
    folder: Path,
    *,
    dependencies: bool = True,
    more: Sequence[str] = (),
    index: str | None = None,
) -> Lock:
    """Return the lock for `requirements`, from `folder` if they were resolved before, else by asking the indexes.

    Parameters
    ----------
    requirements, interpreter:
        As pip understands them ("numpy==2.*"), and the Python that evaluates markers and tags.
    folder:
        Where locks are kept.
    dependencies:
        Whether to lock what the requirements require, too.
    more:
        Addresses of simple indexes, and folders with wheels, besides those that pip is configured with.
    index:
        The only one to ask.

    Raises
    ------
    ProviderError
        No network, no such version, or a requirement without a wheel.
    """
    question = [
        _FORMAT,
        sorted(requirements),
        interpreter.version,
        interpreter.soabi,
        interpreter.free_threaded,
        *(() if dependencies else ("alone",)),
        *more,
        *([f"index {index}"] if index else ()),
    ]
    path = folder / f"{hashlib.sha256(json.dumps(question).encode()).hexdigest()}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Lock)
    except (OSError, msgspec.MsgspecError):
        pass
    found = resolver.resolve(
        requirements,
        interpreter.python,
        interpreter.version,
        offers.offers(more, index),
        folder,
        platforms=interpreter.platforms,
        dependencies=dependencies,
    )
    lock = Lock(
        python=interpreter.python,
        environment=marker_environment(interpreter.version, interpreter.platforms),
        wheels=tuple(_wheel(one) for one in found),
    )
    files.write(path, msgspec.json.format(msgspec.json.encode(lock), indent=1).decode())
    return lock


def pip(
    interpreter: Interpreter,
    command: str,
    options: Sequence[str],
    *,
    temporary: Path,
    what: str,
    remedy: str,
    timeout: float,
) -> None:
    """Run this environment's pip for an interpreter (or else the interpreter's own), brief and for wheels only.

    Parameters
    ----------
    interpreter, command, options:
        Whose tags and markers count, and what pip is told.
    temporary:
        Where pip puts its temporary folders.
    what, remedy, timeout:
        As for :func:`megabuild.providers.command.run`.

    Raises
    ------
    ProviderError
        pip failed.
    """
    own = [sys.executable, "-m", "pip", "--python", str(interpreter.executable)]
    words = own if importlib.util.find_spec("pip") else [str(interpreter.executable), "-m", "pip"]
    if interpreter.platforms:  # it does not run here
        words = [sys.executable, "-m", "pip"]
        tags = [f"--abi={abi}" for abi in (interpreter.tag, "abi3", "none")]
        tags += [f"--platform={one}" for one in interpreter.platforms]
        options = ["--implementation=cp", f"--python-version={interpreter.version}", *tags, *options]
    words += [
        command,
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--only-binary=:all:",
        *options,
    ]
    # with these, pip of another Python would import this one's modules
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= {"TMPDIR": str(temporary), "PIP_DEFAULT_TIMEOUT": "10", "PYTHONDONTWRITEBYTECODE": "1"}
    run(words, what=what, remedy=remedy, timeout=timeout, env=environment, guarded=True)


def _wheel(found: Found) -> Wheel:
    known, _ = parse_email(found.content.metadata)
    return Wheel(
        name=known["name"],
        version=known["version"],
        file_name=found.file.name,
        sha256=found.content.sha256,
        size=found.content.size,
        requires=tuple(known.get("requires_dist", ())),
        requires_python=known.get("requires_python", ""),
    )
