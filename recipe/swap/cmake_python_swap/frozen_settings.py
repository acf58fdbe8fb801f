"""What must not change between two Pythons, or all of libtorch is compiled again: compilers, flags, prefix, place.

Standard library only, CPython >= 3.10. Compared are the environment a build script runs in and the tree's cache. For
CMake's own sake most of it could differ (it reads CFLAGS at the first configure only); but an environment that differs
means that the caller expects other objects than there are, and scikit-build-core would apply it.
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
# Entries every command line is made of.
FROZEN = re.compile(
    rf"^CMAKE_((?:{_LANGUAGES})_(FLAGS(_\w+)?|COMPILER|COMPILER_LAUNCHER|COMPILER_ARG1)"
    r"|(SHARED|MODULE|EXE|STATIC)_LINKER_FLAGS(_\w+)?|BUILD_TYPE|INSTALL_PREFIX|SYSROOT|OSX_\w+)$"
)
_FLAGS = {
    "CFLAGS": "CMAKE_C_FLAGS",
    "CXXFLAGS": "CMAKE_CXX_FLAGS",
    "CUDAFLAGS": "CMAKE_CUDA_FLAGS",
    "LDFLAGS": "CMAKE_SHARED_LINKER_FLAGS",
}
_COMPILERS = {"CC": "CMAKE_C_COMPILER", "CXX": "CMAKE_CXX_COMPILER", "CUDACXX": "CMAKE_CUDA_COMPILER"}


def conflicts(cache: CMakeCache, environment: Mapping[str, str], build_dir: Path) -> Iterator[str]:
    """Sentences about everything frozen in which the environment, or the tree's place, disagrees with the cache.

    Variables that are not set, and entries that do not exist (no CUDA), disagree with nothing.
    """
    yield from _moved(cache, build_dir)
    for name, value in environment.items():
        if not value:
            continue
        if name in _FLAGS:
            entry = _FLAGS[name]
            # A CMAKE_<LANG>_FLAGS in the environment takes the place of CFLAGS, which CMake then does not look at.
            if entry in cache and not environment.get(entry) and not _contains(cache.get(entry), value):
                yield _flags_differ(f"${name}", value, entry, cache.get(entry))
        elif name in _COMPILERS:
            entry = _COMPILERS[name]
            if entry in cache and not environment.get(entry) and not _same_program(value, cache.get(entry)):
                yield f"${name} is {value}, but the tree was configured with {entry}={cache.get(entry)}"
        elif FROZEN.match(name) and name in cache:
            if name.endswith("_COMPILER"):
                if not _same_program(value, cache.get(name)):
                    yield f"${name} is {value}, but the tree was configured with {cache.get(name)}"
            elif _words(value) != _words(cache.get(name)):
                yield _flags_differ(f"${name}", value, name, cache.get(name))


def changed(before: CMakeCache, after: CMakeCache) -> Iterator[str]:
    """Sentences about frozen entries that a run of CMake has changed."""
    for entry in after:
        if entry.name == "CMAKE_INSTALL_PREFIX" and "SKBUILD" in after:
            continue  # scikit-build-core installs into another temporary folder each time
        if FROZEN.match(entry.name) and before.get(entry.name) != entry.value:
            yield _flags_differ("CMake now has it as", entry.value, entry.name, before.get(entry.name))


def difference(old: str, new: str) -> str:
    """Say which words of a command line went and which came: ``-O2 became -O3``, ``+ -g``; "" for none."""
    before, after = _words(old), _words(new)
    gone = [word for word in before if word not in after]
    come = [word for word in after if word not in before]
    if gone and come:
        return f"{_some(gone)} became {_some(come)}"
    if gone or come:
        return f"without {_some(gone)}" if gone else f"with {_some(come)}"
    return "" if before == after else "its words are in another order"


def _moved(cache: CMakeCache, build_dir: Path) -> Iterator[str]:
    place = cache.get("CMAKE_CACHEFILE_DIR")
    if place and os.path.realpath(place) != os.path.realpath(build_dir):
        yield f"the tree was configured in {place} and is now in {build_dir}: every command line would change"
    source = cache.get("CMAKE_HOME_DIRECTORY")
    if source and not os.path.isdir(source):
        yield f"the sources the tree was configured from are gone: {source}"


def _flags_differ(what: str, value: str, entry: str, cached: str) -> str:
    return (
        f"{what} {value!r}, but the tree was configured with {entry}={cached!r}: {difference(cached, value)}"
    )


def _contains(cached: str, wanted: str) -> bool:
    # CMake's initial value is $CFLAGS and what its platform files add before or after.
    have, want = _words(cached), _words(wanted)
    return any(have[start : start + len(want)] == want for start in range(len(have) - len(want) + 1))


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
    return " ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")
