"""scikit-build-core, PyTorch's build back end from 2.14 on: configure a tree with it, and pack with it.

What it does to a tree that several Pythons share (measured with 1.1 on the graph of PyTorch 2.6.0):

* It configures on every call, from a CMakeInit.txt that it writes afresh (nothing is gained by editing that file), and
  command lines are its own: a tree that plain CMake configured compiles the Python side once more when it is packed. So
  configuring, for staging and for every other Python, is a call of the back end that builds and packs nothing.
* It throws CMakeCache.txt and CMakeFiles/ away when ``.skbuild-info.json`` names another place of its own code, which
  is inside the packages of one Python. `claim` names the new interpreter's, and the cache stays with what is set there.
* Every run of CMake writes some sources anew; the back end is given a ``cmake`` that keeps their time stamps
  (cmake_regenerate.py), or packing would compile a piece of libtorch again and link it.
* It installs into a temporary folder, whose name CMake keeps. That folder lies in the tree, where what CMake installs
  to absolute places does no harm, and is removed after every call.
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

INFO = ".skbuild-info.json"
TEMPORARY = "build/temp.skbuild"
# a target that compiles nothing, a component that does not exist, and no file: what is left is configuring
_CONFIGURE = ("build.targets=list_install_components", "install.components=none", "wheel.exclude=*")


class SkbuildError(Exception):
    """State that cannot be read, an interpreter without scikit-build-core, or a call of it that failed."""


def claim(build_dir: Path, python: str, skbuild: str) -> Mapping[str, bytes]:
    """Return the files, by name, that make a tree another interpreter's to configure; nothing is written.

    `python`, `skbuild`: the interpreter, and where its scikit-build-core lies; "" where it has none.

    Raises SkbuildError: The state cannot be read, or the interpreter lacks scikit-build-core.
    """
    path = build_dir / INFO
    if not path.exists():
        return {}
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SkbuildError(
            f"{path} cannot be read ({error}); scikit-build-core would start from nothing"
        ) from error
    if not isinstance(state, dict) or "skbuild_path" not in state:
        raise SkbuildError(
            f"{path} does not say where scikit-build-core is; this version of it is not known here"
        )
    if not skbuild:
        raise SkbuildError(f"{python} has no scikit-build-core, which built this tree")
    state["skbuild_path"] = skbuild
    if "python_executable" in state:
        state["python_executable"] = python
    return {INFO: json.dumps(state, indent=2).encode()}


def configure(tree: Path, python: str, *, log: Path | None = None) -> None:
    """Let the back end configure a tree, and do nothing else.

    `python`: the interpreter to configure for; it needs pip and scikit-build-core.

    Raises SkbuildError: It failed; the message ends with what it said.
    """
    _call(tree, python, tree / TEMPORARY / "configured", _CONFIGURE, log=log)


def wheel(tree: Path, python: str, folder: Path, leave_out: Sequence[str]) -> None:
    """Let the back end build, install and pack the wheel.

    It configures once more before it builds; should that make it compile anything of libtorch, it ends there.

    `leave_out`: files and folders of the package ``torch`` to keep out of the wheel, relative to it.

    Raises SkbuildError: It failed.
    """
    # The setting replaces PyTorch's own list, which keeps thousands of its dependencies' files out.
    patterns = [*_excluded(tree / "pyproject.toml"), *(f"/torch/{place}" for place in leave_out)]
    _call(tree, python, folder, [f"wheel.exclude={pattern}" for pattern in patterns], swapped=True)


def _excluded(pyproject: Path) -> list[str]:
    # Python 3.10 has none; scikit-build-core requires the same there under another name.
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    settings = toml.loads(pyproject.read_text(encoding="utf-8")).get("tool", {}).get("scikit-build", {})
    return [str(pattern) for pattern in settings.get("wheel", {}).get("exclude", [])]


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
    this = shlex.join([sys.executable, "-B", str(Path(__file__).parent)])
    # Configuring begins with -S. Anything else goes straight to CMake: asked for its version, it is given few seconds.
    configuring = f'{this} cmake "$@"'
    if swapped:
        configuring += f" && exec {this} verify {shlex.quote(str(tree / 'build'))}"
    cmake.write_text(f'#!/bin/sh\ncase "$1" in\n-S*) {configuring} ;;\n*) exec cmake "$@" ;;\nesac\n')
    cmake.chmod(0o755)
    command = [
        python,
        "-m",
        "pip",
        "wheel",
        ".",
        "-v",
        "--wheel-dir",
        str(folder.absolute()),
        "--no-build-isolation",
    ]
    command += ["--no-deps", "--no-index", "--no-cache-dir", "--disable-pip-version-check"]
    command += [f"-C{setting}" for setting in settings]
    environment = {**os.environ, "TMPDIR": str(temporary), "CMAKE_EXECUTABLE": str(cmake)}
    output = None if log is None else subprocess.PIPE
    result = subprocess.run(
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if log is None else subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if log is not None:
        log.write_text(result.stdout, errors="replace")
    if result.returncode:
        said = "" if log is None else "\n" + "\n".join(result.stdout.splitlines()[-30:])
        raise SkbuildError(f"scikit-build-core failed in {tree} with exit code {result.returncode}{said}")
    shutil.rmtree(temporary, ignore_errors=True)
