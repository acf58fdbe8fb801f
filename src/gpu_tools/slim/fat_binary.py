"""Removes the entries of a fat binary that CUDA would choose on none of the user's GPUs.

The rules are in the CUDA C++ Programming Guide, "Compute Capabilities". If no entry would be chosen, the fat binary
keeps a stand-in: a small entry of the same library for another GPU. CUDA then reports "no code for this GPU" as before
slimming, not a damaged file, and CUDA's tools can read the file.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Sequence

from cuda_code import cuda_archs
from cuda_code.cuda_archs import MACHINE_CODE, PTX, Fatbin, Member, number
from gpu_tools.slim.layout import Piece

_HEADER = struct.Struct("<4sHHQ")
_ENTRY_START = struct.Struct("<HH")
_VERSION = 1
_ENTRY_VERSION = 0x101
_ALIGNED = 8


def slim_fatbin(
    data: mmap.mmap | bytes, fatbin: Fatbin, gpus: Sequence[str], stand_in: tuple[int, int] | None
) -> tuple[tuple[Piece, ...], bool]:
    """Return the pieces of a fat binary to keep, and whether any of them is for ``gpus`` (``sm_120``).

    A fat binary of unknown form is kept whole. ``stand_in`` is the byte range of the entry to keep if no entry is
    needed; without a stand-in, the fat binary is then kept whole.
    """
    whole = ((fatbin.start, fatbin.end),)
    entries = _find_entries(data, fatbin)
    if not entries:
        return whole, bool(fatbin.members)
    needed = find_needed(fatbin.members, gpus)
    ranges = [entries[position] for position in sorted(needed)]
    if not needed and stand_in:
        ranges = [stand_in]
    body = sum(end - start for start, end in ranges)
    if not ranges or body >= fatbin.end - fatbin.start - _HEADER.size:
        return whole, bool(fatbin.members)
    magic, version, header_size, _ = _HEADER.unpack_from(data, fatbin.start)
    return (_HEADER.pack(magic, version, header_size, body), *ranges), bool(needed)


def find_stand_in(
    data: mmap.mmap | bytes, fatbins: Iterable[Fatbin], gpus: Sequence[str]
) -> tuple[int, int] | None:
    """Return the byte range of the library's smallest machine code for another major number than the GPUs'."""
    majors = {number(gpu) // 10 for gpu in gpus}
    others: list[tuple[int, int]] = []
    for fatbin in fatbins:
        for member, entry in zip(fatbin.members, _find_entries(data, fatbin), strict=False):
            if member.kind == MACHINE_CODE and number(member.name) // 10 not in majors:
                others.append(entry)
    return min(others, key=lambda entry: entry[1] - entry[0], default=None)


def find_needed(members: Sequence[Member], gpus: Iterable[str]) -> frozenset[int]:
    """Return the positions of the entries to keep.

    For each GPU: its own machine code; else the same major and the highest lower minor number; else the highest PTX
    not above it. Code for one GPU (``sm_90a``) or family (``sm_100f``) counts by its number on GPUs that run it.
    LTO-IR is kept: nvJitLink links it for any GPU. Entries of unknown kind are kept too.
    """
    needed = {position for position, member in enumerate(members) if member.kind not in (MACHINE_CODE, PTX)}
    for gpu in gpus:
        machine_code = _find_highest(members, MACHINE_CODE, gpu)
        if not machine_code:
            needed |= _find_highest(members, PTX, gpu)
            machine_code = _find_desktop_code(members, number(gpu))
        needed |= machine_code
    return frozenset(needed)


def _find_desktop_code(members: Sequence[Member], gpu: int) -> set[int]:
    """Return the positions of desktop GPUs' code for a Jetson or Drive GPU: some drivers run it on them."""
    positions: set[int] = set()
    if gpu not in cuda_archs.TEGRA:
        return positions
    for position, member in enumerate(members):
        if member.kind == MACHINE_CODE and number(member.name) // 10 == gpu // 10:
            positions.add(position)
    return positions


def _find_highest(members: Sequence[Member], kind: int, gpu: str) -> set[int]:
    """Return the positions of the entries of a kind with the highest number that a GPU runs."""
    runnable = {}
    for position, member in enumerate(members):
        if member.kind == kind and _runs(member, gpu):
            runnable[position] = number(member.name)
    highest = max(runnable.values(), default=0)
    return {position for position, value in runnable.items() if value == highest}


def _runs(member: Member, gpu: str) -> bool:
    if member.kind == MACHINE_CODE:
        return bool(cuda_archs.code_for(gpu, [member.name], []))
    return bool(cuda_archs.code_for(gpu, [], [member.name]))


def _find_entries(data: mmap.mmap | bytes, fatbin: Fatbin) -> list[tuple[int, int]]:
    """Return the entries' byte ranges with headers; none if the form differs from CUDA 11 to 13."""
    _, version, header_size, _ = _HEADER.unpack_from(data, fatbin.start)
    if (version, header_size) != (_VERSION, _HEADER.size):
        return []
    entries = []
    start = fatbin.start + header_size
    for member in fatbin.members:
        _, entry_version = _ENTRY_START.unpack_from(data, start)
        if entry_version != _ENTRY_VERSION or member.size % _ALIGNED:
            return []
        entries.append((start, start + member.size))
        start += member.size
    if start != fatbin.end:
        return []
    return entries
