"""Damaged libraries have an error of their own, whichever of their tables is damaged."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from sizes_files import elf

from cuda_code.elf_file import ElfFile, NotElf, opened

#: Places in the header: of the section table, of the number of the section with names.
_TABLE = 40
_NAMES = 62


def patched(place: int, form: str, value: int) -> bytes:
    """Return a library with another number at a place."""
    data = bytearray(elf([(".text", b"t" * 100)]))
    struct.pack_into(form, data, place, value)
    return bytes(data)


def section_field(field: int, value: int) -> bytes:
    """Return a library whose last section, that of the names, has another value of eight bytes in its header."""
    data = elf([(".text", b"t" * 100)])
    (table,) = struct.unpack_from("<Q", data, _TABLE)
    (names,) = struct.unpack_from("<H", data, _NAMES)
    return patched(table + names * 64 + field, "<Q", value)


@pytest.mark.parametrize(
    "data",
    [
        patched(_NAMES, "<H", 9),  # no such section
        section_field(24, 1 << 63),  # an offset that is no offset
        section_field(24, 1 << 40),
        section_field(32, 1 << 63),
    ],
    ids=["index of names", "impossible offset", "offset beyond the file", "impossible size"],
)
def test_a_damaged_section_table_is_named(data: bytes) -> None:
    with pytest.raises(NotElf, match=r"^(damaged|truncated)"):
        ElfFile(data)


@pytest.mark.parametrize("size", [64, 163, 300])
def test_a_library_that_is_not_whole_has_its_size_named(size: int) -> None:
    """As after a download that broke off."""
    whole = elf([(".text", b"t" * 100)])
    with pytest.raises(NotElf, match=f"^truncated: {size} of {len(whole)} bytes$"):
        ElfFile(whole[:size])


def test_a_pipe_in_place_of_a_library_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libx.so")
    with pytest.raises(NotElf, match="a pipe"), opened(tmp_path / "libx.so"):
        pass


def needed(library: ElfFile) -> object:
    return library.needed()


def soname(library: ElfFile) -> object:
    return library.soname()


def rpath(library: ElfFile) -> object:
    return library.rpath()


def undefined(library: ElfFile) -> object:
    return library.undefined()


def exported(library: ElfFile) -> object:
    return library.exported()


@pytest.mark.parametrize("names", [b"", b"no end", b"\xff\xff\0"], ids=["empty", "no end", "no text"])
@pytest.mark.parametrize(
    ("read", "tag"),
    [(needed, 1), (soname, 14), (rpath, 15), (rpath, 29)],
    ids=["needed", "soname", "rpath", "runpath"],
)
def test_damaged_names_of_libraries_are_named(
    read: Callable[[ElfFile], object], tag: int, names: bytes
) -> None:
    entry = struct.pack("<qQ", tag, 0)
    with pytest.raises(NotElf, match="damaged"):
        read(ElfFile(elf([(".dynstr", names), (".dynamic", entry)])))


@pytest.mark.parametrize("read", [needed, soname, rpath])
def test_a_cut_table_of_libraries_is_named(read: Callable[[ElfFile], object]) -> None:
    with pytest.raises(NotElf, match="damaged"):
        read(ElfFile(elf([(".dynstr", b"\0"), (".dynamic", bytes(15))])))


@pytest.mark.parametrize("read", [undefined, exported])
@pytest.mark.parametrize("symbols", [bytes(23), None], ids=["cut", "names beyond the table of names"])
def test_damaged_symbols_are_named(read: Callable[[ElfFile], object], symbols: bytes | None) -> None:
    section = 1 if read is exported else 0
    entry = struct.pack("<IBBHQQ", 99, 0x10, 0, section, 0, 0)
    with pytest.raises(NotElf, match="damaged"):
        read(ElfFile(elf([(".dynstr", b"\0x\0"), (".dynsym", symbols or entry)])))


def test_tables_that_fit_are_read() -> None:
    entries = struct.pack("<qQqQ", 1, 1, 14, 6)
    symbols = struct.pack("<IBBHQQ", 6, 0x10, 0, 1, 0, 0)
    library = ElfFile(elf([(".dynstr", b"\0libc\0me\0"), (".dynamic", entries), (".dynsym", symbols)]))
    assert (library.needed(), library.soname(), library.rpath()) == (("libc",), "me", ())
    assert (library.undefined(), library.exported()) == (frozenset(), frozenset({"me"}))
