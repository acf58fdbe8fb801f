"""Finds the files that a step of a slimming could remove: one finder for each step, named in :data:`steps.STEPS`.

Packages have data of any form whose name ends like a library's or a header's. A finder therefore also checks the
folder, the package, or the file's first bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from cuda_code.cuda_archs import number
from gpu_tools.contents import Contents
from gpu_tools.file_lists import source_of
from gpu_tools.sizes.inside import classify_path
from gpu_tools.sizes.tree import Kind
from gpu_tools.slim.features import is_nvidia
from gpu_tools.slim.users import find_unused_libraries
from gpu_tools.subject_kind import SubjectKind

_TORCH = frozenset({"torch", "pytorch", "libtorch"})
_TRITON = frozenset({"triton", "pytorch-triton"})
_TRITON_TOOLS = ("/bin/cuobjdump", "/bin/nvdisasm", "/libproton.so")
_CUPTI = "/nvidia/lib/cupti/"
#: Triton's assembler for GPUs before :data:`_BLACKWELL`, and the one for later GPUs.
_PTXAS = "ptxas"
_PTXAS_BLACKWELL = "ptxas-blackwell"
_BLACKWELL = 100
#: First bytes of an archive of objects.
_ARCHIVE = b"!<"


@dataclass(frozen=True, kw_only=True, eq=False)
class Survey:
    """The data that finders share; each is computed once."""

    contents: Contents
    gpus: tuple[str, ...]  #: GPUs to keep code for (``sm_120``); empty: all.

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """Kinds of the packages' files, by path."""
        return {path: classify_path(path) for path in self.contents.owners}

    @cached_property
    def unused_libraries(self) -> Mapping[str, bool]:
        """The unused NVIDIA libraries, and whether CUPTI opens them for measuring.

        Empty for a wheel or conda package: users of its libraries may be in other packages.
        """
        if self.contents.kind is not SubjectKind.ENVIRONMENT:
            return {}
        return find_unused_libraries(self.contents)


#: Yields the paths that a step could remove; some may be in other steps, too.
Finder = Callable[[Survey], Iterator[str]]


def by_path(pattern: str) -> Finder:
    """Return a finder of the files whose whole path matches ``pattern``, and of their byte code."""
    wanted = re.compile(pattern)

    def find_matching(survey: Survey) -> Iterator[str]:
        for path in survey.contents.owners:
            if wanted.fullmatch(source_of(path) or path):
                yield path

    return find_matching


def find_nothing(survey: Survey) -> Iterator[str]:
    """Yield nothing: the step shrinks libraries."""
    yield from ()


def find_triton(survey: Survey) -> Iterator[str]:
    """Yield the files of Triton's package, except its metadata."""
    for path, owner in survey.contents.owners.items():
        if owner in _TRITON and "/triton/" in f"/{path}" and ".dist-info/" not in path:
            yield path


def find_triton_profiler(survey: Survey) -> Iterator[str]:
    """Yield the files of Triton that only its profiler needs."""
    for path in find_triton(survey):
        if _CUPTI in path or path.endswith(_TRITON_TOOLS):
            yield path


def find_other_assembler(survey: Survey) -> Iterator[str]:
    """Yield Triton's assembler that none of the GPUs need, if Triton has both."""
    needs_blackwell = {number(gpu) >= _BLACKWELL for gpu in survey.gpus}
    if len(needs_blackwell) != 1:
        return
    assemblers: dict[str, list[str]] = {_PTXAS: [], _PTXAS_BLACKWELL: []}
    for path in find_triton(survey):
        name = os.path.basename(path)
        if name in assemblers:
            assemblers[name].append(path)
    if all(assemblers.values()):
        unneeded = _PTXAS if True in needs_blackwell else _PTXAS_BLACKWELL
        yield from assemblers[unneeded]


def find_unused(survey: Survey) -> Iterator[str]:
    """Yield the NVIDIA libraries that nothing uses."""
    for path, measures in survey.unused_libraries.items():
        if not measures:
            yield path


def find_measuring(survey: Survey) -> Iterator[str]:
    """Yield the NVIDIA libraries that only CUPTI uses, to read performance counters."""
    for path, measures in survey.unused_libraries.items():
        if measures:
            yield path


def find_static_libraries(survey: Survey) -> Iterator[str]:
    """Yield the archives of objects; other files may have the same suffix, e.g. circuit models."""
    for path, kind in survey.kinds.items():
        if kind is Kind.STATIC and survey.contents.begins_with(path, _ARCHIVE):
            yield path


def find_torch_headers(survey: Survey) -> Iterator[str]:
    """Yield torch's headers."""
    for path, owner in survey.contents.owners.items():
        if owner in _TORCH and survey.kinds[path] is Kind.HEADERS:
            yield path


def find_nvidia_headers(survey: Survey) -> Iterator[str]:
    """Yield the headers of NVIDIA's packages."""
    for path, owner in survey.contents.owners.items():
        if survey.kinds[path] is Kind.HEADERS and is_nvidia(owner):
            yield path


def find_byte_code(survey: Survey) -> Iterator[str]:
    """Yield an environment's byte code whose source exists."""
    if survey.contents.kind is not SubjectKind.ENVIRONMENT:
        return
    for path in survey.contents.owners:
        if source_of(path) in survey.contents.every:
            yield path
