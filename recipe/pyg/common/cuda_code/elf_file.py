"""Reads sections, links and symbols of ELF files, with the standard library only.

Package tests run this in environments without pyelftools; the unit tests compare it with pyelftools. libtorch's symbol
tables have several 100,000 entries, so they are read with ``iter_unpack``.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

MAGIC = b"\x7fELF"
#: First bytes of a 64-bit little-endian ELF file.
READABLE_MAGIC = MAGIC + b"\x02\x01"
# tags of dynamic entries
_NEEDED = 1
_SONAME = 14
_RPATH = 15
_RUNPATH = 29
_UNDEFINED = 0
_WEAK = 2
# kinds of sections without bytes in the file
NULL = 0
NOBITS = 8
_NAME_ENDS = b"\0"
_LONGEST_NAME = 4096
_HEADER_BYTES = 64
_MACHINES = {3: "i386", 21: "ppc64le", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
#: Other contents of a file with a library's name, by their first bytes.
_OTHER_FILES = (
    (MAGIC, "not a 64-bit little-endian ELF file"),
    (b"version https://git-lfs", "a git-LFS pointer in place of the library"),
    (b"/annex/objects/", "a git-annex pointer in place of the library"),
    (b"<!DOCTYPE", "a web page, not a library"),
    (b"<html", "a web page, not a library"),
    (b"MZ", "a Windows library"),
    (b"\xcf\xfa\xed\xfe", "a macOS library"),
    (b"\xca\xfe\xba\xbe", "a macOS library"),
    (bytes(64), "full of zeros"),
)
SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")


class Section(NamedTuple):
    """The fields of a section header; ``size`` is the size in memory, also if the file has no bytes (``.bss``)."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int

    @property
    def end(self) -> int:
        """End offset in the file."""
        if self.kind in (NULL, NOBITS):
            return self.offset
        return self.offset + self.size


class NotElf(ValueError):
    """A file is not a 64-bit little-endian ELF file, or is truncated or damaged."""


class ElfFile:
    """A 64-bit little-endian ELF file (x86-64 and aarch64).

    `data`: the whole file, preferably a memory map: only the requested parts are read.

    Raises NotElf: The data are something else, truncated or damaged. A method that reads a table raises it, too.
    """

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self.data = data
        if len(data) < _HEADER_BYTES or data[: len(READABLE_MAGIC)] != READABLE_MAGIC:
            raise NotElf(_in_place_of_elf(bytes(data[:256]), len(data)))
        self._check_length()
        with _naming_damage():
            #: All sections in the order of the file's table; names may repeat.
            self.every = tuple(self._read_sections())
        self.sections = dict(self.every)

    @property
    def machine(self) -> str:
        """The processor: ``x86_64``."""
        (number,) = struct.unpack_from("<H", self.data, 18)
        return _MACHINES.get(number, f"machine {number}")

    def _check_length(self) -> None:
        (table,) = struct.unpack_from("<Q", self.data, 40)
        size, count = struct.unpack_from("<HH", self.data, 58)
        end = table + size * count
        if end > len(self.data):
            raise NotElf(f"truncated: {len(self.data):,} of {end:,} bytes")

    def _read_sections(self) -> Iterator[tuple[str, Section]]:
        (table,) = struct.unpack_from("<Q", self.data, 40)
        size, count, names = struct.unpack_from("<HHH", self.data, 58)
        sections = [Section(*SECTION.unpack_from(self.data, table + index * size)) for index in range(count)]
        for section in sections:
            name = self._text(sections[names].offset + section.name)
            if section.end > len(self.data):
                raise NotElf(f"truncated inside {name}")
            yield name, section

    def content(self, name: str) -> bytes:
        """Return a section's bytes; empty if there is no such section."""
        section = self.sections.get(name)
        if section is None:
            return b""
        return bytes(self.data[section.offset : section.end])

    def needed(self) -> tuple[str, ...]:
        """Return the names of the libraries that this one links to (DT_NEEDED), in order."""
        return tuple(self._dynamic(_NEEDED))

    def soname(self) -> str | None:
        """Return the name under which other libraries link to this one (DT_SONAME)."""
        return next(self._dynamic(_SONAME), None)

    def rpath(self) -> tuple[str, ...]:
        """Return the loader's search folders from DT_RPATH and DT_RUNPATH."""
        folders: list[str] = []
        for path in (*self._dynamic(_RPATH), *self._dynamic(_RUNPATH)):
            folders += filter(None, path.split(":"))
        return tuple(folders)

    def _dynamic(self, wanted: int) -> Iterator[str]:
        names = self.content(".dynstr")
        with _naming_damage():
            for tag, value in _DYNAMIC.iter_unpack(self.content(".dynamic")):
                if tag == wanted:
                    yield names[value : names.index(_NAME_ENDS, value)].decode()

    def undefined(self) -> frozenset[str]:
        """Return the symbols that other libraries must provide; weak symbols are optional and left out."""
        return frozenset(self._symbols(defined=False))

    def exported(self) -> frozenset[str]:
        """Return the symbols that this library provides."""
        return frozenset(self._symbols(defined=True))

    def _symbols(self, *, defined: bool) -> Iterator[str]:
        names = self.content(".dynstr")
        with _naming_damage():
            for start, info, _, section, _, _ in _SYMBOL.iter_unpack(self.content(".dynsym")):
                is_defined = section != _UNDEFINED
                is_optional = info >> 4 == _WEAK and not is_defined
                if start and is_defined == defined and not is_optional:
                    yield names[start : names.index(_NAME_ENDS, start)].decode(errors="replace")

    def _text(self, start: int) -> str:
        end = self.data.find(_NAME_ENDS, start, start + _LONGEST_NAME)
        if end < 0:
            raise ValueError(f"unterminated name at byte {start}")
        return bytes(self.data[start:end]).decode()


@contextmanager
def _naming_damage() -> Iterator[None]:
    """Raise NotElf for a table whose numbers fit neither each other nor the file."""
    try:
        yield
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise NotElf(f"damaged: {error}") from error


def _in_place_of_elf(head: bytes, size: int) -> str:
    """Describe a file that is no ELF file, from its first bytes."""
    if not size:
        return "empty"
    if size < _HEADER_BYTES and head.startswith(MAGIC):
        return f"truncated: {size} bytes"
    for start, description in _OTHER_FILES:
        if head.lstrip().startswith(start):
            return description
    if head.isascii() and b"\0" not in head:
        return "a text file, not a library"
    return "not a library"


@contextmanager
def opened_file(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Raises NotElf: The file is a pipe or a device.
    """
    # a pipe in the place of a library must not block
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise NotElf("a pipe or device, not a library")
        yield stream


@contextmanager
def opened(path: Path) -> Iterator[ElfFile]:
    """Open a file as :class:`ElfFile`, mapped into memory.

    Raises NotElf: The file is something else, empty, or damaged.
    """
    with opened_file(path) as stream:
        try:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise NotElf("empty") from error
        with mapped:
            yield ElfFile(mapped)
