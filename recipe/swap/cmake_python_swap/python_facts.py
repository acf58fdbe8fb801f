"""Ask a Python interpreter, in one subprocess, for all facts that a CMake cache contains.

Standard library only, CPython >= 3.10. Paths are never derived from version numbers, because only the interpreter knows
them: free-threaded builds have their headers in python3.13t, distributions move site-packages, NumPy 2 moved its
headers.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_CPYTHON = "cpython"
_OLDEST = (3, 10)
_MARK = "::python-facts::"
# Runs in the interpreter. A mark precedes its answer, because sitecustomize and MKL print to stdout, too.
_SCRIPT = f"""
import importlib.util, json, sys, sysconfig
get = sysconfig.get_config_var
facts = dict(
    implementation=sys.implementation.name, version='.'.join(map(str, sys.version_info[:3])),
    executable=sys.executable, prefix=sys.prefix, base_exec_prefix=sys.base_exec_prefix,
    free_threaded=bool(get('Py_GIL_DISABLED')), soabi=get('SOABI') or '',
    include=sysconfig.get_path('include'), purelib=sysconfig.get_path('purelib'),
    platlib=sysconfig.get_path('platlib'), libdir=get('LIBDIR') or '', library=get('LDLIBRARY') or '',
    numpy_include='', pybind11_include='', pybind11_cmake='', skbuild='')
try:
    import numpy
    facts['numpy_include'] = numpy.get_include()
except ImportError:
    pass
try:
    import pybind11
    facts.update(pybind11_include=pybind11.get_include(), pybind11_cmake=pybind11.get_cmake_dir())
except ImportError:
    pass
spec = importlib.util.find_spec('scikit_build_core')
if spec is not None and spec.submodule_search_locations:
    facts['skbuild'] = list(spec.submodule_search_locations)[0]
print({_MARK!r} + json.dumps(facts))
"""


class InterpreterError(Exception):
    """An interpreter that does not run, or that PyTorch does not support."""


@dataclass(frozen=True, kw_only=True)
class PythonFacts:
    """The facts about an interpreter.

    `executable`, `prefix`, `base_exec_prefix`: its paths; links in ``executable`` are not resolved.
    `numpy_include`, `pybind11_include`, `pybind11_cmake`, `skbuild`: folders of these packages' headers, CMake files
      and code; "" if the package is not installed.
    """

    implementation: str
    version: str
    executable: str
    prefix: str
    base_exec_prefix: str
    free_threaded: bool
    soabi: str
    include: str
    purelib: str
    platlib: str
    libdir: str
    library: str
    numpy_include: str
    pybind11_include: str
    pybind11_cmake: str
    skbuild: str

    @property
    def short(self) -> str:
        """The version for names and messages: "3.12", "3.13t"."""
        major, minor = self.release
        return f"{major}.{minor}t" if self.free_threaded else f"{major}.{minor}"

    @property
    def release(self) -> tuple[int, int]:
        """(3, 12)."""
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)

    @property
    def library_path(self) -> str:
        """The path of the libpython that embedding programs link."""
        return os.path.join(self.libdir, self.library)


def ask(python: Path) -> PythonFacts:
    """Ask an interpreter. Raises InterpreterError if it does not run, is not CPython >= 3.10, or lacks its headers."""
    # Links stay: CMake uses this path, and a resolved link would lead out of a virtual environment.
    executable = os.path.abspath(python)
    try:
        result = subprocess.run(
            [executable, "-B", "-c", _SCRIPT],
            cwd="/",  # -c puts the current folder on sys.path, and a build folder may contain any module
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise InterpreterError(f"{executable} does not run: {error.strerror}") from error
    answers = [line for line in result.stdout.splitlines() if line.startswith(_MARK)]
    if result.returncode or not answers:
        lines = [f"exit code {result.returncode}", *result.stderr.strip().splitlines()]
        raise InterpreterError(f"{executable} fails: {lines[-1]}")
    values = json.loads(answers[0].removeprefix(_MARK))
    facts = PythonFacts(**{**values, "executable": executable})
    if facts.implementation != _CPYTHON or facts.release < _OLDEST:
        raise InterpreterError(
            f"{executable} is {facts.implementation} {facts.version}; it must be CPython >= 3.10"
        )
    if not os.path.isfile(os.path.join(facts.include, "Python.h")):
        raise InterpreterError(f"{executable} has no headers: {facts.include}/Python.h is missing")
    return facts
