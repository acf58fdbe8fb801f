"""Judges whether the libraries of one module are what a config asks for, with reason and remedy if not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cuda_code import cuda_archs
from cuda_code.kernels import KERNELS, Module, split
from cuda_code.library_facts import LibraryFacts
from cuda_code.torch_abi import cpp_symbols, readable


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The expected properties of a module's libraries."""

    #: True for CUDA, False for CPU, None if unknown: then CUDA if any library has device code or links to CUDA.
    cuda: bool | None = None
    cuda_major: int | None = None  #: Major version of the CUDA runtime.
    archs: tuple[str, ...] = ()  #: Architectures such as ``9.0`` and ``12.0+PTX``; empty: any.
    #: Require machine code for each architecture; otherwise any code that such a GPU can run is enough.
    exact: bool = True
    required: bool = True  #: Otherwise only code for none of the architectures is a fault.
    python: str | None = None  #: ``3.12``; None for any: a module with the stable ABI.


@dataclass(frozen=True)
class Judgement:
    """The judgement on one library; the reason is empty if it has no fault."""

    reason: str = ""
    remedy: str = ""
    note: str = ""
    unknown: bool = False  #: The library cannot be judged; the reason says why.

    @property
    def ok(self) -> bool:
        """Whether the library has no fault."""
        return not self.reason


def judge(
    module: str, libraries: Sequence[LibraryFacts], wanted: Wanted, *, unread: Sequence[str] = ()
) -> Mapping[str, Judgement]:
    """Judge each library of a module in :data:`KERNELS`, and each missing one, by path.

    `unread`: paths of libraries that exist but cannot be read.
    """
    table = KERNELS[module]
    cuda = any(facts.units or facts.links_cuda for facts in libraries) if wanted.cuda is None else wanted.cuda
    names = {path.rpartition("/")[2] for path in (*unread, *(facts.path for facts in libraries))}
    judgements = {facts.path: _judge_library(facts, names, table, cuda, wanted) for facts in libraries}
    for stem in sorted((table.kernels | table.plain) - {split(name)[0] for name in names}):
        file = f"_{stem}_{'cuda' if cuda else 'cpu'}.so" if table.flavours else f"lib{stem}.so"
        judgements[file] = Judgement(
            f"{module} has no library for {stem}", "build the module again: its package is incomplete"
        )
    return judgements


def empty(module: str) -> Judgement:
    """Return the judgement on a module of :data:`KERNELS` without any library."""
    successor = KERNELS[module].successor
    if not successor:
        return Judgement("no library in it", "download or build it again")
    return Judgement(
        f"no library in it: an empty release; upstream replaces {module} by {successor}",
        f"install {successor} instead, or an earlier release of {module}",
    )


def _judge_library(
    facts: LibraryFacts, names: set[str], table: Module, cuda: bool, wanted: Wanted
) -> Judgement:
    stem, flavour = split(facts.path.rpartition("/")[2])
    if wrong := judge_python(facts.pythons, wanted.python):
        return wrong
    if not cuda:
        return judge_for_cpu(facts)
    if flavour == "cpu" and f"_{stem}_cuda.so" in names:
        return Judgement(note=f"_{stem}_cuda.so is loaded instead")
    archs = tuple(arch for arch in wanted.archs if _as_number(arch) >= _as_number(table.oldest))
    if wrong := judge_blank_code(facts):
        return wrong
    if flavour == "cpu" or (stem in table.kernels and not facts.units):
        return _without_cuda(facts, flavour, archs)
    if wrong := judge_runtime(facts, wanted.cuda_major):
        return wrong
    if stem in table.kernels:
        return judge_archs(facts, replace(wanted, archs=archs))
    is_odd = stem in table.plain and facts.units
    return Judgement(note="has device code, although upstream has none for it" if is_odd else "")


def judge_for_cpu(facts: LibraryFacts) -> Judgement:
    """Judge whether a library is for a CPU build of torch."""
    _, flavour = split(facts.path.rpartition("/")[2])
    if not (facts.units or facts.links_cuda or flavour == "cuda"):
        return Judgement()
    sign = "has device code" if facts.units else "links to CUDA" if facts.links_cuda else "is named for CUDA"
    return Judgement(
        f"compiled with CUDA ({sign}), not for the CPU",
        "install the CPU build or a torch with CUDA, or rebuild with FORCE_ONLY_CPU=1",
    )


def _without_cuda(facts: LibraryFacts, flavour: str, archs: Sequence[str]) -> Judgement:
    signs = []
    if not facts.units:
        signs.append("no device code")
    if facts.says_not_compiled:
        signs.append('contains "Not compiled with CUDA support"')
    if flavour == "cpu":
        signs.append("named for the CPU")
    arch_list = f' TORCH_CUDA_ARCH_LIST="{";".join(archs)}"' if archs else " and TORCH_CUDA_ARCH_LIST set"
    return Judgement(
        f"compiled without CUDA: {', '.join(signs)}",
        f"rebuild with nvcc, a CUDA build of torch and FORCE_CUDA=1{arch_list}",
    )


def judge_archs(facts: LibraryFacts, wanted: Wanted) -> Judgement:
    """Judge whether a library has code for the wanted architectures."""
    archs, exact = wanted.archs, wanted.exact
    wanted_sm, wanted_ptx = cuda_archs.wanted(archs)
    lacking, runs_as = [], []
    for name in cuda_archs.ordered(wanted_sm):
        code = cuda_archs.code_for(name, facts.archs, facts.ptx)
        if name not in facts.archs if exact else not code:
            lacking.append(name)
        elif code.startswith("compute_"):
            runs_as.append(f"{name} compiles the PTX for {code} at first use")
        elif code != name:
            runs_as.append(f"{name} runs it as {code}")
    lacking += [f"PTX for {name}" for name in cuda_archs.ordered(wanted_ptx - set(facts.ptx))]
    arch_list = ";".join(archs)
    remedy = f'rebuild with TORCH_CUDA_ARCH_LIST="{arch_list}"'
    if lacking:
        has = ", ".join([*facts.archs, *(f"PTX {name}" for name in facts.ptx)]) or "none"
        lack = f"no code for {', '.join(lacking)} (it has {has})"
        if not wanted.required and not wanted_sm <= {*lacking}:
            return Judgement(note=lack)
        return Judgement(lack, remedy)
    partial = [
        f"{name} in {sum(name in unit.sm for unit in facts.units)}"
        for name in cuda_archs.ordered(wanted_sm & set(facts.archs))
        if any(name not in unit.sm for unit in facts.units)
    ]
    if partial and exact and wanted.required:
        return Judgement(
            f"some objects lack code: {', '.join(partial)} of {len(facts.units)}",
            f"delete the build folder, which has objects of another arch list, and {remedy}",
        )
    more = cuda_archs.ordered(frozenset(facts.archs) - wanted_sm) if archs else ()
    if more and exact:
        return Judgement(note=f"more architectures than requested: {', '.join(more)}")
    return Judgement(note=", ".join(runs_as) if wanted.required and not exact else "")


def judge_blank_code(facts: LibraryFacts) -> Judgement | None:
    """Judge whether a library's device code was overwritten with zeros; None if not."""
    if not facts.blank:
        return None
    return Judgement(f"device code ({cuda_archs.SECTIONS[0]}) is all zeros", "download or build it again")


def judge_runtime(facts: LibraryFacts, major: int | None) -> Judgement | None:
    """Judge whether a library links to the CUDA runtime ``major``; None if it does, or links to none."""
    if major is None or facts.cuda_runtime in (None, major):
        return None
    return Judgement(
        f"links to CUDA {facts.cuda_runtime} (libcudart.so.{facts.cuda_runtime}), torch to CUDA {major}",
        f"install a build for CUDA {major}, or rebuild with CUDA_HOME pointing at CUDA {major}",
    )


def judge_python(pythons: Sequence[tuple[str, str]], python: str | None) -> Judgement | None:
    """Judge whether a library was built for ``python`` (None: any); None if it was, or names no Python.

    `pythons`: the versions that it names, each with its evidence.
    """
    others = [(version, evidence) for version, evidence in pythons if version != python]
    if python is None or not others or any(version == "abi3" for version, _ in others):
        return None
    version, evidence = others[0]
    return Judgement(
        f"built for Python {version} ({evidence}), not for {python}",
        f"install the build for Python {python}, or rebuild with that Python",
    )


def judge_abi(facts: LibraryFacts) -> Judgement | None:
    """Judge whether a library for every later torch uses only torch's stable ABI; None if it does."""
    needed = cpp_symbols(facts.undefined)
    if not needed:
        return None
    more = f" and {len(needed) - 1} more symbols" if len(needed) > 1 else ""
    return Judgement(
        f"not for every later torch: needs {readable(needed[0])}{more} of torch's C++, fixed per minor version",
        "pin torch to one minor version: set pyg_torch_pin: [minor] in the config",
    )


def _as_number(arch: str) -> tuple[int, int]:
    major, _, minor = arch.strip().removesuffix("+PTX").rstrip("af").partition(".")
    return int(major), int(minor or 0)
