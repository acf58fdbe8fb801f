"""The user's environment: its Python, PyTorch, GPUs and pip, and whether an extension works in it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from groundwork.errors import BuildError, OutOfSpaceError, PreflightError, ProviderError, UsageError
from groundwork.files import writable
from groundwork.process import TIMED_OUT, run
from groundwork.user_folders import expanded
from pyg_extensions.pyg_index import WheelTarget
from pyg_extensions.table import Extension

_SCRIPT = Path(__file__).with_name("ask_python.py")
_SECONDS = 180.0  # `import torch` from a cold disk takes its time
_PIP_SECONDS = 600.0
_OTHER = "name another environment: --python PATH"
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
_PLATFORM = re.compile(r"(?P<system>linux|macosx)(?:[-_][\d.]+)?[-_](?P<machine>\w+)")
_SYSTEMS = {"linux": "linux", "macosx": "osx"}
_HARMFUL = ("PYTHONPATH", "PYTHONHOME", "LANGUAGE")
_FULL = re.compile(r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]")
_REFUSED = re.compile(r"Permission denied|Read-only file system|\[Errno (?:13|30)\]")
#: Why an index gave nothing is in one of pip's warnings.
_NO_ANSWER = re.compile(
    r"((?:connection broken by|The repository located at|40[13] Error|Could not fetch URL|Cannot determine).*)"
)


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
        """Check that packages can be installed into it."""
        remedy = "name an environment of your own: python3 -m venv DIR, and --python DIR"
        if self.managed:
            raise PreflightError(f"{self.prefix} belongs to the system: pip installs nothing into it", remedy)
        writable(self.site, f"see to its permissions, or {remedy}")

    def install_line(self, requirement: str) -> str:
        """Return a command that installs something into it, as it can be typed."""
        words = [str(self.interpreter), "-m", "pip", "install"]
        if "pip" not in self.distributions:
            words = ["uv", "pip", "install", "--python", str(self.interpreter)]
        return f'{shlex.join(words)} "{requirement}"'

    def archs(self, asked: Sequence[str]) -> tuple[str, ...]:
        """Return the architectures to compile for: the requested ones, the machine's GPUs, else PyTorch's own list.

        Without a GPU the environment may be for another machine: then extensions run on what PyTorch runs on.
        """
        return () if self.cuda_version is None else tuple(asked) or self.devices or self.torch_archs


def interpreter(named: str | None, environ: Mapping[str, str]) -> Path:
    """Return the interpreter of an environment.

    It is named by its interpreter, a program on PATH, or its folder; None is the active environment, that of
    ``VIRTUAL_ENV`` or ``CONDA_PREFIX``.
    """
    folder = next((environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)), "")
    for word in [named] if named else [folder] if folder else ["python3", "python"]:
        path = expanded(word)
        try:
            if path.is_dir():
                pythons = (path / "bin/python", path / "bin/python3")
                if python := next((python for python in pythons if python.is_file()), None):
                    return python
                raise UsageError(f"{path} has no Python", _OTHER)
            if named and path.is_file() and os.access(path, os.X_OK):
                return path  # not resolved: a virtual environment is known by its link
        except OSError as error:
            raise UsageError(f"{error.filename or word}: {error.strerror}", _OTHER) from error
        if os.sep not in word and (on_path := shutil.which(word, path=environ.get("PATH"))):
            return Path(on_path)
    if named or folder:
        raise UsageError(
            f"'{named or folder}' is not a Python", "name an interpreter or an environment's folder"
        )
    raise UsageError("no environment is active, and PATH has no python3", "name one: --python PATH")


def look(python: Path) -> UserEnvironment:
    """Inspect an interpreter's environment."""
    facts = _query(python)
    torch, problem = facts["torch"], facts["torch_problem"]
    if facts["implementation"] != "cpython":
        raise PreflightError(f"{python} is {facts['implementation']}", "PyTorch needs CPython")
    if torch is None and (problem or "torch" in facts["distributions"]):
        raise PreflightError(
            f"{python} has PyTorch, but `import torch` fails: {problem or 'its files are missing'}",
            f"repair that first ({python} -m pip install --force-reinstall torch), or {_OTHER}",
        )
    if torch is None:
        raise PreflightError(
            f"{python} has no PyTorch of its own",
            f"install PyTorch into this environment (one in ~/.local or on PYTHONPATH does not count), or {_OTHER}",
        )
    if torch["hip"]:
        remedy = "there are no wheels for it; build it from source by hand"
        raise PreflightError(f"{python} has PyTorch for ROCm", remedy)
    try:
        Version(torch["version"])
    except InvalidVersion as error:
        reason = f"{python} has a PyTorch of version '{torch['version']}'"
        raise PreflightError(reason, "install a released PyTorch") from error
    platform = _PLATFORM.fullmatch(facts["platform"])
    if platform is None:
        raise PreflightError(f"no wheels are known for '{facts['platform']}'", "use Linux or macOS")
    machine = platform["machine"].replace("x86_64", "64")
    return UserEnvironment(
        interpreter=python,
        prefix=Path(facts["prefix"]),
        site=Path(facts["site"]),
        python=facts["python"] + ("t" if facts["free_threaded"] else ""),
        platform=f"{_SYSTEMS[platform['system']]}-{machine}",
        glibc=facts["glibc"] or "2.17",
        torch_version=torch["version"],
        cuda_version=torch["cuda"],
        torch_archs=parse_arch_flags(torch["archs"]),
        devices=tuple(dict.fromkeys(torch["devices"])),
        distributions=facts["distributions"],
        managed=facts["managed"],
    )


def _query(python: Path) -> dict[str, Any]:
    done = _run(python, "-I", str(_SCRIPT))
    if done.returncode == TIMED_OUT:
        raise PreflightError(f"{python}: `import torch` takes more than {_SECONDS:.0f} s", "try again")
    try:
        facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        runs = done.returncode and _run(python, "-I", "-c", "").returncode == 0
        state = "has PyTorch, but `import torch` ends it" if runs else "does not run"
        raise PreflightError(f"{python} {state}: {_last_line(done)}", _OTHER) from error
    return facts


def parse_arch_flags(flags: list[str]) -> tuple[str, ...]:
    """Return ``("9.0", "12.0+PTX")`` for ``["sm_90", "sm_120", "compute_120"]``."""
    archs: dict[str, str] = {}
    for flag in flags:
        if match := re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", flag):
            arch = f"{match[2]}.{match[3]}{match[4]}"
            archs[arch] = archs.get(arch, "") or ("+PTX" if match[1] == "compute" else "")
    return tuple(arch + ptx for arch, ptx in archs.items())


def find_import_fault(extension: Extension, environment: UserEnvironment) -> str:
    """Import an installed extension with its PyTorch and check it; return why it does not work, or an empty string."""
    done = _run(environment.interpreter, "-I", "-c", _CHECK, extension.name)
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
    english = {"LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
    return kept | english | {"PIP_DEFAULT_TIMEOUT": "10"}


def _run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python in an empty folder, which has nothing to import by accident."""
    with tempfile.TemporaryDirectory() as empty:
        argv = [str(python), *arguments]
        return run(argv, timeout=_SECONDS, environ=clean(os.environ), folder=Path(empty))


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    ended = f"it ends with status {done.returncode}"
    if done.returncode < 0:
        ended = f"it is ended by {signal.Signals(-done.returncode).name}"
    return (done.stderr.strip().splitlines() or [ended])[-1]


@dataclass(frozen=True, kw_only=True)
class Pip:
    """pip for the user's environment: its own, or this one's if it has none."""

    environment: UserEnvironment  #: where packages go
    links: Path | None = None  #: a folder with archives, used besides pip's configured indexes
    temporary: Path | None = None  #: for pip's temporary files, which a killed pip leaves behind

    def run(self, command: str, *arguments: str, what: str) -> None:
        """Install or uninstall; never with pip's cache of built wheels, which knows nothing of how they were built.

        ``what`` is the subject of a message.
        """
        environment, site = self.environment, self.environment.site
        if "pip" in environment.distributions:
            argv = [str(environment.interpreter), "-m", "pip"]
        elif importlib.util.find_spec("pip") is not None:
            argv = [sys.executable, "-m", "pip", "--python", str(environment.interpreter)]
        else:
            remedy = f"install it: {environment.interpreter} -m ensurepip"
            raise ProviderError(f"{environment.prefix} has no pip", remedy)
        argv += [command, "--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1"]
        argv += ["--no-cache-dir", *arguments]
        argv += ["--find-links", str(self.links)] if self.links and command != "uninstall" else []
        environ = clean(os.environ) | ({"TMPDIR": str(self.temporary)} if self.temporary else {})
        done = run(argv, timeout=_PIP_SECONDS, environ=environ)
        text = done.stdout + done.stderr
        if done.returncode == 0:
            return
        message = f"{what}: {extract_errors(text)}"
        if _FULL.search(text):
            raise OutOfSpaceError(message, f"free some space in {site} and {self.temporary or 'TMPDIR'}")
        if _REFUSED.search(text):
            raise PreflightError(message, f"check the permissions of {site}")
        raise ProviderError(
            message,
            "check the network and pip's configuration (pip config list), or name a folder of archives: "
            "--pyg-sources FOLDER",
        )


def extract_errors(text: str) -> str:
    """Return what matters of a failed program's output, in one line: its errors, else its last lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [match[1] for line in lines if (match := _NO_ANSWER.search(line))][-1:]
    noise = ("warning:", "[notice]", "note:", "hint:")
    lines = [line for line in lines if not line.lower().startswith(noise)]
    errors = [line for line in lines if line.lower().startswith(("error:", "fatal error:"))]
    return "; ".join([*reasons, *(errors or lines)[-4:]]) or "it printed nothing"
