"""Splits a file's bytes by kind: by its name, and for ELF libraries and programs by section and GPU code."""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_right
from collections import Counter
from itertools import accumulate, chain
from pathlib import Path, PurePosixPath
from typing import IO

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
_BLOCK, _FILLINGS = 1 << 20, b"\0XZ"
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
    """Return the bytes of a file on disk by part; they add up to ``size``.

    Raises OSError: The file cannot be read.
    """
    kind = classify_path(path)
    if kind != Kind.OTHER or not size:
        return {ContentPart(kind): size} if size else {}
    with file.open("rb") as stream:
        start = stream.read(len(_READABLE))
    return _read_elf(file, size) if start == _READABLE else _judge_by_start(start, size)


def read_stream_parts(stream: IO[bytes], path: str, size: int) -> Parts:
    """Return the bytes of a file in an archive by part; a library is copied to a temporary file first.

    Raises Exception: Any error of the archive's reader for a damaged archive.
    """
    kind = classify_path(path)
    if kind != Kind.OTHER or not size:
        return {ContentPart(kind): size} if size else {}
    start = stream.read(len(_READABLE))
    if start != _READABLE:
        return _judge_by_start(start, size)
    with tempfile.NamedTemporaryFile(prefix="megabuild-sizes-") as copy:
        # guard against zip bombs: the claimed size may be false
        if size > shutil.disk_usage(os.path.dirname(copy.name)).free // 2:
            return {ContentPart(Kind.UNKNOWN): size}
        copy.write(start)
        shutil.copyfileobj(stream, copy, 1 << 20)
        copy.flush()
        return _read_elf(Path(copy.name), size)


def _judge_by_start(start: bytes, size: int) -> Parts:
    # 32-bit and big-endian ELF files are not parsed
    return {ContentPart(Kind.OTHER_LIBRARIES if start.startswith(_MAGIC) else Kind.OTHER): size}


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
            if in_fatbins(done) == in_fatbins(start):
                parts[ContentPart(Kind.PADDING)] += _filling(library, done, start)
            parts[classify_section(name)] += end - start - (in_fatbins(end) - in_fatbins(start))
            done = end
    return parts


def _filling(library: ElfFile, start: int, end: int) -> int:
    """Count the unused bytes between two sections: alignment, and space that patchelf fills with X or Z."""
    blocks = (library.data[at : min(at + _BLOCK, end)] for at in range(start, end, _BLOCK))
    return sum(len(block) - len(block.strip(_FILLINGS)) for block in blocks)


def classify_section(section: str) -> ContentPart:
    """Return the part that a section's bytes count as, by the section's name."""
    if section in _SYMBOL_TABLES:
        return ContentPart(Kind.SYMBOLS)
    if section.startswith(_DEBUG_SECTIONS):
        return ContentPart(Kind.DEBUG)
    if section in cuda_archs.SECTIONS:  # bytes between fatbins; fatbins are counted on their own
        return ContentPart(Kind.UNKNOWN)
    return ContentPart(Kind.GPU_CODE, "AMD") if section == ".hip_fatbin" else ContentPart(Kind.CPU_CODE)
