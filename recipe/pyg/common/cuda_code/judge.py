"""Judges whether the libraries of one module are what a config asks for, with reason and remedy if not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cuda_code import cuda_archs
from cuda_code.kernels import CPU, CUDA, KERNELS, LibraryName, Module, split
from cuda_code.library_facts import STABLE_ABI, LibraryFacts, NamedPython
from cuda_code.torch_abi import cpp_symbols, readable


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The expected properties of a module's libraries."""

    #: True for CUDA, False for CPU, None if unknown: then CUDA if any library has device code or links to CUDA.
    cuda: bool | None = None
    cuda_major: int | None = None  #: Major version of the CUDA runtime.
    archs: tuple[str, ...] = ()  #: Architectures such as ``9.0`` and ``12.0+PTX``; empty: any.
    #: Require machine code for each architecture; otherwise any code that such a GPU can run is enough. ``+PTX`` always
    #: requires PTX.
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
    cuda = wanted.cuda
    if cuda is None:
        cuda = any(facts.units or facts.links_cuda for facts in libraries)
    paths = [*unread, *(facts.path for facts in libraries)]
    names = {path.rpartition("/")[2] for path in paths}
    judgements = {facts.path: _judge_library(facts, names, table, cuda, wanted) for facts in libraries}
    found = {split(name).stem for name in names}
    for stem in sorted((table.kernels | table.plain) - found):
        judgements[_name_library(stem, table, cuda)] = Judgement(
            f"{module} has no library for {stem}", "build the module again: its package is incomplete"
        )
    return judgements


def _name_library(stem: str, table: Module, cuda: bool) -> str:
    if not table.flavours:
        return f"lib{stem}.so"
    if cuda:
        return f"_{stem}_{CUDA}.so"
    return f"_{stem}_{CPU}.so"


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
    name = split(facts.file_name)
    wrong = judge_python(facts.pythons, wanted.python)
    if wrong:
        return wrong
    if not cuda:
        return judge_for_cpu(facts)
    if name.flavour == CPU and f"_{name.stem}_{CUDA}.so" in names:
        return Judgement(note=f"_{name.stem}_{CUDA}.so is loaded instead")
    return judge_blank_code(facts) or _judge_cuda_library(facts, name, table, wanted)


def _judge_cuda_library(facts: LibraryFacts, name: LibraryName, table: Module, wanted: Wanted) -> Judgement:
    oldest = _as_number(table.oldest)
    archs = tuple(arch for arch in wanted.archs if _as_number(arch) >= oldest)
    has_kernels = name.stem in table.kernels
    if name.flavour == CPU or (has_kernels and not facts.units):
        return _without_cuda(facts, name.flavour, archs)
    wrong = judge_runtime(facts, wanted.cuda_major)
    if wrong:
        return wrong
    if has_kernels:
        return judge_archs(facts, replace(wanted, archs=archs))
    if name.stem in table.plain and facts.units:
        return Judgement(note="has device code, although upstream has none for it")
    return Judgement()


def judge_for_cpu(facts: LibraryFacts) -> Judgement:
    """Judge whether a library is for a CPU build of torch."""
    if facts.units:
        sign = "has device code"
    elif facts.links_cuda:
        sign = "links to CUDA"
    elif split(facts.file_name).flavour == CUDA:
        sign = "is named for CUDA"
    else:
        return Judgement()
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
    if flavour == CPU:
        signs.append("named for the CPU")
    arch_list = " and TORCH_CUDA_ARCH_LIST set"
    if archs:
        arch_list = f' TORCH_CUDA_ARCH_LIST="{";".join(archs)}"'
    return Judgement(
        f"compiled without CUDA: {', '.join(signs)}",
        f"rebuild with nvcc, a CUDA build of torch and FORCE_CUDA=1{arch_list}",
    )


def judge_archs(facts: LibraryFacts, wanted: Wanted) -> Judgement:
    """Judge whether a library has code for the wanted architectures."""
    wanted_sm, wanted_ptx = cuda_archs.wanted(wanted.archs)
    lacking = _find_lacking(facts, wanted_sm, exact=wanted.exact)
    lacks_all = wanted_sm <= set(lacking)
    lacking += [f"PTX for {name}" for name in cuda_archs.ordered(wanted_ptx - set(facts.ptx))]
    remedy = f'rebuild with TORCH_CUDA_ARCH_LIST="{";".join(wanted.archs)}"'
    if lacking:
        code = [*facts.archs, *(f"PTX {name}" for name in facts.ptx)]
        lack = f"no code for {', '.join(lacking)} (it has {', '.join(code) or 'none'})"
        if wanted.required or lacks_all:
            return Judgement(lack, remedy)
        return Judgement(note=lack)
    if not wanted.exact:
        return Judgement(note=_describe_substitutes(facts, wanted))
    partial = list(_find_partial(facts, wanted_sm))
    if partial and wanted.required:
        return Judgement(
            f"some objects lack code: {', '.join(partial)} of {len(facts.units)}",
            f"delete the build folder, which has objects of another arch list, and {remedy}",
        )
    more = cuda_archs.ordered(frozenset(facts.archs) - wanted_sm)
    if more and wanted.archs:
        return Judgement(note=f"more architectures than requested: {', '.join(more)}")
    return Judgement()


def _find_lacking(facts: LibraryFacts, wanted: frozenset[str], *, exact: bool) -> list[str]:
    """Return the architectures that lack machine code, or any code if it need not be exact."""
    having = set(facts.archs)
    if not exact:
        having = {name for name in wanted if cuda_archs.code_for(name, facts.archs, facts.ptx)}
    return list(cuda_archs.ordered(wanted - having))


def _describe_substitutes(facts: LibraryFacts, wanted: Wanted) -> str:
    """Return a clause about each architecture that runs another one's code; empty if code is not required."""
    clauses = []
    if wanted.required:
        wanted_sm, _ = cuda_archs.wanted(wanted.archs)
        for name in cuda_archs.ordered(wanted_sm):
            code = cuda_archs.code_for(name, facts.archs, facts.ptx)
            if code.startswith("compute_"):
                clauses.append(f"{name} compiles the PTX for {code} at first use")
            elif code != name:
                clauses.append(f"{name} runs it as {code}")
    return ", ".join(clauses)


def _find_partial(facts: LibraryFacts, wanted: frozenset[str]) -> Iterator[str]:
    """Yield the architectures that some translation units lack, each with the number of units that have it."""
    for name in cuda_archs.ordered(wanted.intersection(facts.archs)):
        having = sum(1 for unit in facts.units if name in unit.sm)
        if having < len(facts.units):
            yield f"{name} in {having}"


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


def judge_python(pythons: Sequence[NamedPython], python: str | None) -> Judgement | None:
    """Judge whether a library was built for ``python`` (None: any); None if it was, or names no Python."""
    if python is None:
        return None
    others = [named for named in pythons if named.version != python]
    if not others or any(named.version == STABLE_ABI for named in others):
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
    more = ""
    if len(needed) > 1:
        more = f" and {len(needed) - 1} more symbols"
    return Judgement(
        f"not for every later torch: needs {readable(needed[0])}{more} of torch's C++, fixed per minor version",
        "pin torch to one minor version: set pyg_torch_pin: [minor] in the config",
    )


def _as_number(arch: str) -> tuple[int, int]:
    major, _, minor = arch.strip().removesuffix("+PTX").rstrip("af").partition(".")
    return int(major), int(minor or 0)
