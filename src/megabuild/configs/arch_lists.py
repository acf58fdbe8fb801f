"""Checks that each list of CUDA architectures is in the row of its CUDA version: rows of the matrix are positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from packaging.version import Version

from groundwork.names import cuda_archs
from megabuild.configs.config_file import cuda_version

_OLD = "5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2"
_COMMON = "7.5 8.0 8.6 8.7 8.9 9.0"
#: Architectures that nvcc knows from a CUDA version on, by the release notes (12.8: Blackwell; 13.0: nothing before
#: Turing, and Thor is 11.0 in place of 10.1).
_KNOWN = {
    Version("11.8"): f"3.5 3.7 {_OLD} {_COMMON}",
    Version("12.0"): f"{_OLD} {_COMMON}",
    Version("12.8"): f"{_OLD} {_COMMON} 10.0 10.1 12.0",
    Version("12.9"): f"{_OLD} {_COMMON} 10.0 10.1 10.3 12.0 12.1",
    Version("13.0"): f"{_COMMON} 8.8 10.0 10.3 11.0 12.0 12.1",
}


@dataclass(frozen=True, kw_only=True)
class _Row:
    cuda: Version
    archs: tuple[Version, ...]


def find_misplaced(values: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence for each fault in the lists of a platform and provider.

    nvcc must know every architecture. For one kind of machine, the newest architecture of a later CUDA version is at
    least as new, and none that an earlier version dropped comes back.
    """
    versions = values.get("cuda_compiler_version", ())
    lists = values.get("torch_cuda_arch_list", ())
    machines = values.get("arm_variant_type", ()) or ("",) * len(versions)
    if not len(versions) == len(lists) == len(machines):
        return []  # on macOS; elsewhere the keys are zipped
    rows: dict[str, list[_Row]] = {}
    for version, listed, machine in zip(versions, lists, machines, strict=True):
        cuda = cuda_version(version)
        if cuda is not None:
            rows.setdefault(machine, []).append(_Row(cuda=Version(cuda), archs=_sorted_archs(listed)))
    problems: list[str] = []
    for several in rows.values():
        ordered = sorted(several, key=lambda row: row.cuda)
        for row in ordered:
            problems += _unknown(row)
        for earlier, later in pairwise(ordered):
            problems += _out_of_order(earlier, later)
    return problems


def _sorted_archs(listed: str) -> tuple[Version, ...]:
    archs = [Version(arch.removesuffix("+PTX").rstrip("af")) for arch in cuda_archs(listed)]
    return tuple(sorted(archs))


def _unknown(row: _Row) -> list[str]:
    earlier = [version for version in _KNOWN if version <= row.cuda]
    if not earlier:
        return []
    since = max(earlier)
    known = [Version(arch) for arch in _KNOWN[since].split()]
    unknown = [arch for arch in row.archs if arch not in known]
    if since == max(_KNOWN) and row.cuda > since:  # a later CUDA may have added architectures
        unknown = [arch for arch in unknown if arch < known[-1]]
    if not unknown:
        return []
    return [f"nvcc of CUDA {row.cuda} does not know {', '.join(map(str, unknown))}"]


def _out_of_order(earlier: _Row, later: _Row) -> list[str]:
    problems = []
    if later.archs[-1] < earlier.archs[-1]:
        problems.append(f"CUDA {later.cuda} lacks {earlier.archs[-1]}, which CUDA {earlier.cuda} has")
    if later.archs[0] < earlier.archs[0]:
        problems.append(f"CUDA {later.cuda} has {later.archs[0]}, which CUDA {earlier.cuda} dropped")
    return problems
