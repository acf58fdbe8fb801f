"""The user's environment: its Python, PyTorch and GPUs, and whether an extension works in it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from groundwork.errors import BuildError, PreflightError, UsageError
from groundwork.files import writable
from groundwork.process import TIMED_OUT, run
from groundwork.user_folders import expanded
from pyg_extensions.pyg_index import WheelTarget
from pyg_extensions.table import Extension

_SCRIPT = Path(__file__).with_name("ask_python.py")
_SECONDS = 180.0  # `import torch` from a cold disk takes its time
#: All but the name of the module is the same for all of them. Every extension says which CUDA it was compiled with, -1
#: for none: a wrong build imports happily and fails only at the first operation on a GPU.
_CHECK = """\
import importlib, sys
import torch
name = sys.argv[1]
importlib.import_module(name)
found = getattr(torch.ops, "pyg" if name == "pyg_lib" else name).cuda_version()
wanted = torch.version.cuda
if wanted is None and found > 0:
    sys.exit("it was compiled with CUDA, PyTorch here was not")
if wanted is not None and found <= 0:
    sys.exit("it was compiled without CUDA, PyTorch here is for CUDA " + wanted)
compiled = "%d.%d" % (found // 1000, found % 1000 // 10)
if wanted is not None and compiled.split(".")[0] != wanted.split(".")[0]:
    sys.exit("it was compiled with CUDA %s, PyTorch here is for CUDA %s" % (compiled, wanted))
"""
_PLATFORM = re.compile(r"(?P<system>linux|macosx|win)(?:[-_][\d.]+)?[-_](?P<machine>\w+)")
_HARMFUL = ("PYTHONPATH", "PYTHONHOME", "LANGUAGE")
_SYSTEMS = {"linux": "linux", "macosx": "osx", "win": "win"}


@dataclass(frozen=True, kw_only=True)
class UserEnvironment(WheelTarget):
    """An inspected environment, which wheels must fit."""

    interpreter: Path
    prefix: Path  #: the environment's folder
    site: Path  #: where compiled packages lie in it
    torch_archs: tuple[str, ...]  #: what PyTorch itself has kernels for, as in ``TORCH_CUDA_ARCH_LIST``
    devices: tuple[str, ...]  #: Capabilities of the GPUs that PyTorch sees: ``("9.0",)``
    distributions: Mapping[str, str]  #: installed distributions, normalised with ``_``, and their versions
    managed: bool = False  #: its distributor forbids installing with pip

    def check_writable(self) -> None:
        """Check that packages can be installed into it.

        Raises PreflightError: They cannot.
        """
        remedy = "name an environment of your own: python3 -m venv DIR, and --python DIR"
        if self.managed:
            raise PreflightError(f"{self.prefix} belongs to the system: pip installs nothing into it", remedy)
        writable(self.site, f"see to its permissions, or {remedy}")

    def install_line(self, requirement: str) -> str:
        """Return a command that installs something into it, as it can be typed."""
        program = self.interpreter.with_name("pip")
        words = [str(program), "install"]
        if "pip" not in self.distributions:
            words = ["uv", "pip", "install", "--python", str(self.interpreter)]
        elif not program.is_file():
            words = [str(self.interpreter), "-m", "pip", "install"]
        return f'{shlex.join(words)} "{requirement}"'

    def archs(self, asked: Sequence[str]) -> tuple[str, ...]:
        """Return the architectures to compile for: the requested ones, the machine's GPUs, else PyTorch's own list.

        Without a GPU the environment may be for another machine: then extensions run on what PyTorch runs on.
        """
        if self.cuda_version is None:
            return ()
        return tuple(asked) or self.devices or self.torch_archs


def interpreter(named: str | None, environ: Mapping[str, str]) -> Path:
    """Return the interpreter of an environment.

    It is named by its interpreter, a program on PATH, or its folder; None is the active environment, that of
    ``VIRTUAL_ENV`` or ``CONDA_PREFIX``.

    Raises UsageError: It has no Python.
    """
    try:
        return _interpreter(named, environ)
    except OSError as error:
        message = f"{error.filename or named}: {error.strerror}"
        raise UsageError(message, "name an environment that you may use: --python PATH") from error


def _interpreter(named: str | None, environ: Mapping[str, str]) -> Path:
    if named is None:
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            if environ.get(variable):
                return _python_in(Path(environ[variable]), f"{variable} names")
        for program in ("python3", "python"):
            found = shutil.which(program, path=environ.get("PATH"))
            if found:
                return Path(found)
        raise UsageError("no environment is active, and PATH has no python3", "name one: --python PATH")
    path = expanded(named)
    if path.is_dir():
        return _python_in(path.absolute(), "you named")
    if path.is_file() and os.access(path, os.X_OK):
        return path.absolute()  # not resolved: a virtual environment is known by its link
    found = shutil.which(named, path=environ.get("PATH")) if os.sep not in named else None
    if found:
        return Path(found)
    raise UsageError(f"'{named}' is not a Python", "name an interpreter or an environment's folder")


def look(python: Path) -> UserEnvironment:
    """Inspect an interpreter's environment.

    Raises PreflightError: It does not run, has no PyTorch, or one that does not import or is not for CUDA or the CPU.
    """
    facts = _query(python)
    if facts["implementation"] != "cpython":
        raise PreflightError(f"{python} is {facts['implementation']}", "PyTorch needs CPython")
    torch, problem = facts["torch"], facts["torch_problem"]
    if torch is None and (problem or "torch" in facts["distributions"]):
        raise PreflightError(
            f"{python} has PyTorch, but `import torch` fails: {problem or 'its files are missing'}",
            f"repair that first ({python} -m pip install --force-reinstall torch), or name another environment: "
            "--python PATH",
        )
    if torch is None and (elsewhere := _torch_elsewhere(python)):
        raise PreflightError(
            f"{python} has no PyTorch of its own: that in {elsewhere} is the user's (~/.local) or on PYTHONPATH, "
            "where no extension is installed",
            f"make an environment with both: {python} -m venv DIR && DIR/bin/pip install torch, and name it: "
            "--python DIR",
        )
    if torch is None:
        raise PreflightError(
            f"{python} has no PyTorch",
            "install PyTorch into this environment first (pip install torch), or name another one: --python PATH",
        )
    if torch["hip"]:
        raise PreflightError(
            f"{python} has PyTorch for ROCm", "there are no wheels for it; build it from source by hand"
        )
    try:
        Version(torch["version"])
    except InvalidVersion as error:
        raise PreflightError(
            f"{python} has a PyTorch of version '{torch['version']}'", "install a released PyTorch"
        ) from error
    return UserEnvironment(
        interpreter=python,
        prefix=Path(facts["prefix"]),
        site=Path(facts["site"]),
        python=facts["python"] + ("t" if facts["free_threaded"] else ""),
        platform=_conda_platform(facts["platform"]),
        glibc=facts["glibc"] or "2.17",
        torch_version=torch["version"],
        cuda_version=torch["cuda"],
        torch_archs=parse_arch_flags(torch["archs"]),
        devices=tuple(dict.fromkeys(torch["devices"])),
        distributions=facts["distributions"],
        managed=facts["managed"],
    )


def _torch_elsewhere(python: Path) -> str:
    """Return where a Python that is not isolated from its user finds PyTorch, or an empty string."""
    code = "import importlib.util as u; s = u.find_spec('torch'); print(s and s.origin or '')"
    with tempfile.TemporaryDirectory() as empty:
        done = run([str(python), "-c", code], timeout=_SECONDS, folder=Path(empty))
    origin = (done.stdout.strip().splitlines() or [""])[-1] if done.returncode == 0 else ""
    return str(Path(origin).parent.parent) if origin else ""


def parse_arch_flags(flags: list[str]) -> tuple[str, ...]:
    """Return ``("9.0", "12.0+PTX")`` for ``["sm_90", "sm_120", "compute_120"]``."""
    archs: dict[str, str] = {}
    for flag in flags:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", flag)
        if match:
            arch = f"{match[2]}.{match[3]}{match[4]}"
            archs[arch] = archs.get(arch, "") or ("+PTX" if match[1] == "compute" else "")
    return tuple(arch + ptx for arch, ptx in archs.items())


def _python_in(folder: Path, how_named: str) -> Path:
    for name in ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe"):
        if (folder / name).is_file():
            return folder / name
    raise UsageError(f"{how_named} {folder}, which has no Python", "name another environment: --python PATH")


def _query(python: Path) -> dict[str, Any]:
    done = _run(python, str(_SCRIPT))
    if done.returncode == TIMED_OUT:
        raise PreflightError(f"{python}: `import torch` takes more than {_SECONDS:.0f} s", "try again")
    try:
        facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        runs = done.returncode and _run(python, "-c", "").returncode == 0
        what = "has PyTorch, but `import torch` ends it" if runs else "does not run"
        raise PreflightError(
            f"{python} {what}: {_last_line(done)}", "name another one: --python PATH"
        ) from error
    return facts


def find_import_fault(extension: Extension, environment: UserEnvironment) -> str:
    """Import an installed extension with its PyTorch and check it; return why it does not work, or an empty string.

    Raises PreflightError: It takes too long.
    Raises BuildError: It was killed.
    """
    done = _run(environment.interpreter, "-c", _CHECK, extension.name)
    if done.returncode == TIMED_OUT:
        raise PreflightError(f"`import {extension.name}` takes more than {_SECONDS:.0f} s", "try again")
    if done.returncode == -signal.SIGKILL:
        raise BuildError(f"`import {extension.name}` was killed: did memory run out?", "try again")
    if done.returncode == 0:
        return ""
    problem = _last_line(done)
    return problem if problem.startswith("it ") else f"`import {extension.name}` fails: {problem}"


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without those that make a Python import another one's modules.

    Programs speak English: what went wrong is looked for in their words.
    """
    kept = {name: value for name, value in environ.items() if name not in _HARMFUL}
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",
        "PIP_DEFAULT_TIMEOUT": "10",
    }


def _run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python in an empty folder, which has nothing to import by accident."""
    with tempfile.TemporaryDirectory() as empty:
        argv = [str(python), "-I", *arguments]
        return run(argv, timeout=_SECONDS, environ=clean(os.environ), folder=Path(empty))


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    ended = f"it ends with status {done.returncode}"
    if done.returncode < 0:
        ended = f"it is ended by {signal.Signals(-done.returncode).name}"
    return (done.stderr.strip().splitlines() or [ended])[-1]


def _conda_platform(name: str) -> str:
    match = _PLATFORM.fullmatch(name)
    if match is None:
        raise PreflightError(f"no wheels are known for '{name}'", "use Linux, macOS or Windows")
    system, machine = _SYSTEMS[match["system"]], match["machine"]
    return f"{system}-{'64' if machine in ('x86_64', 'amd64') else machine}"
