"""Small ELF files with the sections that a test wants, and GPU code for them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from gpu_library import FOR_ONE, LTO_IR, MACHINE_CODE, PTX, entry, fatbin

_HEADER, _SECTION = 64, struct.Struct("<IIQQQQIIQQ")

#: One fatbin with code for two GPUs, PTX and LTO-IR.
GPU_CODE = fatbin(
    entry(MACHINE_CODE, 80, size=1000),
    entry(MACHINE_CODE, 90, FOR_ONE, size=2000),
    entry(PTX, 90, size=300),
    entry(LTO_IR, 75, size=400),
)


def elf(
    sections: Sequence[tuple[str, bytes]],
    *,
    hole: bytes = b"",
    places: dict[str, tuple[int, int]] | None = None,
) -> bytes:
    """Make a 64-bit ELF file.

    `hole`: bytes between the header and the first section that belong to none.
    `places`: Offset and size that the table gives sections, where they are not to be the true ones.
    """
    names, content, headers = b"\0", bytearray(_HEADER) + hole, [bytes(_SECTION.size)]
    for name, data in (*sections, (".shstrtab", b"")):
        start = len(names)
        names += name.encode() + b"\0"
        body = names if name == ".shstrtab" else data
        offset, size = (places or {}).get(name, (len(content), len(body)))
        headers.append(_SECTION.pack(start, 1, 0, 0, offset, size, 0, 0, 1, 0))
        content += body
    table, count = len(content), len(headers)
    content[:_HEADER] = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, count, count - 1
    )  # fmt: skip
    return bytes(content) + b"".join(headers)
