"""Which cache entries belong to Python, NumPy and pybind11, and what becomes of each under another interpreter.

Two fates, chosen by who owns an entry:

* **Set**: what a user, setup.py or scikit-build-core gave CMake (``Python_EXECUTABLE``, ``PYTHON_INCLUDE_DIR``,
  ``CMAKE_PREFIX_PATH``, ``pybind11_DIR`` ...). CMake takes these as they are, so they get the new interpreter's answer.
* **Delete**: what CMake's FindPython and pybind11 found out and keep for themselves. They find it again, with
  ``Python_EXECUTABLE`` pinned. Setting them as well would mean forging ``_Python_*_SIGNATURE``: md5 sums over the
  search options of FindPython/Support.cmake (find strategy, virtualenv preference, registry ...) and the found paths.
  What goes in differs between CMake versions, and the checks are lopsided (up to CMake 3.31 at least, the NumPy sum is
  computed over a variable that does not exist and so never matches). An entry whose signature does not match is found
  again anyway; the one entry that is *not* guarded, ``_Python_INTERPRETER_PROPERTIES``, is believed as long as the
  executable's path is the same, which in a conda prefix it always is. Deleting all of them is right in every version.

The swap checks afterwards that what CMake found is what the interpreter had said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .cmake_cache import CMakeCache, Entry
from .python_facts import PythonFacts

# FindPython under its two current names, and the results it and pybind11 keep in the cache.
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
    """The new interpreter lacks something the tree was configured with."""


@dataclass(frozen=True)
class Change:
    """One entry's fate: ``new`` is its value, or None when it is deleted; ``old`` is None when it is added."""

    name: str
    type: str
    old: str | None
    new: str | None


def plan(cache: CMakeCache, facts: PythonFacts) -> tuple[Change, ...]:
    """Return what must change in a cache for it to describe the interpreter.

    Raises EntriesError when the tree uses NumPy or pybind11 and the interpreter has none.
    """
    changes = [change for entry in cache for change in _change(entry, cache, facts)]
    for package in ("Python", "Python3"):
        # A tree in which CMake searched for the interpreter itself must not be left to find another one.
        if f"_{package}_EXECUTABLE" in cache and f"{package}_EXECUTABLE" not in cache:
            changes.append(Change(f"{package}_EXECUTABLE", "FILEPATH", None, executable(cache, facts)))
    return tuple(changes)


def apply(cache: CMakeCache, changes: tuple[Change, ...]) -> None:
    """Make the changes in a cache."""
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
    """The Python a cache describes, like "3.12" or "3.13t"; "" when it does not say."""
    for package in ("Python", "Python3"):
        properties = cache.get(f"_{package}_INTERPRETER_PROPERTIES").split(";")
        if len(properties) > 6 and properties[1].isdigit():
            return f"{properties[1]}.{properties[2]}" + ("t" if "t" in _abi_flags(properties[6]) else "")
    match = re.search(
        r"cpython-3(\d+)(t?)", cache.get("PYTHON_MODULE_EXTENSION") or cache.get("SKBUILD_SOABI")
    )
    return f"3.{match[1]}{match[2]}" if match else ""


def prefix(cache: CMakeCache) -> str:
    """The prefix of the Python that a cache describes; "" when it does not say."""
    for name in _EXECUTABLES:
        if cache.get(name):
            return os.path.dirname(os.path.dirname(cache.get(name)))
    return ""


def executable(cache: CMakeCache, facts: PythonFacts) -> str:
    """How to call the interpreter: by the name in the cache where that is the same file.

    bin/python and bin/python3 are one program, but two command lines for every generator that PyTorch runs.
    """
    for name in _EXECUTABLES:
        known = cache.get(name)
        if known and os.path.exists(known) and os.path.samefile(known, facts.executable):
            return known
    return facts.executable


def disagreements(cache: CMakeCache, facts: PythonFacts) -> Iterator[str]:
    """After CMake ran: sentences about what it found that is not what the interpreter says of itself."""
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
    """Whether CMake found this very interpreter when it last ran: it would find everything again as it is."""
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
    """The value an entry must have under the interpreter; None for an entry that is none of Python's business."""
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
            raise EntriesError(f"{facts.executable} has no NumPy, with which the tree was configured")
        return facts.numpy_include
    if kind in ("LIBRARY", "LIBRARIES", "LIBRARY_RELEASE"):
        return facts.library_path
    if kind == "ROOT_DIR":
        # scikit-build-core names the interpreter's own installation; what a user named stays while it is there.
        return facts.base_exec_prefix if "SKBUILD" in cache or not os.path.isdir(entry.value) else entry.value
    if kind == "LIB_REL_PATH":
        return os.path.relpath(facts.platlib, facts.prefix)
    if kind == "FIND_ABI":
        # pydebug;pymalloc;unicode[;gil_disabled]: three elements mean OFF, and all that CMake < 3.30 understands
        abi = entry.value.split(";")
        with_gil = len(abi) == 3 and not facts.free_threaded
        return entry.value if with_gil else ";".join([*abi[:3], "ON" if facts.free_threaded else "OFF"])
    return None


def _relocate(path: str, facts: PythonFacts) -> str:
    """A path into the packages of another Python in the same prefix, moved to this one's; others as they are."""
    match = _PACKAGES.match(path)
    if match is None or not _same(match["prefix"], facts.prefix):
        return path
    return facts.purelib + (match["rest"] or "")


def _pybind11_dir(old: str, facts: PythonFacts) -> str:
    # A pybind11 that lies outside of any Python's packages ($PREFIX/share/cmake) serves them all, if it is still there.
    if _PACKAGES.match(old) is None and (os.path.isdir(old) or not old or old.endswith("NOTFOUND")):
        return old
    if not facts.pybind11_cmake:
        raise EntriesError(f"{facts.executable} has no pybind11, with which the tree was configured ({old})")
    return facts.pybind11_cmake


def _abi_flags(soabi: str) -> str:
    # "cpython-313t-x86_64-linux-gnu" -> "t"
    parts = soabi.split("-")
    return parts[1].lstrip("0123456789") if len(parts) > 1 else ""


def _same(one: str, other: str) -> bool:
    return bool(other) and os.path.realpath(one) == os.path.realpath(other)
