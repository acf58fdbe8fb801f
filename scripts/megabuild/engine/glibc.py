"""The glibc that a package asks for: what the symbols of its files need, not what the machine had that compiled them.

conda-forge compiles against an old glibc on purpose, and its packages ask for that one. The local providers have the
system's own: a package compiled with glibc 2.36 would ask for 2.36, and be refused where 2.32 is all that its
libraries need. It is known only once they are linked.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator

from elf_file import ElfFile

Version = tuple[int, ...]

#: The oldest that is ever named (conda-forge's oldest and that of manylinux2014, PEP 599): nobody has an older one.
_OLDEST: Version = (2, 17)
_PIN = re.compile(r"__glibc >=[\d.]+,<3\.0\.a0")
#: Marks that are no versions, and the glibc that introduced them (glibc's NEWS).
_MARKS = {"ABI_DT_RELR": (2, 36), "ABI_GNU_TLS": (2, 42), "ABI_GNU2_TLS": (2, 42)}
_NEED, _SYMBOL = struct.Struct("<HHIII"), struct.Struct("<8xII")


def needed(library: ElfFile) -> Iterator[Version]:
    """Give the versions of glibc whose symbols a library or program takes.

    The format is that of ``.gnu.version_r`` in the Linux Standard Base, Core, "Version Requirements".
    """
    data, names = library.content(".gnu.version_r"), library.content(".dynstr")
    at, following = 0, 1 if data else 0
    while following:
        _, count, _, symbol, following = _NEED.unpack_from(data, at)
        symbol += at
        for _ in range(count):
            start, step = _SYMBOL.unpack_from(data, symbol)
            name = names[start : names.index(b"\0", start)].decode()
            if name.startswith("GLIBC_") and (version := _version(name.removeprefix("GLIBC_"))):
                yield version
            symbol += step
        at += following


def _version(name: str) -> Version | None:
    if re.fullmatch(r"[\d.]+", name):
        return tuple(int(part) for part in name.split("."))
    return _MARKS.get(name)


def pinned(depends: Iterable[str], versions: Iterable[Version]) -> list[str]:
    """Return what a package depends on, with the pin on glibc, where it has one, at what its files need."""
    version = ".".join(map(str, max([_OLDEST, *versions])))
    return [_PIN.sub(f"__glibc >={version},<3.0.a0", one) for one in depends]
