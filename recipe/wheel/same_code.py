"""Tell whether two libraries are the same to whoever loads them.

One library linked several times from the same objects, as PyTorch's wheels for several Pythons are, comes out with
another build ID and another numbering of its local symbols, which no loader looks at. So what counts is every section
that is loaded, by name, type, flags, address and bytes. Standard library only; 64-bit little-endian ELF.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

_HEADER = struct.Struct("<16x2H I 3Q I 6H".replace(" ", ""))
_SECTION = struct.Struct("<2I4Q2I2Q")
_LOADED = 0x2  # SHF_ALLOC
_NO_BYTES = 8  # SHT_NOBITS
_BUILD_ID = b".note.gnu.build-id"


def same_code(first: Path, second: Path) -> bool:
    """Say whether two files are libraries with the same loaded sections, or else equal byte for byte."""
    one, other = digest(first), digest(second)
    return one == other


def digest(path: Path) -> str:
    """Return a sha256 over what is loaded of a library; over the whole file where it is none."""
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
    """Give the loaded sections but for the build ID: what is said of each, and where its bytes lie."""
    header = _HEADER.unpack_from(content, 0)
    table, entry, count, names = header[5], header[10], header[11], header[12]
    sections = [_SECTION.unpack_from(content, table + number * entry) for number in range(count)]
    strings = sections[names][4]
    for name, kind, flags, address, start, size, *_ in sections:
        if not flags & _LOADED:
            continue
        begin = strings + name
        word = content[begin : content.find(b"\0", begin)]
        if word != _BUILD_ID:
            facts = b"%s\0%d\0%d\0%d\0%d\0" % (word, kind, flags, address, size)
            yield facts, start, 0 if kind == _NO_BYTES else size
