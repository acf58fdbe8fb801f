"""Reads the facts in one built library: device code, links, Python, and the torch headers it was compiled with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cuda_code import cuda_archs
from cuda_code.elf_file import MAGIC, ElfFile, opened, opened_file
from cuda_code.torch_abi import c_symbols, cpp_symbols

#: The extensions' error on a GPU if they were compiled without CUDA.
NOT_COMPILED = b"Not compiled with CUDA support"
_SUFFIX = re.compile(r"\.cpython-(\d)(\d+)(t?)(?:-[^.]*)?\.so$")
# Assertions in torch's headers put the header's path and line into each library that includes them, also if stripped.
_HEADER_PYTHON = re.compile(rb"/python(\d\.\d+t?)/(?:site|dist)-packages/torch/include/")
_ASSERTION = re.compile(
    rb'INTERNAL ASSERT FAILED at "[^"\0]*?/include/((?:torch/csrc/|c10/|ATen/)[^"\0]+)":(\d+)'
)
#: auditwheel puts a hash into the name of a library that it copies into a wheel: libcudart.faf08d9a.so.13.
_RUNTIME = re.compile(r"libcudart(?:[.-][0-9a-f]{8})?\.so\.(\d+)")
_PYTHON_LIBRARY = re.compile(r"libpython(\d\.\d+t?)")
STABLE_ABI = "abi3"
#: Evidence for a Python version: paths of headers in the library.
TORCH_HEADERS = "the torch headers it was compiled with"
_TORCH_CUDA = ("libc10_cuda.so", "libtorch_cuda.so")
#: Accelerators that verify does not support, by the libraries that their builds link to.
_OTHERS = (
    (re.compile(r"lib(?:amdhip64|hiprtc|torch_hip|c10_hip|rocblas|hipblas|MIOpen)\b"), "ROCm"),
    (re.compile(r"lib(?:sycl|ze_loader|torch_xpu|c10_xpu)\b"), "XPU"),
    (re.compile(r"lib(?:musart|musa|torch_musa|mublas)\b"), "MUSA"),
    (re.compile(r"lib(?:ascendcl|torch_npu)\b"), "NPU"),
)
HIP_FATBIN = ".hip_fatbin"
_NAMED_LIBRARY = re.compile(r".*\.so(?:\.\d+)*")
_LINKER_SCRIPT = re.compile(rb"(?:\s|/\*.*?\*/)*(?:OUTPUT_FORMAT|INPUT|GROUP)\s*\(", re.DOTALL)


class NamedPython(NamedTuple):
    """A Python version that a library names."""

    version: str  #: ``3.12``, or ``abi3`` for the stable ABI.
    evidence: str


class NamedAccelerator(NamedTuple):
    """An accelerator that a library names."""

    name: str  #: ``ROCm``.
    evidence: str  #: ``libamdhip64.so.6``.


@dataclass(frozen=True, kw_only=True)
class LibraryFacts:
    """The facts that a library shows without its metadata."""

    path: str  #: Path in the package or environment.
    needed: tuple[str, ...]  #: Libraries that it links to.
    units: tuple[cuda_archs.Fatbin, ...]  #: Device code per translation unit.
    cuda_runtime: int | None  #: Major version of the CUDA runtime it links to.
    says_not_compiled: bool  #: It contains the message "Not compiled with CUDA support".
    pythons: tuple[NamedPython, ...]  #: The Python versions it was built for.
    #: (header, line) of the torch assertions in it, which differ between torch versions.
    assertions: frozenset[tuple[str, int]]
    undefined: frozenset[str]  #: Symbols that other libraries must provide.
    machine: str = ""  #: The processor: ``x86_64``.
    other: NamedAccelerator | None = None  #: Its accelerator, if not CUDA.
    blank: bool = False  #: The section for device code has only zeros.

    @property
    def file_name(self) -> str:
        """``_scatter_cuda.so``."""
        return self.path.rpartition("/")[2]

    @property
    def archs(self) -> tuple[str, ...]:
        """Architectures with machine code, in any translation unit."""
        return cuda_archs.ordered(frozenset().union(*(unit.sm for unit in self.units)))

    @property
    def ptx(self) -> tuple[str, ...]:
        """Architectures with PTX, in any translation unit."""
        return cuda_archs.ordered(frozenset().union(*(unit.ptx for unit in self.units)))

    @property
    def links_cuda(self) -> bool:
        """Whether it links to CUDA's runtime, also a copy that auditwheel renamed, or to torch's CUDA libraries."""
        if self.cuda_runtime is not None:
            return True
        return any(name.startswith(_TORCH_CUDA) for name in self.needed)

    @property
    def uses_python(self) -> bool:
        """Whether it calls Python's C interface."""
        return any(name.startswith(("Py", "_Py")) for name in self.undefined)

    @property
    def stable_abi(self) -> bool:
        """Whether it uses torch only through its stable C interface."""
        return bool(c_symbols(self.undefined)) and not cpp_symbols(self.undefined)


def read(file: Path, path: str) -> LibraryFacts | None:
    """Read a library; None for a linker script, and for other files not named like a library.

    Raises NotElf: The library is damaged, or another kind of file has its name.
    Raises ValueError: Its device code has an unknown form.
    """
    with opened_file(file) as stream:
        head = stream.read(4096)
    if not head.startswith(MAGIC):
        is_named_library = _NAMED_LIBRARY.fullmatch(file.name)
        if not is_named_library or _LINKER_SCRIPT.match(head):
            return None
    with opened(file) as library:
        return _facts(library, path)


def _facts(library: ElfFile, path: str) -> LibraryFacts:
    constants = library.content(".rodata")
    needed = library.needed()
    units = cuda_archs.units(library)
    assertions = ((header.decode(), int(line)) for header, line in _ASSERTION.findall(constants))
    return LibraryFacts(
        path=path,
        needed=needed,
        units=units,
        cuda_runtime=_cuda_runtime(needed),
        says_not_compiled=NOT_COMPILED in constants,
        pythons=tuple(_pythons(path, needed, constants)),
        assertions=frozenset(assertions),
        undefined=library.undefined(),
        machine=library.machine,
        other=_other_accelerator(library, needed),
        blank=not units and bool(library.content(cuda_archs.SECTIONS[0])),
    )


def _cuda_runtime(needed: Iterable[str]) -> int | None:
    for name in needed:
        match = _RUNTIME.match(name)
        if match:
            return int(match[1])
    return None


def _other_accelerator(library: ElfFile, needed: Iterable[str]) -> NamedAccelerator | None:
    for file in needed:
        for pattern, name in _OTHERS:
            if pattern.match(file):
                return NamedAccelerator(name, file)
    if HIP_FATBIN in library.sections:
        return NamedAccelerator("ROCm", HIP_FATBIN)
    return None


def _pythons(path: str, needed: Iterable[str], constants: bytes) -> Iterator[NamedPython]:
    name = path.rpartition("/")[2]
    suffix = _SUFFIX.search(name)
    if name.endswith(".abi3.so"):
        yield NamedPython(STABLE_ABI, "its file name")
    elif suffix:
        yield NamedPython(f"{suffix[1]}.{suffix[2]}{suffix[3]}", "its file name")
    for library in needed:
        linked = _PYTHON_LIBRARY.match(library)
        if linked:
            yield NamedPython(linked[1], library)
    for version in sorted(set(_HEADER_PYTHON.findall(constants))):
        yield NamedPython(version.decode(), TORCH_HEADERS)
