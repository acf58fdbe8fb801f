"""The little of ELF files that packaging must know: whether one carries an RPATH of its own."""

from __future__ import annotations

import struct
from pathlib import Path

_PROGRAM_DYNAMIC = 2
_END, _RPATH, _RUNPATH = 0, 15, 29


def is_elf(path: Path) -> bool:
    """Whether a file begins like a program or library of Linux."""
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def has_rpath(path: Path) -> bool:
    """Whether a 64-bit little-endian ELF file has an RPATH or RUNPATH; False for any other file."""
    with path.open("rb") as stream:
        header = stream.read(64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            return False
        (offset,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        for index in range(count):
            stream.seek(offset + index * size)
            segment = stream.read(size)
            kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", segment)
            if kind == _PROGRAM_DYNAMIC:
                stream.seek(start)
                return _names_path(stream.read(length))
    return False


def _names_path(dynamic: bytes) -> bool:
    for position in range(0, len(dynamic) - 15, 16):
        (tag,) = struct.unpack_from("<q", dynamic, position)
        if tag == _END:
            break
        if tag in (_RPATH, _RUNPATH):
            return True
    return False
