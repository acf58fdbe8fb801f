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
from cuda_code.library_facts import TORCH_HEADERS, LibraryFacts
from cuda_code.torch_abi import readable
from gpu_tools.verify.build_target import BuildTarget, fits_torch
from gpu_tools.verify.installed_torch import InstalledTorch, library_name
from groundwork.errors import UsageError

#: The libraries that represent torch's two parts: a fault of a part is reported for its library.
_PARTS = frozenset({"libtorch_cpu.so", "libtorch_python.so"})
#: A build for one version of CUDA among several in a package: ``libbitsandbytes_cuda128.so``.
_CUDA_IN_NAME = re.compile(r"_cuda(\d\d)(\d)(?=[_.])")
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
        return self.accelerator != "cpu" if self.accelerator else None

    @property
    def cuda_version(self) -> str | None:
        """``13.0`` for ``cuda130``."""
        match = _ACCELERATOR.fullmatch(self.accelerator)
        return f"{match[1]}.{match[2]}" if match and match[1] else None

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
        return True if self.asked.archs else self.asked.cuda

    @property
    def wanted(self) -> Wanted:
        """The expectation for each library, for :mod:`cuda_code.judge`."""
        expected, target = self.expected, self.target
        cuda_version = expected.cuda_version or (target.cuda if target.cuda not in (None, "cpu") else None)
        cuda = expected.cuda if self.wants_cuda is None else self.wants_cuda
        if cuda is None and target.cuda is not None:
            cuda = target.cuda != "cpu"
        return Wanted(
            cuda=cuda,
            cuda_major=int(cuda_version.split(".")[0]) if cuda_version else None,
            archs=expected.archs if cuda is not False else (),
            exact=expected.exact_archs,
            required=bool(self.asked.archs),
            python=None if target.python == "abi3" else expected.python or target.python,
        )


def judge_contents(module: ModuleContext, facts: LibraryFacts) -> Judgement:
    """Judge the content of a library of torch, or of a module that :data:`KERNELS` does not list."""
    wanted = module.wanted
    if module.name == "torch":
        return judge_runtime(facts, wanted.cuda_major) or _judge_torch_code(facts, wanted)
    pythons = facts.pythons
    if module.only_uses_torch and not facts.uses_python:  # torch loads it, as xformers/_C.so, in any Python
        pythons = tuple(python for python in pythons if python[1] != TORCH_HEADERS)
    wrong = judge_python(pythons, wanted.python) or judge_runtime(facts, wanted.cuda_major)
    if wrong := wrong or judge_blank_code(facts):
        return wrong
    if module.asked.archs and facts.units:
        return judge_archs(facts, wanted)
    return judge_for_cpu(facts) if module.asked.cuda is False else Judgement()


def _judge_torch_code(facts: LibraryFacts, wanted: Wanted) -> Judgement:
    name = library_name(facts.path)
    if name in TORCH_KERNELS and not facts.units and wanted.cuda is not False:
        return Judgement(
            "libtorch was compiled without device code",
            "build libtorch again with USE_CUDA=1 and TORCH_CUDA_ARCH_LIST set",
        )
    if name not in TORCH_KERNELS | TORCH_MAY_HAVE_KERNELS or not facts.units or wanted.cuda is False:
        return Judgement()
    archs = tuple(arch.removesuffix("+PTX") for arch in wanted.archs)
    own = {arch.rstrip("af") for arch in facts.archs}  # 9.0a alone is enough for 9.0
    exact = wanted.exact and not {f"sm_{arch.replace('.', '')}" for arch in archs} <= own
    judgement = judge_archs(facts, replace(wanted, archs=archs, exact=exact))
    if judgement.ok:
        return judgement
    if name in TORCH_MAY_HAVE_KERNELS:  # the official wheels omit some
        return Judgement(note=judgement.reason)
    return Judgement(judgement.reason, f"build libtorch again: {judgement.remedy}")


def judge_fit(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge whether a library fits the torch in its environment and its metadata; None if it does."""
    if module.name == "torch":
        return _judge_torch_part(module, facts)
    target, expected, torch = module.target, module.expected, module.torch
    if target.later and (wrong := judge_abi(facts)):
        return wrong
    reason, python = "", expected.python
    build = f"a build of {module.name} for torch {expected.torch_version}"
    remedy = f"install {build}, or compile it in that environment with --no-build-isolation"
    cuda = expected.cuda_version or "cpu"
    if (
        target.torch
        and expected.torch_version
        and not fits_torch(target.torch, expected.torch_version, later=facts.stable_abi)
    ):
        reason = f"built for torch {target.torch} ({target.source}), not for {expected.torch_version}"
    elif target.python not in (None, "abi3", python) and python is not None:
        reason = f"built for Python {target.python} ({target.source}), not for {python}"
        remedy = f"install the build for Python {python}, or rebuild with that Python"
    elif target.cuda and expected.accelerator and _clashes(module.name, target.cuda, cuda):
        reason = f"built for {_processor(target.cuda)} ({target.source}), not for {_processor(cuda)}"
    elif torch and (lacks := torch.lacks(facts.undefined)):
        reason = f"built for another torch: {torch.version} has no {readable(lacks[0])}{_more(lacks)}"
    elif torch and not facts.stable_abi and (denied := torch.denies(facts.assertions)):
        reason = (
            f"built for another torch: its headers differ from {torch.version} at {denied[0]}{_more(denied)}"
        )
    return Judgement(reason, remedy) if reason else None


def _clashes(name: str, built_for: str, cuda: str) -> bool:
    """Return whether a module for one CUDA (or ``cpu``) cannot run with torch for another.

    torchvision and others accept another minor version of CUDA; torchaudio refuses it (torchaudio 2.11,
    _extension/utils.py).
    """
    if name in KERNELS or name == "torchaudio":
        return built_for != cuda
    return built_for.partition(".")[0] != cuda.partition(".")[0]


def _more(items: Sequence[str]) -> str:
    return f" (and {len(items) - 1} more)" if len(items) > 1 else ""


def _processor(cuda: str) -> str:
    return "the CPU" if cuda == "cpu" else f"CUDA {cuda}"


def _judge_torch_part(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge a library that represents a part of torch against the request for torch."""
    asked, target, has_libtorch = module.asked, module.target, "libtorch_cpu.so" in module.names
    if library_name(facts.path) not in _PARTS:
        return None
    reason = ""
    has_cuda = "libtorch_cuda.so" in module.names if has_libtorch else target.cuda not in (None, "cpu")
    is_known = has_libtorch or target.cuda is not None
    if module.wants_cuda is not None and is_known and has_cuda != module.wants_cuda:
        reason = f"torch was built {'with' if has_cuda else 'without'} CUDA"
    elif asked.cuda_version and target.cuda and target.cuda != asked.cuda_version:
        reason = f"torch was built for CUDA {target.cuda}, not for CUDA {asked.cuda_version}"
    remedy = "install another build of torch"
    return Judgement(reason, remedy) if reason else None


def judge_accelerator(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge a library for an accelerator other than CUDA, or with such a torch; None if all is for CUDA or CPU.

    The library is wrong if the user asked for another accelerator, and otherwise unknown.
    """
    name, evidence = facts.other or (module.target.other, module.target.source)
    if name and (asked := module.asked.accelerator):
        reason = f"built for {name} ({evidence}), not for {asked}"
        return Judgement(reason, f"install the build for {asked}")
    if not name and module.name != "torch" and module.torch and module.torch.other:
        name, evidence = module.torch.other, f"torch {module.torch.version} in the environment"
    reason = f"for {name} ({evidence}), which verify does not support"
    return Judgement(reason, unknown=True) if name else None


def find_accelerator(module: ModuleContext, facts: LibraryFacts) -> str | None:
    """Return the CUDA version or accelerator that a library shows, ``cpu``, or else the value in its metadata."""
    if other := facts.other or ((module.target.other,) if module.target.other else None):
        return other[0]
    if facts.cuda_runtime:
        return str(facts.cuda_runtime)
    if facts.units or facts.links_cuda:
        return module.target.cuda or _cuda_of_name(facts.path)
    stem, flavour = split(facts.path.rpartition("/")[2])
    lacks_kernels = module.name in KERNELS and stem in KERNELS[module.name].kernels
    return "cpu" if flavour == "cpu" or facts.says_not_compiled or lacks_kernels else module.target.cuda


def judge_silence(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge whether a library shows that it is as requested; None if it does, or nothing was requested."""
    name, table = library_name(facts.path), KERNELS.get(module.name)
    if module.wants_cuda is None or module.only_uses_torch:
        return None
    if module.name == "torch":
        decides = name in _PARTS and "libtorch_cpu.so" not in module.names
        is_open = decides and (module.target.cuda is None or bool(module.asked.archs))
    elif table and split(name)[0] in table.kernels | table.plain:
        is_open = False
    else:
        is_open = _is_silent(module, facts)
    reason = "cannot determine whether it was compiled with CUDA and has its device code"
    remedy = (
        "pass the environment it is for with --beside, or get a build whose name or dependencies state it"
    )
    return Judgement(reason, remedy, unknown=True) if is_open else None


def _is_silent(module: ModuleContext, facts: LibraryFacts) -> bool:
    """Return whether a library shows no sign of the requested build, and needs none: no torch, no extension."""
    built = find_accelerator(module, facts)
    if facts.units and module.asked.archs:  # judged by its code; the version of CUDA may be unknown
        return built is None and module.asked.cuda_version is not None
    if not facts.units and module.package_has_code:  # another library of the package has its code
        return False
    lacks = module.wants_cuda and not facts.units and (module.asked.archs or built == "cpu")
    return built is None or bool(lacks)


def _cuda_of_name(path: str) -> str | None:
    match = _CUDA_IN_NAME.search(path.rpartition("/")[2])
    return f"{match[1]}.{match[2]}" if match else None


def judge_builds(
    module: ModuleContext, by_path: Mapping[str, LibraryFacts], judgements: Mapping[str, Judgement]
) -> dict[str, Judgement]:
    """Judge a package with builds of a library for several CUDA versions, ``libx_cuda118.so``, of which one is loaded.

    If a CUDA version is expected, its build is judged. Otherwise one fitting build is enough. Return the judgements of
    the others.
    """
    builds: dict[str, dict[str, str]] = {}
    for path in by_path:
        if cuda := _cuda_of_name(path):
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
    if wanted in by_cuda:
        note = f"not judged: CUDA {wanted} loads the build for CUDA {wanted}"
        return {path: Judgement(note=note) for cuda, path in by_cuda.items() if cuda != wanted}
    fitting = [cuda for cuda, path in by_cuda.items() if judgements[path].ok]
    if not fitting:
        return {}
    others = f"the builds for CUDA {', '.join(fitting)} are as expected"
    hint = "pass the CUDA of your torch with --accelerator cudaNNN"
    return {
        path: Judgement(note=f"{judgements[path].reason}; {others}: {hint}")
        for cuda, path in by_cuda.items()
        if cuda not in fitting
    }
