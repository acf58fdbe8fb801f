"""Splits a file's bytes by kind: by its name, and for ELF libraries and programs by section and GPU code."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path, PurePosixPath

from cuda_code import cuda_archs
from cuda_code.cuda_archs import Fatbin
from cuda_code.elf_file import MAGIC, READABLE_MAGIC, ElfFile, NotElf, opened
from cuda_code.library_facts import HIP_FATBIN
from gpu_tools.sizes.tree import ContentPart, Kind, Parts

_SUFFIXES = {
    ".pyc": Kind.BYTE_CODE,
    ".pyo": Kind.BYTE_CODE,
    ".a": Kind.STATIC,
    ".lib": Kind.STATIC,
    ".h": Kind.HEADERS,
    ".hpp": Kind.HEADERS,
    ".hh": Kind.HEADERS,
    ".hxx": Kind.HEADERS,
    ".cuh": Kind.HEADERS,
    ".inl": Kind.HEADERS,
    ".cmake": Kind.HEADERS,
    ".py": Kind.PYTHON,
    ".pyi": Kind.PYTHON,
    ".pxd": Kind.PYTHON,
    ".md": Kind.DOCUMENTATION,
    ".rst": Kind.DOCUMENTATION,
    ".html": Kind.DOCUMENTATION,
    ".dll": Kind.OTHER_LIBRARIES,
    ".pyd": Kind.OTHER_LIBRARIES,
    ".dylib": Kind.OTHER_LIBRARIES,
    ".cubin": Kind.GPU_CODE,
    ".fatbin": Kind.GPU_CODE,
    ".ptx": Kind.PTX,
    ".bc": Kind.LTO_IR,
    ".ltoir": Kind.LTO_IR,
}
_FOLDERS = {
    "test": Kind.TESTS,
    "tests": Kind.TESTS,
    "include": Kind.HEADERS,
    "doc": Kind.DOCUMENTATION,
    "docs": Kind.DOCUMENTATION,
    "man": Kind.DOCUMENTATION,
    "conda-meta": Kind.METADATA,
}
#: Kinds by suffix that win over the folder: slimming removes such files in any folder.
_FIRST = (Kind.BYTE_CODE, Kind.STATIC)
_DEVICE_CODE = {
    cuda_archs.MACHINE_CODE: (Kind.GPU_CODE, "sm"),
    cuda_archs.PTX: (Kind.PTX, "compute"),
    cuda_archs.LTO_IR: (Kind.LTO_IR, "sm"),
}
_SYMBOL_TABLES = frozenset({".symtab", ".strtab", ".symtab_shndx"})
_DEBUG_SECTIONS = (".debug_", ".zdebug_", ".gnu_debug", ".gdb_index", ".stab")


def classify_path(path: str) -> Kind:
    """Return a file's kind from its path alone; ``Kind.OTHER`` if the path does not show it."""
    pure = PurePosixPath(path)
    by_suffix = _SUFFIXES.get(pure.suffix.lower(), Kind.OTHER)
    if by_suffix in _FIRST:
        return by_suffix
    folders = pure.parts[:-1]
    if any(folder.endswith((".dist-info", ".egg-info")) for folder in folders):
        return Kind.METADATA
    for folder in folders:
        if folder in _FOLDERS:
            return _FOLDERS[folder]
    return by_suffix


def read_parts(file: Path, path: str, size: int) -> Parts:
    """Return the bytes of a file by part; they add up to ``size``. The file is read if its path does not show its kind.

    Raises OSError: The file cannot be read.
    """
    if not size:
        return {}
    kind = classify_path(path)
    if kind is Kind.OTHER:
        with file.open("rb") as stream:
            start = stream.read(len(READABLE_MAGIC))
        if start == READABLE_MAGIC:
            return _read_elf(file, size)
        if start.startswith(MAGIC):  # 32-bit and big-endian ELF files are not parsed
            kind = Kind.OTHER_LIBRARIES
    return {ContentPart(kind): size}


def _read_elf(file: Path, size: int) -> Parts:
    try:
        with opened(file) as library:
            parts = _sections(library)
    except NotElf:  # truncated or damaged
        return {ContentPart(Kind.UNKNOWN): size}
    # ELF headers and other bytes outside of sections
    parts[ContentPart(Kind.UNKNOWN)] += size - sum(parts.values())
    return +parts


def _sections(library: ElfFile) -> Counter[ContentPart]:
    """Return bytes by part; no byte counts twice, even if a damaged table has overlapping sections."""
    fatbins = list(cuda_archs.anywhere(library.data))
    parts = _count_device_code(fatbins)
    fatbin_bytes = _FatbinBytes(fatbins)
    done = 0
    for name, section in sorted(library.every, key=lambda item: item[1].offset):
        start = max(done, section.offset)
        end = section.end
        if end > start:
            in_fatbins = fatbin_bytes.before(end) - fatbin_bytes.before(start)
            parts[classify_section(name)] += end - start - in_fatbins
            done = end
    return parts


def _count_device_code(fatbins: Sequence[Fatbin]) -> Counter[ContentPart]:
    """Return the bytes of fatbins by part."""
    parts: Counter[ContentPart] = Counter()
    for fatbin in fatbins:
        for member in fatbin.members:
            part = ContentPart(Kind.UNKNOWN)
            if member.kind in _DEVICE_CODE:
                kind, prefix = _DEVICE_CODE[member.kind]
                part = ContentPart(kind, f"{prefix}_{member.arch}")
            parts[part] += member.size
    return parts


class _FatbinBytes:
    """Counts the bytes that belong to fatbins."""

    def __init__(self, fatbins: Sequence[Fatbin]) -> None:
        self._fatbins = fatbins
        self._sums = [0, *accumulate(fatbin.end - fatbin.start for fatbin in fatbins)]

    def before(self, offset: int) -> int:
        """Count the bytes before an offset."""
        count = bisect_right(self._fatbins, offset, key=lambda fatbin: fatbin.start)
        if not count:
            return 0
        behind = max(0, self._fatbins[count - 1].end - offset)
        return self._sums[count] - behind


def classify_section(section: str) -> ContentPart:
    """Return the part that a section's bytes count as, by the section's name."""
    if section in _SYMBOL_TABLES:
        return ContentPart(Kind.SYMBOLS)
    if section.startswith(_DEBUG_SECTIONS):
        return ContentPart(Kind.DEBUG)
    if section in cuda_archs.SECTIONS:  # bytes between fatbins; fatbins are counted on their own
        return ContentPart(Kind.UNKNOWN)
    if section == HIP_FATBIN:
        return ContentPart(Kind.GPU_CODE, "AMD")
    return ContentPart(Kind.CPU_CODE)
