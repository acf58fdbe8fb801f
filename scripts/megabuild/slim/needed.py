"""Which of NVIDIA's libraries in an environment nothing loads.

A library is needed by what names it: DT_NEEDED, or a name to open at run time, which stands in its strings, cut off
before the version (libcudnn.so.9 holds ``libcudnn_adv.so``). Names in Python files count as well; cuda-pathfinder's,
which is a catalogue of all of them, do not. Measured with torch 2.13.0 and CUDA 13.0: nothing names cusolverMg,
nvrtc.alt, nvblas, cufftw; nvperf_host is named by CUPTI alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from elf_file import ElfFile, NotElf, opened
from megabuild.slim.listing import Contents, Entry

_LIBRARY = re.compile(
    r"lib(cu(blas|dart|dnn|dss|fft|file|inj64|pti|rand|solver|sparse|tensor)|nv(blas|fatbin|fftw|JitLink|jpeg|perf|ptx"
    r"|rtc|shmem|ToolsExt|tx3)|npp|nccl|accinj64|checkpoint\b|pcsamplingutil).*\.so(\.|$)"
)
_OWNER = re.compile(
    r"nvidia-(?!ml-py|modelopt|dali).*|cuda-(?!python$|bindings$|core$|pathfinder$).*|cudnn|nccl|cutensor"
    r"|lib(cu(blas|dnn|fft|file|rand|solver|sparse|dss|tensor)|nv(fatbin|jitlink|jpeg|ptxcompiler|rtc|vm)|npp).*"
)
#: Found by its name for measuring only.
_PROFILER = "libcupti"
_BESIDE_PROFILER = ("libnvperf", "libcheckpoint", "libpcsampling")
_CATALOGUE = "cuda-pathfinder"
_NAME = re.compile(rb"lib[A-Za-z0-9_+.-]{2,60}?\.so")
_STRINGS = (".rodata", ".lrodata", ".data")


@dataclass(frozen=True, kw_only=True)
class _Names:
    #: Names before ``.so``, with ``lib``: of the libraries that it cannot be loaded without, and those it may open.
    linked: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()


def is_nvidia(owner: str) -> bool:
    """Say whether a package is one of NVIDIA's with libraries, not of its Python bindings."""
    return _OWNER.fullmatch(owner) is not None


def is_nvidia_library(path: str) -> bool:
    """Say by its name whether a library is one of NVIDIA's, whoever ships it."""
    return _LIBRARY.match(os.path.basename(path)) is not None


@lru_cache(maxsize=1)
def not_needed(contents: Contents) -> Mapping[str, bool]:
    """Return NVIDIA's libraries that nothing else in an environment names.

    Returns
    -------
    By path: whether it is for measuring, that is, named by CUPTI alone or shipped with it.
    """
    owners = contents.owners
    libraries = {
        path: entry
        for path, entry in contents.every.items()
        if entry.size and not entry.is_link and ".so" in os.path.basename(path)
    }
    theirs: dict[str, list[str]] = {}
    for path in libraries:
        if is_nvidia(owners.get(path, "")) and is_nvidia_library(path):
            theirs.setdefault(_stem(path), []).append(path)
    if not theirs:
        return {}
    roots = _named_in_python(contents, frozenset(theirs))
    for path, entry in libraries.items():
        if _stem(path) not in theirs:
            one = _names(entry)
            roots |= one.linked | one.opened
    names = {stem: [_names(libraries[path]) for path in paths] for stem, paths in theirs.items()}
    working = _closure(roots, names, through_profiler=False)
    measuring = _closure(roots, names, through_profiler=True) - working
    if _PROFILER in theirs:
        measuring |= {stem for stem in theirs.keys() - working if stem.startswith(_BESIDE_PROFILER)}
    return {
        path: stem in measuring for stem, paths in theirs.items() if stem not in working for path in paths
    }


def _closure(roots: set[str], libraries: Mapping[str, list[_Names]], *, through_profiler: bool) -> set[str]:
    done: set[str] = set()
    to_do = [name for name in roots if name in libraries]
    while to_do:
        name = to_do.pop()
        if name in done:
            continue
        done.add(name)
        for one in libraries[name]:
            names = one.linked | one.opened if through_profiler or name != _PROFILER else one.linked
            to_do += [further for further in names if further in libraries]
    return done


def _names(entry: Entry) -> _Names:
    """Return what a library names; nothing for what is none."""
    with suppress(NotElf, ValueError), opened(entry.source) as library:
        return _Names(linked=frozenset(map(_stem, library.needed())), opened=frozenset(_strings(library)))
    return _Names()


def _strings(library: ElfFile) -> Iterator[str]:
    for name, section in library.every:
        if name.startswith(_STRINGS) and section.size:
            for found in _NAME.finditer(library.data, section.offset, section.offset + section.size):
                yield _stem(found[0].decode())


def _named_in_python(contents: Contents, stems: frozenset[str]) -> set[str]:
    found: set[str] = set()
    encoded = {stem: stem.encode() for stem in stems}
    for path, entry in contents.every.items():
        owner = contents.owners.get(path, "")
        if path.endswith(".py") and not entry.is_link and owner != _CATALOGUE and not is_nvidia(owner):
            content = entry.source.read_bytes()
            if b"lib" in content and b".so" in content:
                found |= {
                    stem for stem, text in encoded.items() if stem not in found and text + b".so" in content
                }
    return found


def _stem(path: str) -> str:
    return os.path.basename(path).partition(".so")[0]
