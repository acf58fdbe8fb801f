"""The glibc that a package asks for: what the symbols of its files need, not what the machine had that compiled them.

conda-forge compiles against an old glibc on purpose, and its packages ask for that one. The local providers have the
system's own: a package compiled with glibc 2.36 would ask for 2.36, and be refused where 2.32 is all that its
libraries need. It is known only once they are linked.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator

from cuda_code.elf_file import ElfFile

#: A version of glibc; None for an unknown marker.
Version = tuple[int, ...] | None

#: The oldest that is ever named (conda-forge's oldest and that of manylinux2014, PEP 599): nobody has an older one.
_OLDEST: tuple[int, ...] = (2, 17)
_PIN = re.compile(r"__glibc >=[\d.]+,<3\.0\.a0")
#: Markers that are not versions, and the glibc that introduced them (its NEWS).
_MARKS = {"ABI_DT_RELR": (2, 36)}
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
            if name.startswith("GLIBC_"):
                yield _version(name.removeprefix("GLIBC_"))
            symbol += step
        at += following


def _version(name: str) -> Version:
    if re.fullmatch(r"[\d.]+", name):
        return tuple(int(part) for part in name.split("."))
    return _MARKS.get(name)


def pinned(depends: Iterable[str], versions: Iterable[Version]) -> list[str]:
    """Return what a package depends on, with its pin on glibc, if any, at what its files need; as it is if unknown."""
    newest = _OLDEST
    for version in versions:
        if version is None:
            return [*depends]
        newest = max(newest, version)
    return [_PIN.sub(f"__glibc >={'.'.join(map(str, newest))},<3.0.a0", one) for one in depends]
