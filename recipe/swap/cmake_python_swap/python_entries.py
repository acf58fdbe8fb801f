"""Change the cache entries of Python, NumPy and pybind11 for another interpreter.

The owner of an entry decides whether it is set or deleted:

* **Set**: entries that a user, setup.py or scikit-build-core passed to CMake (``Python_EXECUTABLE``,
  ``PYTHON_INCLUDE_DIR``, ``CMAKE_PREFIX_PATH``, ``pybind11_DIR`` ...). CMake does not check them, so they get the new
  interpreter's values.
* **Delete**: results that CMake's FindPython and pybind11 store. They find them again, with ``Python_EXECUTABLE``
  fixed. Setting them would require forged ``_Python_*_SIGNATURE`` entries: md5 sums over the search options of
  FindPython/Support.cmake (find strategy, virtualenv preference, registry ...) and the found paths. Their input differs
  between CMake versions, and the checks are incomplete (up to CMake 3.31 at least, the NumPy sum covers a variable that
  does not exist, so it never matches). CMake searches again if a signature does not match. It does not check
  ``_Python_INTERPRETER_PROPERTIES`` as long as the executable's path is the same, as always in a conda prefix. Deleting
  all of them is right in every version.

The swap checks afterwards that CMake found what the interpreter reports.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .cmake_cache import CMakeCache, Entry
from .python_facts import PythonFacts

# Results of FindPython, under both its names, and of pybind11.
FOUND = re.compile(
    r"^_Python3?_"
    r"|^FIND_PACKAGE_MESSAGE_DETAILS_(Python3?|PythonInterp|PythonLibs|NumPy|pybind11)$"
    r"|^Python3?_(VERSION|VERSION_MAJOR|VERSION_MINOR|VERSION_PATCH|SOABI|SITELIB|SITEARCH|STDLIB|STDARCH)$"
    r"|^PYTHON_(MODULE_EXTENSION|MODULE_DEBUG_POSTFIX|IS_DEBUG|VERSION.*|SITE_PACKAGES|MODULE_PREFIX)$"
    r"|^PYBIND11_PYTHON_EXECUTABLE_LAST$"
)
_EXECUTABLES = (
    "Python_EXECUTABLE",
    "Python3_EXECUTABLE",
    "_Python_EXECUTABLE",
    "_Python3_EXECUTABLE",
    "PYTHON_EXECUTABLE",
)
_LISTS = ("CMAKE_PREFIX_PATH", "CMAKE_MODULE_PATH", "CMAKE_FIND_ROOT_PATH")
_PACKAGES = re.compile(
    r"^(?P<prefix>.+)/(?:lib|lib64)/python3\.[0-9]+t?/(?:site|dist)-packages(?P<rest>/.*)?$"
)


class EntriesError(Exception):
    """The new interpreter lacks a package that the tree was configured with."""


@dataclass(frozen=True)
class Change:
    """The change of an entry: ``old`` is None if it is added, ``new`` is None if it is deleted."""

    name: str
    type: str
    old: str | None
    new: str | None


def plan(cache: CMakeCache, facts: PythonFacts) -> tuple[Change, ...]:
    """Return the changes after which a cache describes the interpreter.

    Raises EntriesError if the tree uses NumPy or pybind11 and the interpreter does not have it.
    """
    changes = [change for entry in cache for change in _change(entry, cache, facts)]
    for package in ("Python", "Python3"):
        # If CMake searched for the interpreter itself, this entry keeps it from finding another one.
        if f"_{package}_EXECUTABLE" in cache and f"{package}_EXECUTABLE" not in cache:
            changes.append(Change(f"{package}_EXECUTABLE", "FILEPATH", None, executable(cache, facts)))
    return tuple(changes)


def apply(cache: CMakeCache, changes: tuple[Change, ...]) -> None:
    for change in changes:
        if change.new is None:
            cache.remove(change.name)
        elif change.old is None:
            cache.add(
                change.name, change.new, change.type, "Python interpreter, kept fixed by the Python swap"
            )
        else:
            cache.set(change.name, change.new)


def version(cache: CMakeCache) -> str:
    """Return the version of a cache's Python, such as "3.12" or "3.13t"; "" if unknown."""
    for package in ("Python", "Python3"):
        properties = cache.get(f"_{package}_INTERPRETER_PROPERTIES").split(";")
        if len(properties) > 6 and properties[1].isdigit():
            return f"{properties[1]}.{properties[2]}" + ("t" if "t" in _abi_flags(properties[6]) else "")
    match = re.search(
        r"cpython-3(\d+)(t?)", cache.get("PYTHON_MODULE_EXTENSION") or cache.get("SKBUILD_SOABI")
    )
    return f"3.{match[1]}{match[2]}" if match else ""


def prefix(cache: CMakeCache) -> str:
    """Return the prefix of a cache's Python; "" if unknown."""
    for name in _EXECUTABLES:
        if cache.get(name):
            return os.path.dirname(os.path.dirname(cache.get(name)))
    return ""


def executable(cache: CMakeCache, facts: PythonFacts) -> str:
    """Return the interpreter's path, as the cache spells it if that is the same file.

    bin/python and bin/python3 are one program, but they change the command line of every generator that PyTorch runs.
    """
    for name in _EXECUTABLES:
        known = cache.get(name)
        if known and os.path.exists(known) and os.path.samefile(known, facts.executable):
            return known
    return facts.executable


def disagreements(cache: CMakeCache, facts: PythonFacts) -> Iterator[str]:
    """Yield a sentence for each result of a CMake run that differs from the interpreter's own report."""
    for package in ("Python", "Python3"):
        properties = cache.get(f"_{package}_INTERPRETER_PROPERTIES").split(";")
        if len(properties) > 6 and (".".join(properties[1:4]), properties[6]) != (facts.version, facts.soabi):
            found = f"{'.'.join(properties[1:4])} ({properties[6]})"
            yield f"CMake found Python {found} instead of {facts.version} ({facts.soabi})"
        for name, expected in (
            (f"_{package}_INCLUDE_DIR", facts.include),
            (f"_{package}_NumPy_INCLUDE_DIR", facts.numpy_include),
        ):
            found = cache.get(name)
            if found and not _same(found, expected):
                yield f"CMake found {name}={found} instead of {expected or 'nothing'}"


def describes(cache: CMakeCache, facts: PythonFacts) -> bool:
    """Return whether CMake's last run found this interpreter, so that another run would change nothing."""
    known = any(
        cache.get(f"_{package}_INTERPRETER_PROPERTIES").count(";") > 5 for package in ("Python", "Python3")
    )
    changed = any(change.new is not None for change in plan(cache, facts))
    return known and not changed and not any(True for _ in disagreements(cache, facts))


def _change(entry: Entry, cache: CMakeCache, facts: PythonFacts) -> Iterator[Change]:
    if FOUND.match(entry.name) or (
        entry.type == "INTERNAL" and re.match(r"^pybind11_INCLUDE_DIRS?$", entry.name)
    ):
        yield Change(entry.name, entry.type, entry.value, None)
        return
    new = _value(entry, cache, facts)
    if new is not None and new != entry.value:
        yield Change(entry.name, entry.type, entry.value, new)


def _value(entry: Entry, cache: CMakeCache, facts: PythonFacts) -> str | None:
    """Return the value that an entry must have for the interpreter; None if it does not depend on Python."""
    if entry.name in _LISTS:
        return ";".join(_relocate(element, facts) for element in entry.value.split(";"))
    if entry.name == "pybind11_DIR":
        return _pybind11_dir(entry.value, facts)
    if entry.name == "SKBUILD_SOABI":
        return facts.soabi
    match = re.match(r"^(?:Python3?|PYTHON)_(\w+)$", entry.name)
    if match is None or not entry.value or entry.value.endswith("NOTFOUND"):
        return None
    kind = match[1]
    if kind == "EXECUTABLE":
        return executable(cache, facts)
    if kind in ("INCLUDE_DIR", "INCLUDE_DIRS", "INCLUDE_PATH", "INCLUDE_DIR2"):
        return facts.include
    if kind in ("NumPy_INCLUDE_DIR", "NumPy_INCLUDE_DIRS", "NUMPY_INCLUDE_DIR", "NUMPY_INCLUDE_DIRS"):
        if not facts.numpy_include:
            raise EntriesError(f"{facts.executable} has no NumPy, but the tree was configured with it")
        return facts.numpy_include
    if kind in ("LIBRARY", "LIBRARIES", "LIBRARY_RELEASE"):
        return facts.library_path
    if kind == "ROOT_DIR":
        # scikit-build-core sets the interpreter's own installation; a folder set by a user stays if it exists.
        return facts.base_exec_prefix if "SKBUILD" in cache or not os.path.isdir(entry.value) else entry.value
    if kind == "LIB_REL_PATH":
        return os.path.relpath(facts.platlib, facts.prefix)
    if kind == "FIND_ABI":
        # pydebug;pymalloc;unicode[;gil_disabled]: without the fourth it is OFF; CMake < 3.30 accepts only three
        abi = entry.value.split(";")
        with_gil = len(abi) == 3 and not facts.free_threaded
        return entry.value if with_gil else ";".join([*abi[:3], "ON" if facts.free_threaded else "OFF"])
    return None


def _relocate(path: str, facts: PythonFacts) -> str:
    """Move a path from the packages of another Python in the same prefix to this Python's; return others unchanged."""
    match = _PACKAGES.match(path)
    if match is None or not _same(match["prefix"], facts.prefix):
        return path
    return facts.purelib + (match["rest"] or "")


def _pybind11_dir(old: str, facts: PythonFacts) -> str:
    # A pybind11 outside any Python's packages ($PREFIX/share/cmake) works for all Pythons, if it still exists.
    if _PACKAGES.match(old) is None and (os.path.isdir(old) or not old or old.endswith("NOTFOUND")):
        return old
    if not facts.pybind11_cmake:
        raise EntriesError(f"{facts.executable} has no pybind11, but the tree was configured with it ({old})")
    return facts.pybind11_cmake


def _abi_flags(soabi: str) -> str:
    # "cpython-313t-x86_64-linux-gnu" -> "t"
    parts = soabi.split("-")
    return parts[1].lstrip("0123456789") if len(parts) > 1 else ""


def _same(one: str, other: str) -> bool:
    return bool(other) and os.path.realpath(one) == os.path.realpath(other)
