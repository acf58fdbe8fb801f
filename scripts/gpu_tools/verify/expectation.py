"""Compares the libraries of one module with the user's request, the torch they must fit, and their metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cuda_code.judge import (
    Judgement,
    Wanted,
    judge_abi,
    judge_archs,
    judge_blank_code,
    judge_for_cpu,
    judge_python,
    judge_runtime,
)
from cuda_code.kernels import KERNELS, TORCH_KERNELS, TORCH_MAY_HAVE_KERNELS, split
from cuda_code.library_facts import STABLE_ABI, TORCH_HEADERS, LibraryFacts, NamedAccelerator, NamedPython
from cuda_code.torch_abi import readable
from gpu_tools.verify.build_target import CPU, BuildTarget, fits_torch
from gpu_tools.verify.installed_torch import InstalledTorch, library_name
from gpu_tools.verify.subject import TORCH
from groundwork.errors import UsageError

#: The libraries that represent torch's two parts: a fault of a part is reported for its library.
_LIBTORCH = "libtorch_cpu.so"
_LIBTORCH_CUDA = "libtorch_cuda.so"
_PARTS = frozenset({_LIBTORCH, "libtorch_python.so"})
#: A build for one version of CUDA among several in a package: ``libbitsandbytes_cuda128.so``.
_CUDA_IN_NAME = re.compile(r"_cuda(\d\d)(\d)(?=[_.])")
_TORCHAUDIO = "torchaudio"
_ACCELERATOR = re.compile(r"cpu|cuda(\d+)(\d)")


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The expected properties of a subject's libraries."""

    accelerator: str = ""  #: ``cpu`` or ``cuda130``; empty if unknown.
    #: CUDA architectures as in ``TORCH_CUDA_ARCH_LIST``: ``9.0``, ``12.0+PTX``; empty: any.
    archs: tuple[str, ...] = ()
    python: str | None = None  #: ``3.12``; None: any, or a module with the stable ABI.
    torch_version: str | None = None  #: ``2.13.0``; None: any.
    #: Require machine code for each architecture; otherwise any code that such a GPU can run is enough.
    exact_archs: bool = True

    def __post_init__(self) -> None:
        if self.accelerator and not _ACCELERATOR.fullmatch(self.accelerator):
            raise UsageError(
                f"{self.accelerator}: unknown accelerator",
                "pass cpu, or cuda with a version, such as cuda130",
            )

    @property
    def cuda(self) -> bool | None:
        """True for CUDA, False for CPU, None if unknown."""
        if not self.accelerator:
            return None
        return self.accelerator != CPU

    @property
    def cuda_version(self) -> str | None:
        """``13.0`` for ``cuda130``."""
        match = _ACCELERATOR.fullmatch(self.accelerator)
        if match is None or not match[1]:
            return None
        return f"{match[1]}.{match[2]}"

    def filled(self, other: Expectation) -> Expectation:
        """Return a copy with unset values taken from ``other``."""
        return Expectation(
            accelerator=self.accelerator or other.accelerator,
            archs=self.archs or other.archs,
            exact_archs=self.exact_archs if self.archs else other.exact_archs,
            python=self.python or other.python,
            torch_version=self.torch_version or other.torch_version,
        )


@dataclass(frozen=True, kw_only=True)
class ModuleContext:
    """The data to compare one module's libraries with."""

    name: str
    names: frozenset[str]  #: File names of all its libraries.
    asked: Expectation  #: The user's request.
    expected: Expectation  #: The request, filled from the torch that the module must fit.
    torch: InstalledTorch | None  #: The torch that the module must fit.
    target: BuildTarget  #: The build target in the metadata.
    python: str | None = None  #: The Python of the examined environment.
    machine: str = ""  #: The environment's processor: ``x86_64``.
    #: An environment's module that links to torch and that :data:`KERNELS` does not list.
    only_uses_torch: bool = False
    #: Some library of the package, of no module in :data:`KERNELS`, has device code.
    package_has_code: bool = False

    @property
    def wants_cuda(self) -> bool | None:
        """Whether the user asked for CUDA; asking for an architecture implies it. None if not asked."""
        if self.asked.archs:
            return True
        return self.asked.cuda

    @property
    def expects_cuda(self) -> bool | None:
        """Whether a CUDA build is expected: by the user, else for the torch, else by the metadata. None if unknown."""
        if self.wants_cuda is not None:
            return self.wants_cuda
        if self.expected.cuda is not None:
            return self.expected.cuda
        if self.target.cuda is not None:
            return self.target.cuda != CPU
        return None

    @property
    def wanted(self) -> Wanted:
        """The expectation for each library, for :mod:`cuda_code.judge`."""
        expected = self.expected
        cuda = self.expects_cuda
        cuda_major = None
        cuda_version = expected.cuda_version or self.target.cuda_version
        if cuda_version:
            cuda_major = int(cuda_version.split(".")[0])
        python = None
        if self.target.python != STABLE_ABI:
            python = expected.python or self.target.python
        return Wanted(
            cuda=cuda,
            cuda_major=cuda_major,
            archs=() if cuda is False else expected.archs,
            exact=expected.exact_archs,
            required=bool(self.asked.archs),
            python=python,
        )


def judge_contents(module: ModuleContext, facts: LibraryFacts) -> Judgement:
    """Judge the content of a library of torch, or of a module that :data:`KERNELS` does not list."""
    wanted = module.wanted
    if module.name == TORCH:
        return judge_runtime(facts, wanted.cuda_major) or _judge_torch_code(facts, wanted)
    wrong = (
        judge_python(_find_pythons(module, facts), wanted.python)
        or judge_runtime(facts, wanted.cuda_major)
        or judge_blank_code(facts)
    )
    if wrong:
        return wrong
    if module.asked.archs and facts.units:
        return judge_archs(facts, wanted)
    if module.asked.cuda is False:
        return judge_for_cpu(facts)
    return Judgement()


def _find_pythons(module: ModuleContext, facts: LibraryFacts) -> Sequence[NamedPython]:
    """Return the Pythons that a library was built for."""
    if module.only_uses_torch and not facts.uses_python:  # torch loads it, as xformers/_C.so, in any Python
        return [python for python in facts.pythons if python.evidence != TORCH_HEADERS]
    return facts.pythons


def _judge_torch_code(facts: LibraryFacts, wanted: Wanted) -> Judgement:
    name = library_name(facts.path)
    if wanted.cuda is False or name not in TORCH_KERNELS | TORCH_MAY_HAVE_KERNELS:
        return Judgement()
    if not facts.units:
        if name in TORCH_MAY_HAVE_KERNELS:
            return Judgement()
        return Judgement(
            "libtorch was compiled without device code",
            "build libtorch again with USE_CUDA=1 and TORCH_CUDA_ARCH_LIST set",
        )
    archs = tuple(arch.removesuffix("+PTX") for arch in wanted.archs)
    names = {f"sm_{arch.replace('.', '')}" for arch in archs}
    own = {arch.rstrip("af") for arch in facts.archs}  # 9.0a alone is enough for 9.0
    exact = wanted.exact and not names <= own
    judgement = judge_archs(facts, replace(wanted, archs=archs, exact=exact))
    if judgement.ok:
        return judgement
    if name in TORCH_MAY_HAVE_KERNELS:  # the official wheels omit some
        return Judgement(note=judgement.reason)
    return Judgement(judgement.reason, f"build libtorch again: {judgement.remedy}")


def judge_fit(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge whether a library fits the torch in its environment and its metadata; None if it does."""
    if module.name == TORCH:
        return _judge_torch_part(module, facts)
    wrong = None
    if module.target.later:
        wrong = judge_abi(facts)
    return wrong or _judge_target(module, facts) or _judge_symbols(module, facts)


def _judge_target(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge whether the build target in a module's metadata fits the expectation; None if it does."""
    target = module.target
    expected = module.expected
    torch = expected.torch_version
    if target.torch and torch and not fits_torch(target.torch, torch, later=facts.stable_abi):
        reason = f"built for torch {target.torch} ({target.source}), not for {torch}"
        return Judgement(reason, _install_build(module))
    python = expected.python
    if target.python not in (None, STABLE_ABI, python) and python is not None:
        return Judgement(
            f"built for Python {target.python} ({target.source}), not for {python}",
            f"install the build for Python {python}, or rebuild with that Python",
        )
    cuda = expected.cuda_version or CPU
    if target.cuda and expected.accelerator and _clashes(module.name, target.cuda, cuda):
        reason = f"built for {_processor(target.cuda)} ({target.source}), not for {_processor(cuda)}"
        return Judgement(reason, _install_build(module))
    return None


def _judge_symbols(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge whether the environment's torch has the symbols and headers that a library needs; None if it does."""
    torch = module.torch
    if torch is None:
        return None
    lacks = torch.lacks(facts.undefined)
    if lacks:
        reason = f"built for another torch: {torch.version} has no {readable(lacks[0])}{_more(lacks)}"
        return Judgement(reason, _install_build(module))
    if facts.stable_abi:
        return None
    denied = torch.denies(facts.assertions)
    if denied:
        at = f"{denied[0]}{_more(denied)}"
        reason = f"built for another torch: its headers differ from {torch.version} at {at}"
        return Judgement(reason, _install_build(module))
    return None


def _install_build(module: ModuleContext) -> str:
    build = f"a build of {module.name} for torch {module.expected.torch_version}"
    return f"install {build}, or compile it in that environment with --no-build-isolation"


def _clashes(name: str, built_for: str, cuda: str) -> bool:
    """Return whether a module for one CUDA (or ``cpu``) cannot run with torch for another.

    torchvision and others accept another minor version of CUDA; torchaudio refuses it (torchaudio 2.11,
    _extension/utils.py).
    """
    if name in KERNELS or name == _TORCHAUDIO:
        return built_for != cuda
    return built_for.partition(".")[0] != cuda.partition(".")[0]


def _more(items: Sequence[str]) -> str:
    if len(items) <= 1:
        return ""
    return f" (and {len(items) - 1} more)"


def _processor(cuda: str) -> str:
    if cuda == CPU:
        return "the CPU"
    return f"CUDA {cuda}"


def _judge_torch_part(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge a library that represents a part of torch against the request for torch."""
    if library_name(facts.path) not in _PARTS:
        return None
    remedy = "install another build of torch"
    target = module.target
    has_cuda: bool | None = None
    if _LIBTORCH in module.names:
        has_cuda = _LIBTORCH_CUDA in module.names
    elif target.cuda is not None:
        has_cuda = target.cuda != CPU
    if None not in (module.wants_cuda, has_cuda) and has_cuda != module.wants_cuda:
        how = "with" if has_cuda else "without"
        return Judgement(f"torch was built {how} CUDA", remedy)
    asked = module.asked.cuda_version
    if asked and target.cuda and target.cuda != asked:
        return Judgement(f"torch was built for CUDA {target.cuda}, not for CUDA {asked}", remedy)
    return None


def judge_accelerator(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge a library for an accelerator other than CUDA, or with such a torch; None if all is for CUDA or CPU.

    The library is wrong if the user asked for another accelerator, and otherwise unknown.
    """
    own = facts.other or NamedAccelerator(module.target.other, module.target.source)
    torch = module.torch
    if own.name:
        asked = module.asked.accelerator
        if asked:
            reason = f"built for {own.name} ({own.evidence}), not for {asked}"
            return Judgement(reason, f"install the build for {asked}")
        return _unsupported(own)
    if torch and torch.other and module.name != TORCH:
        evidence = f"torch {torch.version} in the environment"
        return _unsupported(NamedAccelerator(torch.other, evidence))
    return None


def _unsupported(other: NamedAccelerator) -> Judgement:
    return Judgement(f"for {other.name} ({other.evidence}), which verify does not support", unknown=True)


def find_accelerator(module: ModuleContext, facts: LibraryFacts) -> str | None:
    """Return the CUDA version or accelerator that a library shows, ``cpu``, or else the value in its metadata."""
    target = module.target
    if facts.other:
        return facts.other.name
    if target.other:
        return target.other
    if facts.cuda_runtime:
        return str(facts.cuda_runtime)
    if facts.units or facts.links_cuda:
        return target.cuda or _cuda_of_name(facts.path)
    name = split(facts.path.rpartition("/")[2])
    lacks_kernels = module.name in KERNELS and name.stem in KERNELS[module.name].kernels
    if name.flavour == CPU or facts.says_not_compiled or lacks_kernels:
        return CPU
    return target.cuda


def judge_silence(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge whether a library shows that it is as requested; None if it does, or nothing was requested."""
    if module.wants_cuda is None or module.only_uses_torch or not _is_silent(module, facts):
        return None
    return Judgement(
        "cannot determine whether it was compiled with CUDA and has its device code",
        "pass the environment it is for with --beside, or get a build whose name or dependencies state it",
        unknown=True,
    )


def _is_silent(module: ModuleContext, facts: LibraryFacts) -> bool:
    """Return whether a library shows no sign of the requested build, though another build would differ."""
    name = library_name(facts.path)
    if module.name == TORCH:
        is_alone = name in _PARTS and _LIBTORCH not in module.names
        return is_alone and (module.target.cuda is None or bool(module.asked.archs))
    table = KERNELS.get(module.name)
    if table and split(name).stem in table.kernels | table.plain:
        return False
    return _lacks_signs(module, facts)


def _lacks_signs(module: ModuleContext, facts: LibraryFacts) -> bool:
    """Return whether neither the library's code nor its name or metadata show the requested build."""
    built = find_accelerator(module, facts)
    if facts.units:
        # with architectures, judged by its code; the version of CUDA may be unknown
        asks_version = module.asked.cuda_version is not None or not module.asked.archs
        return built is None and asks_version
    if module.package_has_code:  # another library of the package has its code
        return False
    if built is None:
        return True
    return bool(module.wants_cuda and (module.asked.archs or built == CPU))


def _cuda_of_name(path: str) -> str | None:
    match = _CUDA_IN_NAME.search(path.rpartition("/")[2])
    if match is None:
        return None
    return f"{match[1]}.{match[2]}"


def judge_builds(
    module: ModuleContext, by_path: Mapping[str, LibraryFacts], judgements: Mapping[str, Judgement]
) -> dict[str, Judgement]:
    """Judge a package with builds of a library for several CUDA versions, ``libx_cuda118.so``, of which one is loaded.

    If a CUDA version is expected, its build is judged. Otherwise one fitting build is enough. Return the judgements of
    the others.
    """
    builds: dict[str, dict[str, str]] = {}
    for path in by_path:
        cuda = _cuda_of_name(path)
        if cuda:
            library = _CUDA_IN_NAME.sub("_cuda", path)
            builds.setdefault(library, {})[cuda] = path
    replaced: dict[str, Judgement] = {}
    for by_cuda in builds.values():
        if len(by_cuda) > 1:
            replaced |= _judge_other_builds(by_cuda, judgements, module.expected.cuda_version)
    return replaced


def _judge_other_builds(
    by_cuda: Mapping[str, str], judgements: Mapping[str, Judgement], wanted: str | None
) -> dict[str, Judgement]:
    """Return the judgements of builds of a library, by path, that the wanted CUDA version (None: any) does not load."""
    others: dict[str, Judgement] = {}
    if wanted in by_cuda:
        for cuda, path in by_cuda.items():
            if cuda != wanted:
                others[path] = Judgement(note=f"not judged: CUDA {wanted} loads the build for CUDA {wanted}")
        return others
    fitting = [cuda for cuda, path in by_cuda.items() if judgements[path].ok]
    if not fitting:
        return {}
    hint = "pass the CUDA of your torch with --accelerator cudaNNN"
    fit = f"the builds for CUDA {', '.join(fitting)} are as expected: {hint}"
    for cuda, path in by_cuda.items():
        if cuda not in fitting:
            others[path] = Judgement(note=f"{judgements[path].reason}; {fit}")
    return others
