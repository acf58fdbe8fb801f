"""Splits a file's bytes by kind: by its name, and for ELF libraries and programs by section and GPU code."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import accumulate, chain
from pathlib import Path, PurePosixPath

from cuda_code import cuda_archs
from cuda_code.elf_file import ElfFile, NotElf, opened
from gpu_tools.sizes.tree import ContentPart, Kind, Parts

_MAGIC, _READABLE = b"\x7fELF", b"\x7fELF\x02\x01"
_SUFFIXES = {
    suffix: kind
    for kind, suffixes in (
        (Kind.BYTE_CODE, ".pyc .pyo"),
        (Kind.STATIC, ".a .lib"),
        (Kind.HEADERS, ".h .hpp .hh .hxx .cuh .inl .cmake"),
        (Kind.PYTHON, ".py .pyi .pxd"),
        (Kind.DOCUMENTATION, ".md .rst .html"),
        (Kind.OTHER_LIBRARIES, ".dll .pyd .dylib"),
        (Kind.GPU_CODE, ".cubin .fatbin"),
        (Kind.PTX, ".ptx"),
        (Kind.LTO_IR, ".bc .ltoir"),
    )
    for suffix in suffixes.split()
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
    suffix = _SUFFIXES.get(pure.suffix.lower(), Kind.OTHER)
    if suffix in _FIRST:
        return suffix
    if any(folder.endswith((".dist-info", ".egg-info")) for folder in pure.parts[:-1]):
        return Kind.METADATA
    return next((_FOLDERS[folder] for folder in pure.parts[:-1] if folder in _FOLDERS), suffix)


def read_parts(file: Path, path: str, size: int) -> Parts:
    """Return the bytes of a file by part; they add up to ``size``. The file is read if its path does not show its kind.

    Raises OSError: The file cannot be read.
    """
    kind = classify_path(path)
    if kind == Kind.OTHER and size:
        with file.open("rb") as stream:
            start = stream.read(len(_READABLE))
        if start == _READABLE:
            return _read_elf(file, size)
        # 32-bit and big-endian ELF files are not parsed
        kind = Kind.OTHER_LIBRARIES if start.startswith(_MAGIC) else Kind.OTHER
    return {ContentPart(kind): size} if size else {}


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
    parts: Counter[ContentPart] = Counter()
    fatbins = [*cuda_archs.anywhere(library.data)]
    for member in chain.from_iterable(fatbin.members for fatbin in fatbins):
        kind, prefix = _DEVICE_CODE.get(member.kind, (Kind.UNKNOWN, ""))
        parts[ContentPart(kind, f"{prefix}_{member.arch}" if prefix else "")] += member.size
    before = [0, *accumulate(fatbin.end - fatbin.start for fatbin in fatbins)]

    def in_fatbins(offset: int) -> int:
        """Count the bytes before an offset that belong to fatbins."""
        count = bisect_right(fatbins, offset, key=lambda fatbin: fatbin.start)
        return before[count] - (max(0, fatbins[count - 1].end - offset) if count else 0)

    done = 0
    for name, section in sorted(library.every, key=lambda item: item[1].offset):
        start, end = max(done, section.offset), section.end
        if end > start:
            parts[classify_section(name)] += end - start - (in_fatbins(end) - in_fatbins(start))
            done = end
    return parts


def classify_section(section: str) -> ContentPart:
    """Return the part that a section's bytes count as, by the section's name."""
    if section in _SYMBOL_TABLES:
        return ContentPart(Kind.SYMBOLS)
    if section.startswith(_DEBUG_SECTIONS):
        return ContentPart(Kind.DEBUG)
    if section in cuda_archs.SECTIONS:  # bytes between fatbins; fatbins are counted on their own
        return ContentPart(Kind.UNKNOWN)
    return ContentPart(Kind.GPU_CODE, "AMD") if section == ".hip_fatbin" else ContentPart(Kind.CPU_CODE)
