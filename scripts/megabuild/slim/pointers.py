"""Who knows where in a section something lies: the loader's notes (relocations) and the symbol tables."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping

from elf_file import ElfFile
from megabuild.slim.tables import DYNSYM, REL, RELA, RELR, SYMTAB, X86_64, Section, Tables

_WRAPPERS, _WRAPPER_MAGIC = ".nvFatBinSegment", struct.pack("<I", 0x466243B1)
_RELOCATION, _SYMBOL, _ADDRESS = struct.Struct("<QQq"), struct.Struct("<IBBHQQ"), struct.Struct("<Q")
_RELATIVE = {X86_64: 8, 183: 1027}  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
_POINTER_AT, _ADDEND_AT, _VALUE_AT = 8, 16, 8


def from_wrappers(library: ElfFile, tables: Tables, section: Section) -> Mapping[int, list[int]] | None:
    """Return which addresses in a section nvcc's wrappers know, and where in the file each stands.

    Parameters
    ----------
    library, tables:
        The library.
    section:
        One that nvcc makes.

    Returns
    -------
    Mapping[int, list[int]] | None
        None where something else that the loader knows points into the section, or may.
    """
    known: dict[int, list[int]] = defaultdict(list)
    inside = range(section.address, section.address + section.size)
    for table in tables.sections:
        content = library.data[table.offset : table.end]
        if table.kind in (REL, RELR):
            return None
        if table.kind == DYNSYM and any(symbol[4] in inside for symbol in _SYMBOL.iter_unpack(content)):
            return None
        if table.kind == RELA:
            for position, (place, info, target) in enumerate(_RELOCATION.iter_unpack(content)):
                if target not in inside:
                    continue
                pointer = _wrapper(library, tables, place)
                if info != _RELATIVE.get(tables.machine) or pointer is None:
                    return None
                known[target].append(table.offset + position * _RELOCATION.size + _ADDEND_AT)
                if library.data[pointer : pointer + _ADDRESS.size] == _ADDRESS.pack(target):
                    known[target].append(pointer)
    return known


def from_symbols(library: ElfFile, tables: Tables, section: int) -> Iterator[tuple[int, int]]:
    """Return where in the file the address of each symbol of a section stands, and that address.

    Parameters
    ----------
    library, tables:
        The library.
    section:
        The section's number.
    """
    for table in tables.sections:
        if table.kind == SYMTAB:
            content = library.data[table.offset : table.end]
            for position, (_, _, _, of, value, _) in enumerate(_SYMBOL.iter_unpack(content)):
                if of == section:
                    yield table.offset + position * _SYMBOL.size + _VALUE_AT, value


def _wrapper(library: ElfFile, tables: Tables, place: int) -> int | None:
    """Return where in the file the pointer of the wrapper lies that is at a place in memory; None if there is none."""
    for name, section in zip(tables.names, tables.sections, strict=True):
        at = section.offset + place - section.address
        if name == _WRAPPERS and section.offset < at < section.end:
            start = at - _POINTER_AT
            return at if library.data[start : start + len(_WRAPPER_MAGIC)] == _WRAPPER_MAGIC else None
    return None
