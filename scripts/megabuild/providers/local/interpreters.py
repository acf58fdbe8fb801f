"""CPython interpreters on this machine: pyenv's, uv's, the system's and the running one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from groundwork.errors import ProviderError
from groundwork.process import run
from groundwork.user_folders import home_folder

_OLDEST = 10  # of the 3

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
class Interpreter:
    """A Python, as it describes itself."""

    executable: Path  #: The program that was asked.
    version: str  #: Such as "3.12.1".
    soabi: str  #: Part of the file name of extension modules, such as "cpython-312-x86_64-linux-gnu".
    #: Where its files lie.
    prefix: Path
    stdlib: Path
    include: Path
    library_folder: Path
    multiarch: str  #: Such as "x86_64-linux-gnu".
    free_threaded: bool  #: Built without the global interpreter lock.

    @property
    def python(self) -> str:
        """X.Y, with a "t" for free-threaded builds: "3.12", "3.13t"."""
        return ".".join(self.version.split(".")[:2]) + ("t" if self.free_threaded else "")

    @property
    def tag(self) -> str:
        """The ABI tag that conda-forge's build strings end in: "cp312", "cp313t"."""
        return "cp" + self.python.replace(".", "")

    @property
    def sort_key(self) -> tuple[int, ...]:
        """Version as numbers."""
        return tuple(int(part) for part in self.version.split("."))

    @property
    def debian_layout(self) -> bool:
        """Split over /usr as Debian does, with its own idea of where modules are installed."""
        split = self.include.parent / self.multiarch / self.include.name / "pyconfig.h"
        return self.prefix.name == "usr" and split.is_file()


def candidates(environ: Mapping[str, str], home: Path | None) -> Iterator[Path]:
    """Yield the usual places of interpreters, which need not exist, for a user with this home folder, or with none.

    Uses PYENV_ROOT, UV_PYTHON_INSTALL_DIR and XDG_DATA_HOME.
    """
    pyenv = environ.get("PYENV_ROOT") or (home and home / ".pyenv")
    data = environ.get("XDG_DATA_HOME") or (home and home / ".local" / "share")
    uv = environ.get("UV_PYTHON_INSTALL_DIR") or (data and Path(data, "uv", "python"))
    for folder in (*([Path(pyenv, "versions")] if pyenv else []), *([Path(uv)] if uv else [])):
        for version in _list(folder, "*"):
            if not version.is_symlink():  # aliases of another version
                yield from _list(version, "bin/python3.[0-9]*")
    for folder in (Path("/usr/local/bin"), Path("/usr/bin")):
        yield from _list(folder, "python3.[0-9]*")
    yield Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"


def _list(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:  # it cannot be read
        return []


def find(report: Callable[[str], None], paths: Iterable[Path] | None = None) -> dict[str, Interpreter]:
    """Return the best interpreter (highest micro version) for every X.Y(t) that can be packaged."""
    best: dict[str, Interpreter] = {}
    asked: set[Path] = set()
    for path in candidates(os.environ, home_folder(os.environ)) if paths is None else paths:
        suffix = path.name.removeprefix("python3.").removesuffix("t")
        if not suffix.isdigit() or int(suffix) < _OLDEST or path.resolve() in asked:
            continue
        asked.add(path.resolve())
        interpreter = ask(path)
        if interpreter is None:
            continue
        header = interpreter.include / "Python.h"
        if not header.is_file():
            report(f"left out Python {interpreter.version} ({path}): its headers are missing ({header})")
            continue
        former = best.get(interpreter.python)
        # At the same version the self-contained layouts come first: candidates() names them first.
        if former is None or interpreter.sort_key > former.sort_key:
            best[interpreter.python] = interpreter
    return dict(sorted(best.items(), key=lambda item: (item[1].sort_key, item[0])))


def some_of(pythons: Sequence[str], report: Callable[[str], None]) -> dict[str, Interpreter]:
    """Return the installed ones among some Pythons; raises ProviderError if there are none."""
    installed = find(report)
    chosen = {python: installed[python] for python in pythons if python in installed}
    if not chosen:
        raise ProviderError(
            f"none of the Pythons {', '.join(pythons)} is on this machine with its headers "
            f"(found: {', '.join(installed) or 'none'})",
            "Install one: apt-get install python3-dev, pyenv install 3.12, or uv python install 3.12.",
        )
    return chosen


def ask(executable: Path) -> Interpreter | None:
    """Query a program's version, ABI and folders; None if it is not a released CPython, or does not answer."""
    # a generous limit: every core may have ten other things to do
    done = run([executable, "-I", "-S", "-c", _PROBE], timeout=120)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return None
    if answer.pop("implementation") != "cpython" or answer.pop("level") != "final":
        return None
    for name in ("prefix", "stdlib", "include", "library_folder"):
        answer[name] = Path(answer[name])
    free_threaded = "t" in answer.pop("abiflags")
    return Interpreter(executable=executable, free_threaded=free_threaded, **answer)
