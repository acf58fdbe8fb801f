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
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

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
_TRITONS_NAMES = frozenset({"triton", "pytorch-triton"})
_TRITONS_OWNERS = _TRITONS_NAMES | {"torch", "pytorch", "libtorch"}
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
    users = _find_importers(contents, _TRITON)
    for item in contents.lists:
        if item.required_names & _TRITONS_NAMES and item.owner not in _TRITONS_OWNERS:
            users[item.owner] = True
    return users


def find_compiler_users(contents: Contents) -> dict[str, bool]:
    """Return the packages that compile at run time or require a compiler, and whether they are useless without.

    NVIDIA packages that have both headers and Python modules count (cuda-cccl, nvidia-cutlass).
    """
    users = _find_importers(contents, _COMPILER)
    for item in contents.lists:
        requires_compiler = any(map(_COMPILERS_OWNERS.fullmatch, item.required_names))
        if requires_compiler and not (is_nvidia(item.owner) or is_known(item.owner)):
            users[item.owner] = True
    with_modules: set[str] = set()
    with_headers: set[str] = set()
    for path, owner in contents.owners.items():
        if not is_nvidia(owner):
            continue
        if path.endswith(".py") and contents.size_of(path):
            with_modules.add(owner)
        if classify_path(path) is Kind.HEADERS:
            with_headers.add(owner)
    for owner in with_modules & with_headers:
        users[owner] = True
    return users


def _find_importers(contents: Contents, imports: re.Pattern[bytes]) -> dict[str, bool]:
    """Return the packages whose files match ``imports``, and whether one import is at module level.

    A file of no package counts by its path.
    """
    importers: dict[str, bool] = {}
    for file in _read_python(contents):
        if file.owner in _TRITONS_OWNERS or not _TESTS.isdisjoint(file.path.split("/")):
            continue
        user = file.owner or file.path
        for match in imports.finditer(file.content):
            is_at_module_level = not match[1]
            importers[user] = importers.get(user, False) or is_at_module_level
    return importers


@dataclass(frozen=True, kw_only=True)
class _PythonFile:
    path: str
    owner: str  #: Package, or an empty string.
    content: bytes


def _read_python(contents: Contents) -> Iterator[_PythonFile]:
    """Yield the Python files."""
    for path in contents.every:
        if path.endswith(".py") and not contents.is_link(path):
            owner = contents.owners.get(path, "")
            yield _PythonFile(path=path, owner=owner, content=contents.read(path))


def find_unused_libraries(contents: Contents) -> Mapping[str, bool]:
    """Return the unused NVIDIA libraries of an environment, and whether CUPTI opens them for measuring."""
    libraries: list[str] = []
    candidates: dict[str, str] = {}
    for path in contents.every:
        if ".so" in os.path.basename(path) and contents.size_of(path):
            libraries.append(path)
            stem = _stem(path)
            if stem in _UNUSED | _MEASURING and is_nvidia(contents.owners.get(path, "")):
                candidates[path] = stem
    if not candidates:
        return {}
    used = _find_in_python(contents, set(candidates.values()))
    used |= _find_named(contents, libraries, candidates, used)
    return {path: stem in _MEASURING for path, stem in candidates.items() if stem not in used}


def _find_named(
    contents: Contents, libraries: Iterable[str], candidates: Mapping[str, str], used: Collection[str]
) -> set[str]:
    """Return the candidates that other libraries, the ``used`` candidates or one another name."""
    wanted = set(candidates.values()).difference(used)
    named: set[str] = set()
    names = {path: _read_names(contents, path) for path in libraries}
    loading = {path for path in libraries if path not in candidates or candidates[path] in used}
    while loading:
        new: set[str] = set()
        for path in loading:
            new |= names[path] & wanted - named
        named |= new
        loading = {path for path, stem in candidates.items() if stem in new}
    return named


def _find_in_python(contents: Contents, stems: Collection[str]) -> set[str]:
    """Return the libraries that a Python file names, outside of NVIDIA's packages."""
    used: set[str] = set()
    for file in _read_python(contents):
        if file.owner == _CATALOGUE or is_nvidia(file.owner) or b".so" not in file.content:
            continue
        for stem in stems:
            if f"{stem}.so".encode() in file.content:
                used.add(stem)
    return used


def _read_names(contents: Contents, path: str) -> set[str]:
    """Return the stems of the libraries that a library links to or names in its strings; empty if it is not ELF."""
    names: set[str] = set()
    with suppress(NotElf, ValueError), opened(contents.root / path) as library:
        names.update(map(_stem, library.needed()))
        if _stem(path) == _PROFILER:
            return names
        for section_name, section in library.every:
            if section_name.startswith(_STRINGS):
                for match in _NAME.finditer(library.data, section.offset, section.end):
                    names.add(match[1].decode())
    return names


def _stem(path: str) -> str:
    return os.path.basename(path).partition(".so")[0]
