"""What one built library says of itself: device code, links, Python and the torch headers it was compiled with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cuda_code import cuda_archs
from cuda_code.elf_file import ElfFile, opened
from cuda_code.torch_abi import c_symbols, cpp_symbols

#: what the extensions answer on the GPU when they were compiled without CUDA
NOT_COMPILED = b"Not compiled with CUDA support"
_SUFFIX = re.compile(r"\.cpython-(\d)(\d+)(t?)(?:-[^.]*)?\.so$")
# Assertions in torch's headers carry the header's path and line into what includes them, also into stripped libraries.
_HEADER_PYTHON = re.compile(rb"/python(\d\.\d+t?)/(?:site|dist)-packages/torch/include/")
_ASSERTION = re.compile(
    rb'INTERNAL ASSERT FAILED at "[^"\0]*?/include/((?:torch/csrc/|c10/|ATen/)[^"\0]+)":(\d+)'
)
_RUNTIME = re.compile(r"libcudart\.so\.(\d+)")
_PYTHON_LIBRARY = re.compile(r"libpython(\d\.\d+t?)")
_CUDA_LIBRARIES = ("libcudart.so", "libc10_cuda.so", "libtorch_cuda.so")
#: Accelerators that are not judged here, by what a library for them links to.
_OTHERS = (
    (re.compile(r"lib(?:amdhip64|hiprtc|torch_hip|c10_hip|rocblas|hipblas|MIOpen)\b"), "ROCm"),
    (re.compile(r"lib(?:sycl|ze_loader|torch_xpu|c10_xpu)\b"), "XPU"),
    (re.compile(r"lib(?:musart|musa|torch_musa|mublas)\b"), "MUSA"),
    (re.compile(r"lib(?:ascendcl|torch_npu)\b"), "NPU"),
)
_NAMED_LIBRARY = re.compile(r".*\.so(?:\.\d+)*")
_LINKER_SCRIPT = re.compile(rb"(?:\s|/\*.*?\*/)*(?:OUTPUT_FORMAT|INPUT|GROUP)\s*\(", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class LibraryFacts:
    """What can be told from a library alone."""

    #: Its path in the package or environment.
    path: str
    needed: tuple[str, ...]  #: What it links to.
    #: Device code, per translation unit.
    units: tuple[cuda_archs.Unit, ...]
    #: Major version of the CUDA runtime it links to, or None.
    cuda_runtime: int | None
    #: It holds the message "Not compiled with CUDA support".
    says_not_compiled: bool
    #: Python versions that it names, and where: (version, evidence); ``abi3`` for the stable ABI.
    pythons: tuple[tuple[str, str], ...]
    #: Assertions of torch's headers in it: (header, line). They differ from one torch to another.
    assertions: frozenset[tuple[str, int]]
    #: Everything that other libraries must provide.
    undefined: frozenset[str]
    machine: str = ""  #: The processor: ``x86_64``.
    #: Another accelerator than CUDA that it is for, and what shows it: ``("ROCm", "libamdhip64.so.6")``.
    other: tuple[str, str] | None = None
    #: It has room for device code, in which there are zeros.
    blank: bool = False

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
        """Whether it links to CUDA, or to the part of torch that does."""
        return any(name.startswith(_CUDA_LIBRARIES) for name in self.needed)

    @property
    def stable_abi(self) -> bool:
        """Whether it uses torch, and nothing of torch's but the stable C interface."""
        return bool(c_symbols(self.undefined)) and not cpp_symbols(self.undefined)


def read(file: Path, path: str) -> LibraryFacts | None:
    """Read a library; None for a file that is none and not named like one, and for a linker script.

    Raises NotElf: It is damaged, or something else under a library's name.
    Raises ValueError: Its device code is of a form not known here.
    """
    with file.open("rb") as stream:
        head = stream.read(4096)
    if not head.startswith(b"\x7fELF") and (
        not _NAMED_LIBRARY.fullmatch(file.name) or _LINKER_SCRIPT.match(head)
    ):
        return None
    with opened(file) as library:
        return _facts(library, path)


def _facts(library: ElfFile, path: str) -> LibraryFacts:
    constants = library.content(".rodata")
    needed, undefined = library.needed(), library.undefined()
    runtime = next((found for name in needed if (found := _RUNTIME.match(name))), None)
    assertions = ((header.decode(), int(line)) for header, line in _ASSERTION.findall(constants))
    units = cuda_archs.units(library)
    return LibraryFacts(
        path=path,
        needed=needed,
        units=units,
        cuda_runtime=int(runtime[1]) if runtime else None,
        says_not_compiled=NOT_COMPILED in constants,
        pythons=_pythons(path, needed, constants),
        assertions=frozenset(assertions),
        undefined=undefined,
        machine=library.machine,
        other=_other_accelerator(library, needed),
        blank=not units and bool(library.content(cuda_archs.SECTIONS[0])),
    )


def _other_accelerator(library: ElfFile, needed: tuple[str, ...]) -> tuple[str, str] | None:
    linked = ((name, file) for file in needed for pattern, name in _OTHERS if pattern.match(file))
    return next(linked, ("ROCm", ".hip_fatbin") if ".hip_fatbin" in library.sections else None)


def _pythons(path: str, needed: tuple[str, ...], constants: bytes) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    name = path.rpartition("/")[2]
    if name.endswith(".abi3.so"):
        found.append(("abi3", "its file name"))
    elif suffix := _SUFFIX.search(name):
        found.append((f"{suffix[1]}.{suffix[2]}{suffix[3]}", "its file name"))
    found += [(linked[1], library) for library in needed if (linked := _PYTHON_LIBRARY.match(library))]
    compiled = sorted({version.decode() for version in _HEADER_PYTHON.findall(constants)})
    found += [(version, "the torch headers it was compiled with") for version in compiled]
    return tuple(found)
