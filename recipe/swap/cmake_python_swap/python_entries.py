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
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .cmake_cache import INTERNAL, CMakeCache, Entry
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
_PYBIND11_INCLUDE = re.compile(r"^pybind11_INCLUDE_DIRS?$")
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

    def __str__(self) -> str:
        new = "(CMake finds it again)" if self.new is None else self.new
        return f"{self.name}: {self.old} -> {new}"


@dataclass(frozen=True)
class _FoundPython:
    """The interpreter that CMake's last run has found."""

    version: str  #: "3.12.7"
    soabi: str


_NAMES = ("Python", "Python3")  # of CMake's package


def plan(cache: CMakeCache, facts: PythonFacts) -> tuple[Change, ...]:
    """Return the changes after which a cache describes the interpreter.

    Raises EntriesError if the tree uses NumPy or pybind11 and the interpreter does not have it.
    """
    changes: list[Change] = []
    for entry in cache:
        changes += _change(entry, cache, facts)
    for package in _NAMES:
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
    for package in _NAMES:
        found = _found_python(cache, package)
        if found and found.version[:1].isdigit():
            short, _, _ = found.version.rpartition(".")
            return f"{short}t" if "t" in _abi_flags(found.soabi) else short
    soabi = cache.get("PYTHON_MODULE_EXTENSION") or cache.get("SKBUILD_SOABI")
    match = re.search(r"cpython-3(\d+t?)", soabi)
    return f"3.{match[1]}" if match else ""


def _found_python(cache: CMakeCache, package: str) -> _FoundPython | None:
    """Return the interpreter in the cache that CMake has found under one of its package's names."""
    properties = cache.get(f"_{package}_INTERPRETER_PROPERTIES").split(";")
    if len(properties) <= 6:
        return None
    return _FoundPython(version=".".join(properties[1:4]), soabi=properties[6])


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
    for package in _NAMES:
        found = _found_python(cache, package)
        wanted = _FoundPython(version=facts.version, soabi=facts.soabi)
        if found and not found.soabi:  # CMake does not ask for it if it cross-compiles
            wanted = _FoundPython(version=facts.version, soabi="")
        if found and found != wanted:
            was = f"{found.version} ({found.soabi})"
            yield f"CMake found Python {was} instead of {facts.version} ({facts.soabi})"
        folders = {
            f"_{package}_INCLUDE_DIR": facts.include,
            f"_{package}_NumPy_INCLUDE_DIR": facts.numpy_include,
        }
        for name, expected in folders.items():
            folder = cache.get(name)
            if folder and not _same(folder, expected):
                yield f"CMake found {name}={folder} instead of {expected or 'nothing'}"


def describes(cache: CMakeCache, facts: PythonFacts) -> bool:
    """Return whether CMake's last run found this interpreter, so that another run would change nothing."""
    if not any(_found_python(cache, package) for package in _NAMES):
        return False
    if any(change.new is not None for change in plan(cache, facts)):
        return False
    return not list(disagreements(cache, facts))


def _change(entry: Entry, cache: CMakeCache, facts: PythonFacts) -> Iterator[Change]:
    is_result = FOUND.match(entry.name) is not None
    if entry.type == INTERNAL and _PYBIND11_INCLUDE.match(entry.name):
        is_result = True
    if is_result:
        yield Change(entry.name, entry.type, entry.value, None)
        return
    new = _value(entry, cache, facts)
    if new is not None and new != entry.value:
        yield Change(entry.name, entry.type, entry.value, new)


def _value(entry: Entry, cache: CMakeCache, facts: PythonFacts) -> str | None:
    """Return the value that an entry must have for the interpreter; None if it does not depend on Python."""
    if entry.name in _BY_NAME:
        return _BY_NAME[entry.name](entry, cache, facts)
    match = re.match(r"^(?:Python3?|PYTHON)_(\w+)$", entry.name)
    if match is None or match[1] not in _BY_SUFFIX:
        return None
    if not entry.value or _is_not_found(entry):
        return None
    return _BY_SUFFIX[match[1]](entry, cache, facts)


def _is_not_found(entry: Entry) -> bool:
    return entry.value.endswith("NOTFOUND")


# ---- the values: each takes an entry, its cache and the new interpreter's facts ------------------------------------
def _executable(_: Entry, cache: CMakeCache, facts: PythonFacts) -> str:
    return executable(cache, facts)


def _soabi(_: Entry, __: CMakeCache, facts: PythonFacts) -> str:
    return facts.soabi


def _include(_: Entry, __: CMakeCache, facts: PythonFacts) -> str:
    return facts.include


def _numpy_include(_: Entry, __: CMakeCache, facts: PythonFacts) -> str:
    if not facts.numpy_include:
        raise EntriesError(f"{facts.executable} has no NumPy, but the tree was configured with it")
    return facts.numpy_include


def _library(_: Entry, __: CMakeCache, facts: PythonFacts) -> str:
    return facts.library_path


def _root(entry: Entry, cache: CMakeCache, facts: PythonFacts) -> str:
    # scikit-build-core sets the interpreter's own installation; a folder set by a user stays if it exists.
    if "SKBUILD" not in cache and os.path.isdir(entry.value):
        return entry.value
    return facts.base_exec_prefix


def _packages(_: Entry, __: CMakeCache, facts: PythonFacts) -> str:
    return os.path.relpath(facts.platlib, facts.prefix)


def _find_abi(entry: Entry, _: CMakeCache, facts: PythonFacts) -> str:
    # pydebug;pymalloc;unicode[;gil_disabled]: without the fourth it is OFF; CMake < 3.30 accepts only three
    abi = entry.value.split(";")
    if len(abi) == 3 and not facts.free_threaded:
        return entry.value
    gil_disabled = "ON" if facts.free_threaded else "OFF"
    return ";".join([*abi[:3], gil_disabled])


def _list(entry: Entry, _: CMakeCache, facts: PythonFacts) -> str:
    return ";".join(_relocate(element, facts) for element in entry.value.split(";"))


def _pybind11_dir(entry: Entry, _: CMakeCache, facts: PythonFacts) -> str:
    # A pybind11 outside any Python's packages ($PREFIX/share/cmake) works for all Pythons, if it still exists.
    is_usable = not entry.value or _is_not_found(entry) or os.path.isdir(entry.value)
    if is_usable and _PACKAGES.match(entry.value) is None:
        return entry.value
    if not facts.pybind11_cmake:
        old = entry.value
        raise EntriesError(f"{facts.executable} has no pybind11, but the tree was configured with it ({old})")
    return facts.pybind11_cmake


_Value = Callable[[Entry, CMakeCache, PythonFacts], str]
_BY_NAME: dict[str, _Value] = {
    "CMAKE_PREFIX_PATH": _list,
    "CMAKE_MODULE_PATH": _list,
    "CMAKE_FIND_ROOT_PATH": _list,
    "pybind11_DIR": _pybind11_dir,
    "SKBUILD_SOABI": _soabi,
}
# After Python_, Python3_ or PYTHON_; a result that was not found stays.
_BY_SUFFIX: dict[str, _Value] = {
    "EXECUTABLE": _executable,
    "INCLUDE_DIR": _include,
    "INCLUDE_DIRS": _include,
    "INCLUDE_PATH": _include,
    "INCLUDE_DIR2": _include,
    "NumPy_INCLUDE_DIR": _numpy_include,
    "NumPy_INCLUDE_DIRS": _numpy_include,
    "NUMPY_INCLUDE_DIR": _numpy_include,
    "NUMPY_INCLUDE_DIRS": _numpy_include,
    "LIBRARY": _library,
    "LIBRARIES": _library,
    "LIBRARY_RELEASE": _library,
    "ROOT_DIR": _root,
    "LIB_REL_PATH": _packages,
    "FIND_ABI": _find_abi,
}


def _relocate(path: str, facts: PythonFacts) -> str:
    """Move a path from the packages of another Python in the same prefix to this Python's; return others unchanged."""
    match = _PACKAGES.match(path)
    if match is None or not _same(match["prefix"], facts.prefix):
        return path
    return facts.purelib + (match["rest"] or "")


def _abi_flags(soabi: str) -> str:
    # "cpython-313t-x86_64-linux-gnu" -> "t"
    _, _, rest = soabi.partition("-")
    version, _, _ = rest.partition("-")
    return version.lstrip("0123456789")


def _same(one: str, other: str) -> bool:
    return bool(other) and os.path.realpath(one) == os.path.realpath(other)
