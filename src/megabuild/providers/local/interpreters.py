"""Find CPython interpreters on this machine: pyenv's, uv's, the system's and the running one."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from groundwork.debian_packages import install_command
from groundwork.errors import ProviderError
from groundwork.network.resolver import Target
from groundwork.process import run
from groundwork.progress import Notes
from groundwork.user_folders import home_folder

_OLDEST = 10  # minor version of Python 3

#: Of ``sys.implementation`` and ``sys.version_info``.
_RELEASED_CPYTHON = ("cpython", "final")

_PROBE = """\
import json, sys, sysconfig
get = sysconfig.get_config_var
print(json.dumps({
    "implementation": sys.implementation.name,
    "level": sys.version_info.releaselevel,
    "version": "%d.%d.%d" % sys.version_info[:3],
    "abiflags": getattr(sys, "abiflags", ""),
    "soabi": get("SOABI") or "",
    "prefix": sys.base_prefix,
    "stdlib": sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}),
    "include": sysconfig.get_path("include", vars={"installed_base": sys.base_prefix}),
    "library_folder": get("LIBDIR") or "",
    "multiarch": get("MULTIARCH") or "",
}))
"""


@dataclass(frozen=True, kw_only=True)
class Interpreter(Target):
    """An installed Python and the facts that it reported."""

    executable: Path  #: The program that reported them.
    soabi: str  #: Part of the file name of extension modules, such as "cpython-312-x86_64-linux-gnu".
    #: Folders of its files.
    prefix: Path
    stdlib: Path
    include: Path
    library_folder: Path
    multiarch: str  #: Such as "x86_64-linux-gnu".

    @property
    def sort_key(self) -> tuple[int, ...]:
        """Version as numbers."""
        return tuple(int(part) for part in self.version.split("."))

    @property
    def debian_layout(self) -> bool:
        """Whether it has Debian's layout: files spread over /usr, and modules installed to dist-packages."""
        split = self.include.parent / self.multiarch / self.include.name / "pyconfig.h"
        return self.prefix.name == "usr" and split.is_file()


def candidates(environ: Mapping[str, str], home: Path | None) -> Iterator[Path]:
    """Yield the usual paths of interpreters, existing or not; `home` is None for a user without home folder.

    Reads PYENV_ROOT, UV_PYTHON_INSTALL_DIR and XDG_DATA_HOME.
    """
    # unlike Path.glob, this passes over unreadable folders
    for folder in _folders_of_versions(environ, home):
        for name in sorted(glob("*/bin/python3.[0-9]*", root_dir=folder)):
            if not (folder / name).parents[1].is_symlink():  # an alias, such as 3.12 of 3.12.1
                yield folder / name
    for folder in (Path("/usr/local/bin"), Path("/usr/bin")):
        for name in sorted(glob("python3.[0-9]*", root_dir=folder)):
            yield folder / name
    yield Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"


def _folders_of_versions(environ: Mapping[str, str], home: Path | None) -> Iterator[Path]:
    """Yield the folders of pyenv and uv that have a folder for each Python."""
    if environ.get("PYENV_ROOT"):
        yield Path(environ["PYENV_ROOT"], "versions")
    elif home is not None:
        yield home / ".pyenv" / "versions"
    if environ.get("UV_PYTHON_INSTALL_DIR"):
        yield Path(environ["UV_PYTHON_INSTALL_DIR"])
    elif environ.get("XDG_DATA_HOME"):
        yield Path(environ["XDG_DATA_HOME"], "uv", "python")
    elif home is not None:
        yield home / ".local" / "share" / "uv" / "python"


def find(report: Notes, paths: Iterable[Path] | None = None) -> dict[str, Interpreter]:
    """Return the interpreter with the highest micro version for each X.Y(t), oldest first.

    Interpreters without headers are reported and left out.
    """
    best: dict[str, Interpreter] = {}
    asked: set[Path] = set()
    if paths is None:
        paths = candidates(os.environ, home_folder(os.environ))
    for path in paths:
        suffix = path.name.removeprefix("python3.").removesuffix("t")
        if not suffix.isdigit() or int(suffix) < _OLDEST or path.resolve() in asked:
            continue
        asked.add(path.resolve())
        interpreter = ask(path)
        if interpreter is None:
            continue
        header = interpreter.include / "Python.h"
        if not header.is_file():
            report(f"Python {interpreter.version} ({path}) is left out: {header} is missing")
            continue
        former = best.get(interpreter.python)
        # of equal versions the first one wins: candidates() yields self-contained layouts (pyenv, uv) first
        if former is None or interpreter.sort_key > former.sort_key:
            best[interpreter.python] = interpreter
    return dict(sorted(best.items(), key=lambda item: (item[1].sort_key, item[0])))


def some_of(pythons: Sequence[str], report: Notes) -> dict[str, Interpreter]:
    """Return the installed interpreters of the given X.Y(t).

    Raises ProviderError: None is installed.
    """
    installed = find(report)
    chosen = {python: installed[python] for python in pythons if python in installed}
    if not chosen:
        raise ProviderError(
            f"Python {', '.join(pythons)}: not found with headers on this machine "
            f"(found: {', '.join(installed) or 'none'})",
            _remedy_for_none(pythons),
        )
    return chosen


def _remedy_for_none(pythons: Sequence[str]) -> str:
    """Return how to install one of the given Pythons with its headers, the usual way of this system first."""
    usual = [python for python in pythons if not python.endswith("t")]
    by_uv = f"uv python install {(usual or pythons)[-1]}"
    if shutil.which("apt-get"):
        return f"run: {install_command('python3-dev')}; or, for another Python: {by_uv}"
    return f"run: {by_uv}"


def ask(executable: Path) -> Interpreter | None:
    """Query a program's version, ABI and folders; return None if it is no released CPython or fails."""
    # a generous limit, because every core may be busy compiling
    done = run([executable, "-I", "-S", "-c", _PROBE], timeout=120)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return None
    if (answer.pop("implementation"), answer.pop("level")) != _RELEASED_CPYTHON:
        return None
    for name in ("prefix", "stdlib", "include", "library_folder"):
        answer[name] = Path(answer[name])
    free_threaded = "t" in answer.pop("abiflags")
    return Interpreter(executable=executable, free_threaded=free_threaded, **answer)
