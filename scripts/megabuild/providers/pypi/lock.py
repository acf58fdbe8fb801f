"""Which wheels a set of requirements means for one Python: pip's answer, kept so that it is asked only once."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.requirements import Requirement

from megabuild import files
from megabuild.errors import ProviderError
from megabuild.providers.command import run
from megabuild.providers.local.interpreters import Interpreter

_FORMAT = 1
_REMEDY = "Check the network and pip's configuration (pip config list), or use a cache filled before (MEGABUILD_CACHE)."


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel of a lock: file name and hash, and the metadata that matters here. Never its address."""

    name: str
    version: str
    file_name: str
    sha256: str
    requires: tuple[str, ...]
    requires_python: str

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
    requirements: Sequence[str], interpreter: Interpreter, folder: Path, *, dependencies: bool = True
) -> Lock:
    """Return the lock for `requirements`, from `folder` if they were resolved before, else by asking pip.

    Parameters
    ----------
    requirements, interpreter:
        As pip understands them ("numpy==2.*"), and the Python that evaluates markers and tags.
    folder:
        Where locks are kept.
    dependencies:
        Whether to lock what the requirements require, too.

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
    ]
    path = folder / f"{hashlib.sha256(json.dumps(question).encode()).hexdigest()}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Lock)
    except (OSError, msgspec.MsgspecError):
        pass
    with files.scratch(folder) as temporary:
        lock = _ask_pip(requirements, interpreter, () if dependencies else ("--no-deps",), temporary)
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


def _ask_pip(
    requirements: Sequence[str], interpreter: Interpreter, options: Sequence[str], temporary: Path
) -> Lock:
    report = temporary / "report.json"
    pip(
        interpreter,
        "install",
        ["--retries=0", "--dry-run", "--ignore-installed", *options, "--report", str(report), *requirements],
        temporary=temporary,
        what=f"resolving wheels for Python {interpreter.python}",
        remedy=_REMEDY,
        timeout=300,
    )
    answer: dict[str, Any] = json.loads(report.read_text())
    return Lock(
        python=interpreter.python,
        environment=answer["environment"],
        wheels=tuple(_wheel(entry) for entry in answer["install"]),
    )


def _wheel(entry: Mapping[str, Any]) -> Wheel:
    metadata, download = entry["metadata"], entry["download_info"]
    address = urlsplit(download["url"])
    local = Path(unquote(address.path))
    sha256 = download.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    if not sha256:
        if address.scheme != "file" or not local.is_file():
            raise ProviderError(f"pip knows no hash for {local.name}", "Use an index that gives hashes.")
        sha256 = files.sha256(local)
    return Wheel(
        name=metadata["name"],
        version=metadata["version"],
        file_name=local.name,
        sha256=sha256,
        requires=tuple(metadata.get("requires_dist", ())),
        requires_python=metadata.get("requires_python", ""),
    )
