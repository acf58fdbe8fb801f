"""Compare two libraries by the sections that the loader reads.

PyTorch's wheels for several Pythons contain the same library, linked several times from the same objects. Its build ID
and the numbers of its local symbols differ, but the loader does not read them. Compared are the loaded sections: name,
type, flags, address and bytes. Standard library only; 64-bit little-endian ELF.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

_HEADER = struct.Struct("<16x2H I 3Q I 6H".replace(" ", ""))
_SECTION = struct.Struct("<2I4Q2I2Q")
_TABLE = 5  # index of e_shoff, where the table of sections starts
_START = 4  # index of sh_offset
_LOADED = 0x2  # SHF_ALLOC
_NO_BYTES = 8  # SHT_NOBITS
_BUILD_ID = b".note.gnu.build-id"


def same_code(first: Path, second: Path) -> bool:
    """Return whether two libraries have the same loaded sections; other files must be equal byte by byte."""
    return digest(first) == digest(second)


def digest(path: Path) -> str:
    """Return a sha256 over the loaded sections of a library, or over the whole of another file."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            file.seek(0)
            while block := file.read(1 << 20):
                total.update(block)
            return total.hexdigest()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            for facts, start, size in _loaded(content):
                total.update(facts)
                total.update(view[start : start + size])
    return total.hexdigest()


def _loaded(content: mmap.mmap) -> Iterator[tuple[bytes, int, int]]:
    """Yield the header, the offset and the size of each loaded section except the build ID."""
    header = _HEADER.unpack_from(content, 0)
    *_, entry_size, count, names = header
    table = header[_TABLE]
    sections = [_SECTION.unpack_from(content, table + number * entry_size) for number in range(count)]
    strings = sections[names][_START]
    for name, kind, flags, address, start, size, *_ in sections:
        if not flags & _LOADED:
            continue
        begin = strings + name
        word = content[begin : content.find(b"\0", begin)]
        if word == _BUILD_ID:
            continue
        facts = b"%s\0%d\0%d\0%d\0%d\0" % (word, kind, flags, address, size)
        if kind == _NO_BYTES:
            size = 0
        yield facts, start, size
