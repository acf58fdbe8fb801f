"""One fat binary without the entries that nothing here would choose.

One of which nothing would be chosen keeps a stand-in, a small entry of the same library for another GPU. So CUDA says
what it did before, that there is no code for this GPU, and not that something is damaged; its own tools read it, too.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import cuda_archs
from cuda_archs import MACHINE_CODE, Fatbin, Member
from megabuild.slim.choice import chosen, name, number
from megabuild.slim.layout import Piece

_HEADER, _ENTRY_START = struct.Struct("<4sHHQ"), struct.Struct("<HH")
_VERSION, _ENTRY_VERSION, _ALIGNED = 1, 0x101, 8


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What stays: the code that CUDA would choose on these GPUs (``sm_120``), and LTO-IR or not."""

    gpus: Sequence[str]
    keep_lto: bool


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a fat binary is made of, one after another, and the code in it: ``sm_120``, ``compute_120``, ``lto_75``."""

    pieces: tuple[Piece, ...]
    code: frozenset[str]


def whole(fatbin: Fatbin) -> Content:
    """Return a fat binary as it is."""
    return Content(pieces=((fatbin.start, fatbin.end),), code=_code(fatbin.members))


def slimmed(data: mmap.mmap | bytes, fatbin: Fatbin, rule: Rule, stand_in: tuple[int, int] | None) -> Content:
    """Return what stays of a fat binary; all of it where its form is not the one that is known.

    Parameters
    ----------
    data:
        The file in which it lies.
    fatbin:
        Where.
    rule:
        What stays.
    stand_in:
        Where the entry lies that stays when nothing else does; None: all stays then.
    """
    entries = _entries(data, fatbin)
    kept = sorted(chosen(fatbin.members, rule.gpus, keep_lto=rule.keep_lto))
    ranges = [entries[position] for position in kept] if entries else []
    if entries and not kept and stand_in:
        ranges = [stand_in]
    body = sum(end - start for start, end in ranges)
    if not ranges or body >= fatbin.end - fatbin.start - _HEADER.size:
        return whole(fatbin)
    magic, version, header_size, _ = _HEADER.unpack_from(data, fatbin.start)
    header = _HEADER.pack(magic, version, header_size, body)
    return Content(pieces=(header, *ranges), code=_code([fatbin.members[position] for position in kept]))


def smallest_for_others(
    data: mmap.mmap | bytes, fatbins: Iterable[Fatbin], gpus: Sequence[str]
) -> tuple[int, int] | None:
    """Return where a library's smallest machine code lies of no major number that the GPUs have; None without any."""
    majors = {cuda_archs.number(gpu) // 10 for gpu in gpus}
    found = (
        place
        for fatbin in fatbins
        for member, place in zip(fatbin.members, _entries(data, fatbin), strict=False)
        if member.kind == MACHINE_CODE and number(member) // 10 not in majors
    )
    return min(found, key=lambda place: place[1] - place[0], default=None)


def _entries(data: mmap.mmap | bytes, fatbin: Fatbin) -> list[tuple[int, int]]:
    """Return where the entries lie with their headers; none of a fat binary that is not as CUDA 11 to 13 make it."""
    _, version, header_size, _ = _HEADER.unpack_from(data, fatbin.start)
    ends = list(accumulate((member.size for member in fatbin.members), initial=fatbin.start + header_size))
    regular = (
        (version, header_size, ends[-1]) == (_VERSION, _HEADER.size, fatbin.end)
        and all(_ENTRY_START.unpack_from(data, start)[1] == _ENTRY_VERSION for start in ends[:-1])
        and not any(member.size % _ALIGNED for member in fatbin.members)
    )
    return list(pairwise(ends)) if regular else []


def _code(members: Sequence[Member]) -> frozenset[str]:
    return frozenset(name(member) for member in members)
