"""What CUDA would choose of a fat binary's entries, on one GPU or several."""

from __future__ import annotations

import pytest
from gpu_library import MACHINE_CODE, entry, fatbin

from cuda_code.cuda_archs import Member, anywhere
from gpu_tools.slim.fat_binary import find_needed, find_stand_in

KINDS = {"sm": 2, "compute": 1, "lto": 8, "new": 64}
USUAL = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"


@pytest.mark.parametrize(
    ("there", "gpus", "stays"),
    [
        (USUAL, "sm_90", "sm_90"),
        (USUAL, "sm_89", "sm_86"),  # the highest below, of the same major number
        (USUAL, "sm_70", ""),
        (USUAL, "sm_130", "compute_120"),
        (USUAL, "sm_80 sm_120", "sm_80 sm_120"),
        ("sm_80 compute_75 compute_80 compute_90", "sm_120", "compute_90"),
        ("sm_80 compute_90 compute_120", "sm_100", "compute_90"),
        ("sm_90 sm_90a compute_90a", "sm_90", "sm_90 sm_90a"),
        ("sm_90a compute_90a", "sm_120", ""),
        ("sm_100 sm_100a sm_100f", "sm_103", "sm_100 sm_100f"),
        ("sm_100 sm_100a sm_103f", "sm_103", "sm_103f"),
        ("sm_100f compute_100f", "sm_120", ""),
        ("sm_80 compute_120a compute_80", "sm_121", "compute_80"),
        # Jetson's and Drive's code is for them only, and the way out stays where they have none of their own
        ("sm_80 sm_86 sm_87", "sm_89", "sm_86"),
        ("sm_80 sm_86 sm_87 compute_80", "sm_87", "sm_87"),
        ("sm_80 sm_86 sm_90 compute_80", "sm_87", "sm_80 sm_86 compute_80"),
        ("sm_100 sm_101 sm_120", "sm_103", "sm_100"),
        ("sm_75 lto_75 new_75", "sm_90", "lto_75 new_75"),
    ],
)
def test_what_stays(there: str, gpus: str, stays: str) -> None:
    members = [
        Member(KINDS[kind], arch, 100) for kind, _, arch in (word.partition("_") for word in there.split())
    ]
    positions = find_needed(members, gpus.split())
    assert " ".join(members[at].name.replace("kind64", "new") for at in sorted(positions)) == stays


def test_a_stand_in_is_the_smallest_code_of_another_generation() -> None:
    codes = [entry(MACHINE_CODE, arch, size=size) for arch, size in ((120, 400), (90, 800), (80, 1600))]
    data = fatbin(*codes)
    start, end = find_stand_in(data, anywhere(data), ["sm_121"]) or (0, 0)
    assert data[start:end] == codes[1]
