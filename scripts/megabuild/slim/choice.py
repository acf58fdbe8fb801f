"""Which entries of a fat binary CUDA would choose on given GPUs: CUDA C++ Programming Guide, "Compute Capabilities"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import cuda_archs
from cuda_archs import LTO_IR, MACHINE_CODE, PTX, Member

#: GPUs of Jetson and Drive: their machine code runs on no other GPU ("Binary Compatibility": not with desktop).
_TEGRA = frozenset({53, 62, 72, 87, 101})
_PREFIXES = {MACHINE_CODE: "sm", PTX: "compute", LTO_IR: "lto"}


def chosen(members: Sequence[Member], gpus: Iterable[str], *, keep_lto: bool) -> frozenset[int]:
    """Return the positions of the entries that a fat binary needs.

    For each GPU that is its own machine code; else that of the same major and the highest lower minor number; else the
    highest PTX not above. Code for one GPU (``sm_90a``) or one family (``sm_100f``) counts by its number like others,
    where it runs at all. Entries of a kind that is not known here are needed.

    Parameters
    ----------
    members:
        The entries, in their order.
    gpus:
        Such as ``sm_120``.
    keep_lto:
        Whether LTO-IR is needed, which is not chosen by GPU but linked by nvJitLink.
    """
    needed = {
        position
        for position, member in enumerate(members)
        if member.kind not in (MACHINE_CODE, PTX) and (member.kind != LTO_IR or keep_lto)
    }
    for gpu in gpus:
        machine_code = _highest(members, MACHINE_CODE, gpu)
        needed |= machine_code
        exact = any(number(members[position]) == cuda_archs.number(gpu) for position in machine_code)
        # whether desktop code runs on Tegra depends on the driver, so the way out stays
        if not machine_code or (cuda_archs.number(gpu) in _TEGRA and not exact):
            needed |= _highest(members, PTX, gpu)
    return frozenset(needed)


def answer(code: Iterable[str], gpu: str) -> str:
    """Say what a library has for a GPU: ``own`` machine code that runs there, ``ptx`` to compile, or ``none``.

    Parameters
    ----------
    code:
        Its code by :func:`name`.
    """
    kinds = {prefix: kind for kind, prefix in _PREFIXES.items()}
    members = [
        Member(kinds[prefix], arch, 0)
        for prefix, _, arch in (one.partition("_") for one in code)
        if prefix in kinds
    ]
    if any(one.kind == MACHINE_CODE and _runs(one, gpu) for one in members):
        return "own"
    return "ptx" if any(one.kind == PTX and _runs(one, gpu) for one in members) else "none"


def name(member: Member) -> str:
    """Return ``sm_90a``, ``compute_120`` or ``lto_75``; ``kind16_90`` for what is not known."""
    return f"{_PREFIXES.get(member.kind, f'kind{member.kind}')}_{member.arch}"


def _runs(member: Member, gpu: str) -> bool:
    if member.kind == PTX:
        return cuda_archs.runs_on(gpu, [], [name(member)]) != "missing"
    foreign = number(member) in _TEGRA and number(member) != cuda_archs.number(gpu)
    return not foreign and cuda_archs.runs_on(gpu, [name(member)], []) == "native"


def number(member: Member) -> int:
    """Return 90 for ``sm_90a``."""
    return cuda_archs.number(name(member))


def _highest(members: Sequence[Member], kind: int, gpu: str) -> set[int]:
    """Return all entries of the highest number among those of a kind that run on a GPU."""
    able = {
        position: number(member)
        for position, member in enumerate(members)
        if member.kind == kind and _runs(member, gpu)
    }
    highest = max(able.values(), default=0)
    return {position for position, value in able.items() if value == highest}
