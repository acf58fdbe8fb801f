"""The user's environment: its Python, PyTorch, GPUs and pip, and whether an extension works in it."""

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
from functools import cache
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from groundwork import pip_output, pip_settings
from groundwork.errors import BuildError, OutOfSpaceError, PreflightError, ProviderError, UsageError
from groundwork.files import writable
from groundwork.machine import lacked_space
from groundwork.pip_settings import PipSettings, own_pip
from groundwork.process import TIMED_OUT, describe_end, run
from groundwork.user_folders import expanded
from pyg_extensions.pyg_index import WheelTarget
from pyg_extensions.table import Extension

_SCRIPT = Path(__file__).with_name("ask_python.py")
_SECONDS = 180.0  # `import torch` from a cold disk is slow
_PIP_SECONDS = 600.0
_PASS = "pass --python"
_OTHER = "pass another environment: --python PATH"
#: One check for all extensions: each reports the CUDA that it was compiled with (-1: none). A build for another CUDA
#: imports without an error, and fails only at its first operation on a GPU.
_CHECK = """\
import importlib, sys
import torch
name = sys.argv[1]
importlib.import_module(name)
found = getattr(torch.ops, "pyg" if name == "pyg_lib" else name).cuda_version()
wanted = torch.version.cuda
if wanted is None and found > 0:
    sys.exit("it was compiled with CUDA, PyTorch without")
if wanted is not None and found <= 0:
    sys.exit("it was compiled without CUDA, PyTorch for CUDA " + wanted)
compiled = "%d.%d" % (found // 1000, found % 1000 // 10)
if wanted is not None and compiled.split(".")[0] != wanted.split(".")[0]:
    sys.exit("it was compiled for CUDA %s, PyTorch for CUDA %s" % (compiled, wanted))
"""
_HARMFUL = ("PYTHONPATH", "PYTHONHOME", "LANGUAGE")
_NEW = "create your own environment (python3 -m venv DIR) and pass --python DIR"
#: pip waits so long for an index, and asks it once more, unless the user's settings name other values.
_PATIENCE = {"PIP_DEFAULT_TIMEOUT": "10", "PIP_RETRIES": "1"}
_VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
_REFUSED = re.compile(r"Permission denied|Read-only file system|\[Errno (?:13|30)\]")


@dataclass(frozen=True, kw_only=True)
class UserEnvironment(WheelTarget):
    """An inspected environment, as a target that wheels must fit."""

    interpreter: Path
    prefix: Path  #: the environment's folder
    site: Path  #: the folder of its compiled packages (``platlib``)
    torch_archs: tuple[str, ...]  #: archs that PyTorch itself has kernels for, as in ``TORCH_CUDA_ARCH_LIST``
    devices: tuple[str, ...]  #: compute capabilities of the GPUs that PyTorch sees: ``("9.0",)``
    distributions: Mapping[str, str]  #: versions of installed distributions, by names normalised with ``_``
    base_prefix: Path  #: the folder of the Python that a virtual environment was made from; else `prefix`
    include: tuple[Path, ...]  #: folders of its Python's headers
    managed: bool = False  #: its distributor forbids installing with pip (PEP 668)

    @property
    def pip(self) -> tuple[str, ...]:
        """The words that start its pip, or the running Python's pip for it."""
        if "pip" in self.distributions:
            return (str(self.interpreter), "-I", "-m", "pip")
        return (*own_pip(), "--python", str(self.interpreter))

    def pip_settings(self) -> PipSettings:
        """Return the user's settings of its pip; raises ProviderError if that pip does not answer."""
        return _pip_settings(self.pip, tuple(sorted(clean(os.environ).items())))

    def check_writable(self) -> None:
        """Raise PreflightError if packages cannot be installed into it, by permissions or by pip's settings."""
        settings = self.pip_settings()
        if self.managed and not settings.is_on("break-system-packages"):
            raise PreflightError(
                f"{self.prefix} belongs to the system: pip must not change it",
                f"{_NEW}; or permit it, as for pip: PIP_BREAK_SYSTEM_PACKAGES=1",
            )
        if self.prefix == self.base_prefix and settings.is_on("require-virtualenv"):
            raise PreflightError(
                f"{self.prefix}: pip's setting require-virtualenv forbids this environment", _NEW
            )
        writable(self.site, f"correct its permissions, or {_NEW}")

    def archs(self, asked: Sequence[str]) -> tuple[str, ...]:
        """Return the architectures to compile for: those ``asked`` for, else the machine's GPUs, else PyTorch's own.

        Without a GPU the environment may be for another machine, on which extensions must run wherever PyTorch does.
        """
        if self.cuda_version is None:
            return ()
        return tuple(asked) or self.devices or self.torch_archs


def interpreter(named: str | None, environ: Mapping[str, str]) -> Path:
    """Return the Python interpreter of an environment.

    ``named`` is an interpreter, a program on PATH or an environment's folder. None is the active environment
    (``VIRTUAL_ENV``, ``CONDA_PREFIX``), else python3 on PATH.

    Raises UsageError: It is none of these.
    """
    word = named or environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    if not word:
        python = _on_path("python3", environ) or _on_path("python", environ)
        if python is None:
            reason = "python3 is not on PATH, and no environment is active"
            raise UsageError(reason, "pass an environment: --python PATH")
        return python
    python = _in_folder(word)
    if python is None and named:
        python = _program(named)
    python = python or _on_path(word, environ)
    if python is not None:
        return python
    quoted = shlex.quote(word)
    raise UsageError(
        f"{word}: not a Python, nor a folder with one",
        f"make an environment with PyTorch first: python3 -m venv {quoted} && "
        f"{quoted}/bin/pip install torch; or pass another one: --python PATH",
    )


# unlike Path.is_file, os.path.isfile raises no error for a folder that may not be read
def _in_folder(word: str) -> Path | None:
    """Return the Python of an environment's folder."""
    for name in ("bin/python", "bin/python3"):
        python = expanded(word) / name
        if os.path.isfile(python):
            return python
    return None


def _program(word: str) -> Path | None:
    """Return a program; not resolved, because the link's own folder makes it a virtual environment's Python."""
    path = expanded(word)
    if os.path.isfile(path) and os.access(path, os.X_OK):
        return path
    return None


def _on_path(word: str, environ: Mapping[str, str]) -> Path | None:
    if os.sep in word:
        return None
    program = shutil.which(word, path=environ.get("PATH"))
    return Path(program) if program else None


def look(python: Path) -> UserEnvironment:
    """Inspect an interpreter's environment.

    Raises PreflightError: It has no PyTorch that works, or extensions do not support its Python, PyTorch or platform.
    """
    facts = _ask(python)
    torch = facts["torch"]
    if torch is None:
        reason = f"{python}: `import torch` fails in this environment: {facts['torch_problem']}"
        raise PreflightError(reason, _remedy_for_torch(python, facts))
    if torch["hip"]:
        remedy = f"build the extensions from source by hand, or {_OTHER}"
        raise PreflightError(f"{python}: PyTorch for ROCm is not supported", remedy)
    return UserEnvironment(
        interpreter=python,
        prefix=Path(facts["prefix"]),
        base_prefix=Path(facts["base_prefix"]),
        include=tuple(map(Path, facts["include"])),
        site=Path(facts["site"]),
        python=facts["python"] + ("t" if facts["free_threaded"] else ""),
        platform=facts["platform"].replace("darwin", "osx").replace("x86_64", "64"),
        glibc=facts["glibc"],
        torch_version=torch["version"],
        cuda_version=torch["cuda"],
        torch_archs=parse_arch_flags(torch["archs"]),
        devices=tuple(dict.fromkeys(torch["devices"])),
        distributions=facts["distributions"],
        managed=facts["managed"],
    )


def _ask(python: Path) -> dict[str, Any]:
    """Return the facts that :data:`_SCRIPT` prints about an interpreter."""
    done = _run(python, str(_SCRIPT), what=f"{python}: `import torch`")
    try:
        facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        reason = f"{python}: it does not run, or `import torch` ends it: {_last_line(done)}"
        raise PreflightError(reason, _OTHER) from error
    return facts


def _remedy_for_torch(python: Path, facts: Mapping[str, Any]) -> str:
    prefix = Path(facts["prefix"])
    is_own = facts["prefix"] != facts["base_prefix"] or (prefix / "conda-meta").is_dir()
    if not is_own:
        return f"make an environment: python3 -m venv venv && venv/bin/pip install torch; then {_PASS} venv"
    program = shlex.quote(str(python))
    words = f"{program} -m pip install"
    if "pip" not in facts["distributions"]:
        words = f"uv pip install --python {program}"
    if "torch" in facts["distributions"]:
        words = f"{words} --force-reinstall"
    return f"install PyTorch there: {words} torch; or {_OTHER}"


def parse_arch_flags(flags: list[str]) -> tuple[str, ...]:
    """Return ``("9.0", "12.0+PTX")`` for ``["sm_90", "sm_120", "compute_120"]``."""
    has_ptx: dict[str, bool] = {}
    for flag in flags:
        match = re.fullmatch(r"(sm|(?P<ptx>compute))_(?P<major>\d+)(?P<minor>\d[af]?)", flag)
        if match:
            arch = f"{match['major']}.{match['minor']}"
            has_ptx[arch] = has_ptx.get(arch, False) or match["ptx"] is not None
    return tuple(f"{arch}+PTX" if ptx else arch for arch, ptx in has_ptx.items())


def find_import_fault(extension: Extension, environment: UserEnvironment) -> str:
    """Import an installed extension with its PyTorch and check its CUDA; return its fault, or an empty string."""
    importing = f"`import {extension.name}`"
    done = _run(environment.interpreter, "-c", _CHECK, extension.name, what=importing)
    if done.returncode == -signal.SIGKILL:
        raise BuildError(f"{importing} was killed (out of memory?)", "free memory and try again")
    if done.returncode == 0:
        return ""
    problem = _last_line(done)
    return problem if problem.startswith("it ") else f"{importing} fails: {problem}"


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables without those that make a Python import another one's modules.

    The locale is English, because errors are recognised by their words.
    """
    kept = {name: value for name, value in environ.items() if name not in _HARMFUL}
    return kept | {"LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}


@cache  # running pip takes seconds
def _pip_settings(pip: tuple[str, ...], environ: tuple[tuple[str, str], ...]) -> PipSettings:
    return pip_settings.read(pip, dict(environ))


def _run(python: Path, *arguments: str, what: str) -> subprocess.CompletedProcess[str]:
    """Run a Python in an empty folder, from which it imports no module by accident.

    Raises PreflightError: It takes too long; ``what`` begins the message.
    """
    with tempfile.TemporaryDirectory() as empty:
        argv = [str(python), "-I", *arguments]
        done = run(argv, timeout=_SECONDS, environ=clean(os.environ), folder=Path(empty))
    if done.returncode == TIMED_OUT:
        remedy = "try again: the second import is faster"
        raise PreflightError(f"{what} takes more than {_SECONDS:.0f} s", remedy)
    return done


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else describe_end(done.returncode)


def run_pip(
    environment: UserEnvironment,
    command: str,
    *arguments: str,
    what: str,
    links: Path | None,
    temporary: Path,
    private: bool = False,
) -> None:
    """Install or uninstall packages with the environment's pip, or that of the running Python if it has none.

    ``what`` begins the error message; ``links`` is a folder with archives, in addition to pip's configured indexes;
    ``temporary`` is for temporary files, which a killed pip leaves behind. pip's cache of built wheels is off, because
    it does not distinguish how a wheel was built. Of the user's settings pip gets those of :class:`PipSettings`; if the
    packages are ``private``, not in the environment, without the user's limits of versions.

    Raises OutOfSpaceError, PreflightError (no permission), ProviderError (all other failures).
    """
    argv = [*environment.pip, command, "--quiet", "--disable-pip-version-check", "--no-input"]
    argv += ["--no-cache-dir", *arguments]
    if links:
        argv += ["--find-links", str(links)]
    more = pip_settings.ENVIRONMENT
    if private:
        more = frozenset()
    environ = environment.pip_settings().environ(clean(os.environ), more)
    variables = _PATIENCE | environ | {"TMPDIR": str(temporary)}
    done = run(argv, timeout=_PIP_SECONDS, environ=variables)
    if done.returncode == 0:
        return
    text = done.stdout + done.stderr
    message = f"{what}: {pip_output.explain(text)}"
    if lacked_space(text):
        raise OutOfSpaceError(message, f"free disk space in {environment.site} and {temporary}")
    if _REFUSED.search(text):
        raise PreflightError(message, f"check the permissions of {environment.site}")
    raise ProviderError(
        message,
        "check the network and pip's indexes (pip config list), or pass a folder with archives: --pyg-sources DIR",
    )


def check_installed(environment: UserEnvironment, wheel: Path) -> None:
    """Raise ProviderError unless an environment has a wheel's distribution in its version, whatever pip reported."""
    name, version, _, _ = parse_wheel_filename(wheel.name)
    done = _run(environment.interpreter, "-c", _VERSION, name, what=f"looking for {name}")
    found = done.stdout.strip()
    if not found or Version(found) != version:
        raise ProviderError(
            f"pip reported success, but {environment.prefix} has {name} {found or '(none)'}, not {version}",
            pip_settings.REMEDY,
        )
