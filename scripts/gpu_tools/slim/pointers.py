"""Who knows where in a section something lies: nvcc's wrappers, through the loader's notes, and the symbol table."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from cuda_code.elf_file import ElfFile
from gpu_tools.slim.tables import DYNSYM, REL, RELA, RELR, SYMTAB, X86_64, Tables

_WRAPPERS, _WRAPPER_MAGIC = ".nvFatBinSegment", struct.pack("<I", 0x466243B1)
_RELOCATION, _SYMBOL, _ADDRESS = struct.Struct("<QQq"), struct.Struct("<IBBHQQ"), struct.Struct("<Q")
_RELATIVE = {X86_64: 8, 183: 1027}  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
_POINTER_AT, _ADDEND_AT, _VALUE_AT = 8, 16, 8


@dataclass(frozen=True, kw_only=True)
class Pointers:
    """By address in a section: where in the file it stands for the loader, and where for debuggers."""

    loader: Mapping[int, list[int]]
    symbols: Mapping[int, list[int]]


def into(library: ElfFile, tables: Tables, section: int, dropped: frozenset[int]) -> Pointers | None:
    """Return who points into a section; None where anything but nvcc's wrappers does, or may, as the loader knows it.

    Dropped sections, by number, do not matter.
    """
    loader: dict[int, list[int]] = defaultdict(list)
    symbols: dict[int, list[int]] = defaultdict(list)
    start = tables.sections[section].address
    inside = range(start, start + tables.sections[section].size)
    for index, table in enumerate(tables.sections):
        if table.kind in (REL, RELR):
            return None
        if table.kind in (SYMTAB, DYNSYM) and index not in dropped:
            for position, symbol in enumerate(_SYMBOL.iter_unpack(library.data[table.offset : table.end])):
                if symbol[3] != section:
                    continue
                if table.kind == DYNSYM:
                    return None
                symbols[symbol[4]].append(table.offset + position * _SYMBOL.size + _VALUE_AT)
        if table.kind == RELA:
            notes = _RELOCATION.iter_unpack(library.data[table.offset : table.end])
            for position, (place, what, target) in enumerate(notes):
                if target not in inside:
                    continue
                pointer = _in_wrapper(library, tables, place)
                if what != _RELATIVE.get(tables.machine) or pointer is None:
                    return None
                places = loader[target]
                places.append(table.offset + position * _RELOCATION.size + _ADDEND_AT)
                if library.data[pointer : pointer + _ADDRESS.size] == _ADDRESS.pack(target):
                    places.append(pointer)  # linkers write the address there, too
    return Pointers(loader=loader, symbols=symbols)


def _in_wrapper(library: ElfFile, tables: Tables, place: int) -> int | None:
    """Return where in the file the pointer of the wrapper lies that is at a place in memory; None if there is none."""
    for name, section in zip(tables.names, tables.sections, strict=True):
        at = section.offset + place - section.address
        if name == _WRAPPERS and section.offset < at < section.end:
            start = at - _POINTER_AT
            return at if library.data[start : start + len(_WRAPPER_MAGIC)] == _WRAPPER_MAGIC else None
    return None
