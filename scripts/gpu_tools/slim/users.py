"""Finds the packages that need Triton or a compiler, and NVIDIA libraries that nothing uses.

A successful import does not prove that a package works without Triton: flash-linear-attention loads its modules
lazily, and 196 of them begin with ``import triton``.

A library that is named nowhere may still be used: TensorFlow's ``DsoLoader`` and cuda-pathfinder compose names at run
time, and Cython packs strings. So only libraries made for programs that link them are candidates. They are kept if they
are named in DT_NEEDED, in a library's strings (libcudnn.so.9 has ``libcudnn_adv.so``), or in a Python file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from cuda_code.elf_file import NotElf, opened
from gpu_tools.contents import Contents
from gpu_tools.sizes.inside import classify_path
from gpu_tools.sizes.tree import Kind
from gpu_tools.slim.features import is_known, is_nvidia

_TESTS = frozenset({"test", "tests"})
#: Import statements with their indentation: an indented import is in a function or a ``try``, so it is optional.
_TRITON = re.compile(rb"^([ \t]*)(?:from[ \t]+|import[ \t]+(?:[\w., ]*,[ \t]*)?)triton\b", re.MULTILINE)
_COMPILER = re.compile(
    rb"^([ \t]*)(?:from[ \t]+torch\.utils[ \t]+import\b[^\n]*\b|(?:from|import)[ \t]+torch\.utils\.)cpp_extension\b",
    re.MULTILINE,
)
_TRITONS_OWNERS = frozenset({"triton", "pytorch-triton", "torch", "pytorch", "libtorch"})
_COMPILERS_OWNERS = re.compile(r"(?:nvidia-)?cuda-(?:nvcc|cccl|crt)(?:-.*)?")
#: cuSOLVER for several GPUs in one call, drop-in replacements for BLAS and FFTW, a second build of NVRTC, and NVTX for
#: languages that cannot read its C headers.
_UNUSED = frozenset(
    {"libcusolverMg", "libnvblas", "libcufftw", "libnvrtc.alt", "libnvrtc-builtins.alt", "libnvtx3interop"}
)
#: Libraries that CUPTI opens to read performance counters.
_MEASURING = frozenset({"libnvperf_host", "libnvperf_target", "libcheckpoint", "libpcsamplingutil"})
_PROFILER = "libcupti"
#: This package names all NVIDIA libraries without loading them.
_CATALOGUE = "cuda-pathfinder"
_NAME = re.compile(rb"(lib[A-Za-z0-9_+.-]{2,60}?)\.so")
_STRINGS = (".rodata", ".lrodata", ".data")


def find_triton_users(contents: Contents) -> dict[str, bool]:
    """Return the packages that use Triton, except PyTorch, and whether they are useless without it."""
    requirers = (item.owner for item in contents.lists if item.required_names & {"triton", "pytorch-triton"})
    needing = dict.fromkeys((owner for owner in requirers if owner not in _TRITONS_OWNERS), True)
    return {**_find_importers(contents, _TRITON), **needing}


def find_compiler_users(contents: Contents) -> dict[str, bool]:
    """Return the packages that compile at run time or require a compiler, and whether they are useless without.

    NVIDIA packages that have both headers and Python modules count (cuda-cccl, nvidia-cutlass).
    """
    needing = {
        item.owner
        for item in contents.lists
        if any(map(_COMPILERS_OWNERS.fullmatch, item.required_names))
        and not (is_nvidia(item.owner) or is_known(item.owner))
    }
    owners = {path: owner for path, owner in contents.owners.items() if is_nvidia(owner)}
    modules = {owner for path, owner in owners.items() if path.endswith(".py") and contents.size_of(path)}
    headers = {owner for path, owner in owners.items() if classify_path(path) == Kind.HEADERS}
    return {**_find_importers(contents, _COMPILER), **dict.fromkeys(needing | (modules & headers), True)}


def _find_importers(contents: Contents, imports: re.Pattern[bytes]) -> Mapping[str, bool]:
    """Return the packages whose files match ``imports``, and whether one import is at module level.

    A file of no package counts by its path.
    """
    importers: dict[str, bool] = {}
    for path, owner, content in _read_python(contents):
        if owner not in _TRITONS_OWNERS and _TESTS.isdisjoint(path.split("/")):
            for match in imports.finditer(content):
                importers[owner or path] = importers.get(owner or path, False) or not match[1]
    return importers


def _read_python(contents: Contents) -> Iterator[tuple[str, str, bytes]]:
    """Yield each Python file's path, package (or an empty string) and content."""
    for path in contents.every:
        if path.endswith(".py") and not contents.is_link(path):
            yield path, contents.owners.get(path, ""), contents.read(path)


def find_unused_libraries(contents: Contents) -> Mapping[str, bool]:
    """Return the unused NVIDIA libraries of an environment, and whether CUPTI opens them for measuring."""
    libraries = [
        path for path in contents.every if ".so" in os.path.basename(path) and contents.size_of(path)
    ]
    candidates = {
        path: _stem(path)
        for path in libraries
        if _stem(path) in _UNUSED | _MEASURING and is_nvidia(contents.owners.get(path, ""))
    }
    stems = frozenset(candidates.values())
    if not stems:
        return {}
    used: set[str] = set()
    for _, owner, content in _read_python(contents):
        if owner != _CATALOGUE and not is_nvidia(owner) and b".so" in content:
            used |= {stem for stem in stems - used if f"{stem}.so".encode() in content}
    names = {path: _read_names(contents, path) & stems for path in libraries}
    loading = set(libraries) - candidates.keys()
    while loading:  # libraries named by a used library are used too
        named = {stem for path in loading for stem in names[path]} - used
        used |= named
        loading = {path for path, stem in candidates.items() if stem in named}
    return {path: stem in _MEASURING for path, stem in candidates.items() if stem not in used}


def _read_names(contents: Contents, path: str) -> set[str]:
    """Return the stems of the libraries that a library links to or names in its strings; empty if it is not ELF."""
    names: set[str] = set()
    with suppress(NotElf, ValueError), opened(contents.root / path) as library:
        names.update(map(_stem, library.needed()))
        for section_name, section in library.every:
            if section_name.startswith(_STRINGS) and _stem(path) != _PROFILER:
                strings = _NAME.finditer(library.data, section.offset, section.end)
                names |= {match[1].decode() for match in strings}
    return names


def _stem(path: str) -> str:
    return os.path.basename(path).partition(".so")[0]
