"""Configure and pack a tree with scikit-build-core, PyTorch's build back end from 2.14 on.

Its effects on a tree that several Pythons share (measured with 1.1 on the graph of PyTorch 2.6.0):

* It configures on every call, with its own command lines and a CMakeInit.txt that it rewrites each time (so editing
  that file has no effect). Packing a tree that plain CMake configured would therefore recompile the Python side. So
  staging and every other Python configure by a call of the back end that builds and packs nothing.
* It deletes CMakeCache.txt and CMakeFiles/ if ``.skbuild-info.json`` names another path of its own code, which is in
  the packages of one Python. `claim` writes the new interpreter's path, so the cache and its entries stay.
* Every run of CMake rewrites some sources. The back end gets a ``cmake`` that keeps their dates (cmake_regenerate.py):
  otherwise packing would recompile and relink a part of libtorch.
* It installs into a temporary folder, whose name CMake records. That folder is in the tree, so that files with absolute
  install paths do no harm. It is removed after every call.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from .cmake_regenerate import last_lines

INFO = ".skbuild-info.json"
TEMPORARY = "build/temp.skbuild"
# A target that compiles nothing, a component that does not exist, and no file: the back end only configures.
_CONFIGURE = ("build.targets=list_install_components", "install.components=none", "wheel.exclude=*")


class SkbuildError(Exception):
    """The back end's state cannot be read, the interpreter lacks scikit-build-core, or a call of it failed."""


def claim(build_dir: Path, python: str, skbuild: str) -> Mapping[str, bytes]:
    """Return the files, by name, with which another interpreter can configure a tree; write nothing.

    `python`, `skbuild`: the interpreter, and the folder of its scikit-build-core, or "".

    Raises SkbuildError: The state cannot be read, or the interpreter lacks scikit-build-core.
    """
    path = build_dir / INFO
    if not path.exists():
        return {}
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SkbuildError(
            f"{path}: cannot read ({error}): scikit-build-core would configure from scratch"
        ) from error
    if not isinstance(state, dict) or "skbuild_path" not in state:
        raise SkbuildError(
            f"{path} does not name scikit-build-core's folder: this version of scikit-build-core is not supported"
        )
    if not skbuild:
        raise SkbuildError(f"{python} has no scikit-build-core, but the tree was built with it")
    state["skbuild_path"] = skbuild
    if "python_executable" in state:
        state["python_executable"] = python
    return {INFO: json.dumps(state, indent=2).encode()}


def configure(tree: Path, python: str, *, log: Path | None = None) -> None:
    """Configure a tree with the back end, without building.

    `python`: the interpreter to configure for; it needs pip and scikit-build-core.

    Raises SkbuildError: It failed; the message ends with its last lines.
    """
    _call(tree, python, tree / TEMPORARY / "configured", _CONFIGURE, log=log)


def wheel(tree: Path, python: str, folder: Path, leave_out: Sequence[str]) -> None:
    """Build, install and pack the wheel with the back end.

    It configures again before it builds, and stops if ninja would then recompile a part of libtorch.

    `leave_out`: files and folders of the package ``torch`` to leave out of the wheel, relative to it.

    Raises SkbuildError: It failed.
    """
    # The setting replaces PyTorch's own list, which leaves out thousands of files of its dependencies.
    patterns = _excluded(tree / "pyproject.toml")
    patterns += [f"/torch/{place}" for place in leave_out]
    _call(tree, python, folder, [f"wheel.exclude={pattern}" for pattern in patterns], swapped=True)


def _excluded(pyproject: Path) -> list[str]:
    # Python 3.10 has no tomllib; scikit-build-core requires tomli there, which is the same module.
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    document = toml.loads(pyproject.read_text(encoding="utf-8"))
    settings = document.get("tool", {}).get("scikit-build", {})
    patterns = settings.get("wheel", {}).get("exclude", [])
    return list(map(str, patterns))


def _call(
    tree: Path,
    python: str,
    folder: Path,
    settings: Sequence[str],
    *,
    log: Path | None = None,
    swapped: bool = False,
) -> None:
    tree = tree.absolute()
    temporary = tree / TEMPORARY
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    cmake = temporary / "cmake"
    _write_cmake(cmake, tree, swapped=swapped)
    command = [python, "-m", "pip", "wheel", ".", "-v", "--wheel-dir", str(folder.absolute())]
    command += ["--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir"]
    command += ["--disable-pip-version-check", *(f"-C{setting}" for setting in settings)]
    environment = {**os.environ, "TMPDIR": str(temporary), "CMAKE_EXECUTABLE": str(cmake)}
    environment["PIP_CONFIG_FILE"] = os.devnull  # no file of pip may name another folder
    result = subprocess.run(
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if log else None,
        stderr=subprocess.STDOUT if log else None,
        text=True,
        errors="replace",
    )
    if log:
        log.write_text(result.stdout, errors="replace")
    if result.returncode:
        lines = last_lines(result)
        raise SkbuildError(f"scikit-build-core failed in {tree} with exit code {result.returncode}{lines}")
    shutil.rmtree(temporary, ignore_errors=True)


def _write_cmake(program: Path, tree: Path, *, swapped: bool) -> None:
    """Write the ``cmake`` that the back end calls.

    Configuring begins with -S. Other calls run CMake directly: the back end waits only seconds for `cmake --version`.
    """
    this = shlex.join([sys.executable, "-B", str(Path(__file__).parent)])
    configuring = f'{this} cmake "$@"'
    if swapped:
        configuring += f" && exec {this} verify {shlex.quote(str(tree / 'build'))}"
    program.write_text(f'#!/bin/sh\ncase "$1" in\n-S*) {configuring} ;;\n*) exec cmake "$@" ;;\nesac\n')
    program.chmod(0o755)
