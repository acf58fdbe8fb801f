"""Which of NVIDIA's libraries in an environment nothing loads.

That a library is named nowhere proves nothing: TensorFlow's ``DsoLoader`` and cuda-pathfinder put names together as
they run, and Cython packs strings. So only those go that are known to be for programs that link them, which Python
environments have none of. They stay where something does name them: in DT_NEEDED, in a library's strings, cut off
before the version (libcudnn.so.9 holds ``libcudnn_adv.so``), or in a Python file. Looked for in vain in torch 2.13.0,
TensorFlow 2.21.0, JAX 0.12.0, CuPy 14.2.0, onnxruntime-gpu 1.31.1 and nvmath-python 1.0.0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache

from cuda_code.elf_file import ElfFile, NotElf, opened
from gpu_tools.slim.listing import Contents, ListedFile

_LIBRARY = re.compile(
    r"lib(cu(blas|dart|dnn|dss|fft|file|inj64|pti|rand|solver|sparse|tensor)|nv(blas|fatbin|fftw|JitLink|jpeg|perf|ptx"
    r"|rtc|shmem|ToolsExt|tx3)|npp|nccl|accinj64|checkpoint\b|pcsamplingutil).*\.so(\.|$)"
)
_OWNER = re.compile(
    r"nvidia-(?!ml-py|modelopt|dali).*|cuda-(?!python$|bindings$|core$|pathfinder$).*|cudnn|nccl|cutensor(-cu\d+)?"
    r"|lib(cu(blas|dnn|dss|fft|file|rand|solver|sparse|tensor)|nv(fatbin|jitlink|jpeg|ptxcompiler|rtc|vm)|npp).*"
)
#: cuSOLVER for several GPUs in one call, replacements for a program's BLAS and FFTW, a second build of NVRTC, and NVTX
#: for languages that cannot read its C headers.
_UNUSED = frozenset(
    {"libcusolverMg", "libnvblas", "libcufftw", "libnvrtc.alt", "libnvrtc-builtins.alt", "libnvtx3interop"}
)
#: What CUPTI opens to read performance counters.
_MEASURING = frozenset({"libnvperf_host", "libnvperf_target", "libcheckpoint", "libpcsamplingutil"})
_PROFILER = "libcupti"
#: A catalogue of all of them.
_CATALOGUE = "cuda-pathfinder"
_NAME = re.compile(rb"lib[A-Za-z0-9_+.-]{2,60}?\.so")
_STRINGS = (".rodata", ".lrodata", ".data")


def is_nvidia(owner: str) -> bool:
    """Say whether a package is one of NVIDIA's with libraries, not of its Python bindings."""
    return _OWNER.fullmatch(owner) is not None


def is_nvidia_library(path: str) -> bool:
    """Say by its name whether a library is one of NVIDIA's, whoever ships it."""
    return _LIBRARY.match(os.path.basename(path)) is not None


@lru_cache(maxsize=1)
def find_unused(contents: Contents) -> Mapping[str, bool]:
    """Return NVIDIA's libraries that nothing in an environment loads, and whether they are for CUPTI's measuring."""
    libraries = {
        path: entry
        for path, entry in contents.every.items()
        if entry.size and not entry.is_link and ".so" in os.path.basename(path)
    }
    known = _UNUSED | _MEASURING
    theirs = {
        path: _stem(path)
        for path in libraries
        if _stem(path) in known and is_nvidia(contents.owners.get(path, ""))
    }
    stems = frozenset(theirs.values())
    if not stems:
        return {}
    used = _named_in_python(contents, stems)
    names = {path: _names(entry) & stems for path, entry in libraries.items()}
    more = {path for path in libraries if path not in theirs}
    while more:  # what names one that is used is used as well
        named = {stem for path in more for stem in names[path]} - used
        used |= named
        more = {path for path, stem in theirs.items() if stem in named}
    return {path: stem in _MEASURING for path, stem in theirs.items() if stem not in used}


def _names(entry: ListedFile) -> frozenset[str]:
    """Return the libraries that one names, without endings; nothing for what is none."""
    with suppress(NotElf, ValueError), opened(entry.source) as library:
        opens = () if _stem(str(entry.source)) == _PROFILER else _strings(library)
        return frozenset([*map(_stem, library.needed()), *opens])
    return frozenset()


def _strings(library: ElfFile) -> Iterator[str]:
    for name, section in library.every:
        if name.startswith(_STRINGS) and section.size:
            for match in _NAME.finditer(library.data, section.offset, section.offset + section.size):
                yield _stem(match[0].decode())


def _named_in_python(contents: Contents, stems: Collection[str]) -> set[str]:
    named: set[str] = set()
    encoded = {stem: stem.encode() for stem in stems}
    for path, entry in contents.every.items():
        owner = contents.owners.get(path, "")
        if path.endswith(".py") and not entry.is_link and owner != _CATALOGUE and not is_nvidia(owner):
            content = entry.read()
            if b"lib" in content and b".so" in content:
                named |= {
                    stem for stem, text in encoded.items() if stem not in named and text + b".so" in content
                }
    return named


def _stem(path: str) -> str:
    return os.path.basename(path).partition(".so")[0]
