"""Compare settings that must not change between two Pythons: compilers, flags, prefix, and the tree's folder.

If one changes, all of libtorch is recompiled. Compared are the build script's environment and the tree's cache. CMake
reads CFLAGS only when it configures first. But a different environment means that the caller expects other objects, and
scikit-build-core would apply it. Standard library only, CPython >= 3.10.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from .cmake_cache import CMakeCache

_LANGUAGES = "C|CXX|CUDA|HIP|OBJC|OBJCXX|ASM"
# Entries that are part of every command line.
FROZEN = re.compile(
    rf"^CMAKE_((?:{_LANGUAGES})_(FLAGS(_\w+)?|COMPILER|COMPILER_LAUNCHER|COMPILER_ARG1)"
    r"|(SHARED|MODULE|EXE|STATIC)_LINKER_FLAGS(_\w+)?|BUILD_TYPE|INSTALL_PREFIX|SYSROOT|OSX_\w+)$"
)
_INSTALL_PREFIX = "CMAKE_INSTALL_PREFIX"
_FLAGS = {
    "CFLAGS": "CMAKE_C_FLAGS",
    "CXXFLAGS": "CMAKE_CXX_FLAGS",
    "CUDAFLAGS": "CMAKE_CUDA_FLAGS",
    "LDFLAGS": "CMAKE_SHARED_LINKER_FLAGS",
}
_COMPILERS = {"CC": "CMAKE_C_COMPILER", "CXX": "CMAKE_CXX_COMPILER", "CUDACXX": "CMAKE_CUDA_COMPILER"}


def conflicts(cache: CMakeCache, environment: Mapping[str, str], build_dir: Path) -> Iterator[str]:
    """Yield a sentence for each frozen setting in which the environment or the tree's folder contradicts the cache.

    Unset variables, and entries that do not exist (no CUDA), contradict nothing.
    """
    yield from _moved(cache, build_dir)
    for name, value in environment.items():
        if not value:
            continue
        # If the environment has CMAKE_<LANG>_FLAGS, CMake ignores CFLAGS.
        if entry := _usual_entry(name, cache, environment):
            yield from _usual_conflict(name, value, entry, cache.get(entry))
        elif FROZEN.match(name) and name in cache:
            yield from _direct_conflict(name, value, cache.get(name))


def _usual_entry(name: str, cache: CMakeCache, environment: Mapping[str, str]) -> str:
    """Return the entry that a variable such as CFLAGS or CC sets, or an empty string."""
    entry = _FLAGS.get(name) or _COMPILERS.get(name, "")
    if entry not in cache or environment.get(entry):
        return ""
    return entry


def _usual_conflict(name: str, value: str, entry: str, cached: str) -> Iterator[str]:
    """Compare a variable such as CFLAGS or CC with the entry that it sets."""
    if name in _FLAGS:
        if not _contains(cached, value):
            yield _flags_differ(f"${name} is", value, entry, cached)
    elif not _same_program(value, cached):
        yield f"${name} is {value}, but the tree was configured with {entry}={cached}"


def _direct_conflict(name: str, value: str, cached: str) -> Iterator[str]:
    """Compare a variable such as CMAKE_C_FLAGS with the entry of its name."""
    if name.endswith("_COMPILER"):
        if not _same_program(value, cached):
            yield f"${name} is {value}, but the tree was configured with {cached}"
    elif _words(value) != _words(cached):
        yield _flags_differ(f"${name} is", value, name, cached)


def changed(before: CMakeCache, after: CMakeCache) -> Iterator[str]:
    """Yield a sentence for each frozen entry that a run of CMake has changed."""
    for entry in after:
        if entry.name == _INSTALL_PREFIX and "SKBUILD" in after:
            continue  # scikit-build-core installs into another temporary folder each time
        if FROZEN.match(entry.name) and before.get(entry.name) != entry.value:
            yield _flags_differ(
                f"CMake has set {entry.name} to", entry.value, entry.name, before.get(entry.name)
            )


def difference(old: str, new: str) -> str:
    """Describe the changed words of a command line: ``-O2 became -O3``, ``with -g``; "" if none changed."""
    before = _words(old)
    after = _words(new)
    removed = [word for word in before if word not in after]
    added = [word for word in after if word not in before]
    if removed and added:
        return f"{_some(removed)} became {_some(added)}"
    if removed:
        return f"without {_some(removed)}"
    if added:
        return f"with {_some(added)}"
    if before != after:
        return "its words are in another order"
    return ""


def _moved(cache: CMakeCache, build_dir: Path) -> Iterator[str]:
    folder = cache.get("CMAKE_CACHEFILE_DIR")
    if folder and os.path.realpath(folder) != os.path.realpath(build_dir):
        yield f"the tree was configured in {folder} and is now in {build_dir}: every command line would change"
    source = cache.get("CMAKE_HOME_DIRECTORY")
    if source and not os.path.isdir(source):
        yield f"{source}: the tree's sources are missing"


def _flags_differ(what: str, value: str, entry: str, cached: str) -> str:
    change = difference(cached, value)
    return f"{what} {value!r}, but the tree was configured with {entry}={cached!r}: {change}"


def _contains(cached: str, wanted: str) -> bool:
    # CMake's initial value is $CFLAGS, with additions of its platform files before or after it.
    have = _words(cached)
    want = _words(wanted)
    starts = range(len(have) - len(want) + 1)
    return any(have[start : start + len(want)] == want for start in starts)


def _same_program(wanted: str, cached: str) -> bool:
    words = _words(wanted) or [wanted]
    found = shutil.which(words[0]) or words[0]
    return found == cached or os.path.realpath(found) == os.path.realpath(cached)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # unbalanced quotes
        return text.split()


def _some(words: list[str]) -> str:
    shown = " ".join(words[:4])
    if len(words) > 4:
        shown += f" and {len(words) - 4} more"
    return shown
