"""One fat binary without the entries that nothing here would choose.

One of which nothing would be chosen keeps an entry without code: what CUDA says of it then is the same as before, that
there is no code for this GPU, and not that it is damaged.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from cuda_archs import Fatbin, Member
from megabuild.slim.choice import chosen, name
from megabuild.slim.layout import Piece

_HEADER, _ENTRY = struct.Struct("<4sHHQ"), struct.Struct("<HHIQ")
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


def slimmed(data: mmap.mmap | bytes, fatbin: Fatbin, rule: Rule) -> Content:
    """Return what stays of a fat binary; all of it where its form is not the one that is known.

    Parameters
    ----------
    data:
        The file in which it lies.
    fatbin:
        Where.
    rule:
        What stays.
    """
    magic, version, header_size, _ = _HEADER.unpack_from(data, fatbin.start)
    *starts, end = accumulate((member.size for member in fatbin.members), initial=fatbin.start + header_size)
    entries = [_ENTRY.unpack_from(data, start) for start in starts]
    regular = (
        (version, header_size, end) == (_VERSION, _HEADER.size, fatbin.end)
        and all(entry[1] == _ENTRY_VERSION for entry in entries)
        and not any(member.size % _ALIGNED for member in fatbin.members)
    )
    positions = chosen(fatbin.members, rule.gpus, keep_lto=rule.keep_lto)
    if not regular or len(positions) == len(fatbin.members):
        return whole(fatbin)
    kept = [fatbin.members[position] for position in sorted(positions)]
    if not kept:
        kind, entry_version, entry_size, _ = entries[0]
        empty = _ENTRY.pack(kind, entry_version, entry_size, 0)
        rest = bytes(data[starts[0] + _ENTRY.size : starts[0] + entry_size])
        return Content(
            pieces=(_HEADER.pack(magic, version, header_size, entry_size), empty, rest), code=frozenset()
        )
    body = sum(member.size for member in kept)
    ranges = [(starts[at], starts[at] + fatbin.members[at].size) for at in sorted(positions)]
    return Content(pieces=(_HEADER.pack(magic, version, header_size, body), *ranges), code=_code(kept))


def _code(members: Sequence[Member]) -> frozenset[str]:
    return frozenset(name(member) for member in members)
