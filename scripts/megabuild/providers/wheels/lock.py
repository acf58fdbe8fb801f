"""Which wheels a set of requirements means for one Python: pip's answer, kept so that it is asked only once."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from megabuild import files
from megabuild.errors import ProviderError
from megabuild.providers.command import run
from megabuild.providers.interpreters import Interpreter

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
    license: str


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
    requirements:
        As pip understands them: "numpy==2.*".
    interpreter:
        Evaluates markers and tags.
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
        return _from_json(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        pass
    with files.scratch(folder) as temporary:
        lock = _ask_pip(requirements, interpreter, () if dependencies else ("--no-deps",), temporary)
    files.write(path, json.dumps(asdict(lock), indent=1))
    return lock


def pip_command(interpreter: Interpreter) -> list[str]:
    """pip as it must be called to work for `interpreter`: this environment's pip, else the interpreter's own."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--python", str(interpreter.executable)]
    return [str(interpreter.executable), "-m", "pip"]


#: Options that keep pip brief and to wheels.
PIP_OPTIONS = ("--quiet", "--disable-pip-version-check", "--no-input", "--only-binary=:all:")


def pip_environment(temporary: Path | None = None) -> dict[str, str]:
    """This process's environment, without what would make pip of another Python import this one's modules.

    Parameters
    ----------
    temporary:
        Where pip puts its temporary folders; None for the usual place.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    own = {"TMPDIR": str(temporary)} if temporary is not None else {}
    return {**environment, **own, "PIP_DEFAULT_TIMEOUT": "10", "PYTHONDONTWRITEBYTECODE": "1"}


def _ask_pip(
    requirements: Sequence[str], interpreter: Interpreter, options: Sequence[str], temporary: Path
) -> Lock:
    report = temporary / "report.json"
    run(
        [
            *pip_command(interpreter),
            "install",
            *PIP_OPTIONS,
            "--retries=0",
            "--dry-run",
            "--ignore-installed",
            *options,
            "--report",
            str(report),
            *requirements,
        ],
        what=f"resolving wheels for Python {interpreter.python}",
        remedy=_REMEDY,
        timeout=300,
        env=pip_environment(temporary),
        guarded=True,
    )
    answer: dict[str, Any] = json.loads(report.read_text())
    return Lock(
        python=interpreter.python,
        environment=answer["environment"],
        wheels=tuple(_wheel(entry) for entry in answer["install"]),
    )


def _wheel(entry: Mapping[str, Any]) -> Wheel:
    metadata, download = entry["metadata"], entry["download_info"]
    file_name = unquote(urlsplit(download["url"]).path.rsplit("/", 1)[-1])
    sha256 = download.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    if not sha256:
        local = Path(unquote(urlsplit(download["url"]).path))
        if urlsplit(download["url"]).scheme != "file" or not local.is_file():
            raise ProviderError(f"pip knows no hash for {file_name}", "Use an index that gives hashes.")
        sha256 = files.sha256(local)
    return Wheel(
        name=metadata["name"],
        version=metadata["version"],
        file_name=file_name,
        sha256=sha256,
        requires=tuple(metadata.get("requires_dist", ())),
        requires_python=metadata.get("requires_python", ""),
        license=metadata.get("license_expression", ""),
    )


def _from_json(data: Mapping[str, Any]) -> Lock:
    wheels = tuple(Wheel(**{**entry, "requires": tuple(entry["requires"])}) for entry in data["wheels"])
    return Lock(python=data["python"], environment=data["environment"], wheels=wheels)
