"""The libraries of one module: compared with what the user asked, the torch beside them, and their metadata."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
from cuda_code.library_facts import LibraryFacts
from cuda_code.torch_abi import readable
from gpu_tools.verify.build_target import BuildTarget, fits_torch
from gpu_tools.verify.installed_torch import TorchBeside, library_name
from groundwork.errors import UsageError
from groundwork.names import cuda_archs

#: The libraries that stand for torch's two parts; what is wrong with a part is said of them.
_PARTS = frozenset({"libtorch_cpu.so", "libtorch_python.so"})
_ACCELERATOR = re.compile(r"cpu|cuda(\d+)(\d)")


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What the libraries of a subject should be."""

    accelerator: str  #: ``cpu`` or ``cuda130``; an empty string for what is not known.
    #: CUDA architectures as in ``TORCH_CUDA_ARCH_LIST``: ``9.0``, ``12.0+PTX``; none: any will do.
    archs: tuple[str, ...] = ()
    python: str | None = None  #: ``3.12``; None for any, or for a module of the stable ABI.
    torch_version: str | None = None  #: ``2.13.0``; None for any.
    #: Each architecture must be there itself; otherwise something that such a GPU can run is enough.
    exact_archs: bool = True

    def __post_init__(self) -> None:
        if self.accelerator and not _ACCELERATOR.fullmatch(self.accelerator):
            raise UsageError(
                f"{self.accelerator} is not an accelerator", "give cpu, or cuda and a version: cuda130"
            )
        cuda_archs(";".join(self.archs))

    @property
    def cuda(self) -> bool | None:
        """For CUDA, or for CPU; None where that is not known."""
        return self.accelerator != "cpu" if self.accelerator else None

    @property
    def cuda_version(self) -> str | None:
        """``13.0`` for ``cuda130``."""
        match = _ACCELERATOR.fullmatch(self.accelerator)
        return f"{match[1]}.{match[2]}" if match and match[1] else None

    def filled(self, other: Expectation) -> Expectation:
        """Return this, with what is open taken from another one."""
        return replace(
            self,
            accelerator=self.accelerator or other.accelerator,
            archs=self.archs or other.archs,
            exact_archs=self.exact_archs if self.archs else other.exact_archs,
            python=self.python or other.python,
            torch_version=self.torch_version or other.torch_version,
        )


@dataclass(frozen=True, kw_only=True)
class ModuleContext:
    """What the libraries of one module are compared with."""

    name: str
    names: frozenset[str]  #: File names of all of its libraries.
    #: What the user asked, and that with what was open taken from the torch beside it.
    asked: Expectation
    expected: Expectation
    beside: TorchBeside | None
    said: BuildTarget
    machine: str = ""  #: The processor of the environment beside it: ``x86_64``.

    @property
    def wants_cuda(self) -> bool | None:
        """What the user asked: whoever asks for an architecture asks for CUDA; None where he did not."""
        return True if self.asked.archs else self.asked.cuda

    @property
    def wanted(self) -> Wanted:
        """What each library should be."""
        expected, said = self.expected, self.said
        cuda_version = expected.cuda_version or (said.cuda if said.cuda not in (None, "cpu") else None)
        cuda = expected.cuda if self.wants_cuda is None else self.wants_cuda
        if cuda is None and said.cuda is not None:
            cuda = said.cuda != "cpu"
        return Wanted(
            cuda=cuda,
            cuda_major=int(cuda_version.split(".")[0]) if cuda_version else None,
            archs=expected.archs if cuda is not False else (),
            exact=expected.exact_archs,
            explain=bool(self.asked.archs) and not expected.exact_archs,
            python=None if said.python == "abi3" else expected.python or said.python,
        )


def judge_contents(module: ModuleContext, facts: LibraryFacts) -> Judgement:
    """Judge what a library of torch's, or of a module not in the table, holds: only what is true of all of these."""
    wanted = module.wanted
    if module.name == "torch":
        return judge_runtime(facts, wanted.cuda_major) or _judge_torch_code(facts, wanted)
    wrong = judge_python(facts, wanted.python) or judge_runtime(facts, wanted.cuda_major)
    wrong = wrong or judge_blank_code(facts)
    if wrong is None and module.asked.archs and facts.units:
        wrong = judge_archs(facts, wanted)
    if wrong is None and module.asked.cuda is False:
        wrong = judge_for_cpu(facts)
    return wrong or Judgement(path=facts.path)


def _judge_torch_code(facts: LibraryFacts, wanted: Wanted) -> Judgement:
    name = library_name(facts.path)
    if name in TORCH_KERNELS and not facts.units and wanted.cuda is not False:
        return Judgement(path=facts.path, reason="libtorch was compiled without device code",
                         remedy="build libtorch again with USE_CUDA=1 and TORCH_CUDA_ARCH_LIST set")  # fmt: skip
    if name not in TORCH_KERNELS | TORCH_MAY_HAVE_KERNELS or not facts.units or wanted.cuda is False:
        return Judgement(path=facts.path)
    archs = tuple(arch.removesuffix("+PTX") for arch in wanted.archs)
    own = {arch.rstrip("af") for arch in facts.archs}  # 9.0a alone will do for 9.0
    exact = wanted.exact and not {f"sm_{arch.replace('.', '')}" for arch in archs} <= own
    judgement = judge_archs(facts, replace(wanted, archs=archs, exact=exact))
    if judgement.ok:
        return judgement
    if name in TORCH_MAY_HAVE_KERNELS:  # the official wheels leave some out
        return Judgement(path=facts.path, note=judgement.reason)
    return replace(judgement, remedy=f"build libtorch again: {judgement.remedy}")


def judge_beside(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge a library against the torch beside it and what its metadata say; None where all is well."""
    if module.name == "torch":
        return _judge_torch_part(module, facts)
    said, expected, torch = module.said, module.expected, module.beside
    if said.later and (wrong := judge_abi(facts)):
        return wrong
    reason, python = "", expected.python
    build = f"a build of {module.name} for torch {expected.torch_version}"
    remedy = f"install {build}, or compile it there: no build isolation"
    cuda = expected.cuda_version or "cpu"
    if (
        said.torch
        and expected.torch_version
        and not fits_torch(said.torch, expected.torch_version, later=facts.stable_abi)
    ):
        reason = f"built for torch {said.torch} ({said.source}), not for {expected.torch_version}"
    elif said.python not in (None, "abi3", python) and python is not None:
        reason = f"built for Python {said.python} ({said.source}), not for {python}"
        remedy = f"install the build for Python {python}, or rebuild with that Python"
    elif said.cuda and expected.accelerator and said.cuda != cuda:
        reason = f"built for {_processor(said.cuda)} ({said.source}), not for {_processor(cuda)}"
    elif torch and (lacks := torch.lacks(facts.undefined)):
        reason = f"built for another torch: {torch.version} has no {readable(lacks[0])}{_more(lacks)}"
    elif torch and not facts.stable_abi and (denied := torch.denies(facts.assertions)):
        reason = (
            f"built for another torch: its headers differ from {torch.version} at {denied[0]}{_more(denied)}"
        )
    return Judgement(path=facts.path, reason=reason, remedy=remedy) if reason else None


def _more(items: Sequence[str]) -> str:
    return f" (and {len(items) - 1} more)" if len(items) > 1 else ""


def _processor(cuda: str) -> str:
    return "the CPU" if cuda == "cpu" else f"CUDA {cuda}"


def _judge_torch_part(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge a library of torch's by what was asked of torch as a whole."""
    asked, said, has_libtorch = module.asked, module.said, "libtorch_cpu.so" in module.names
    if library_name(facts.path) not in _PARTS:
        return None
    reason = ""
    has_cuda = "libtorch_cuda.so" in module.names if has_libtorch else said.cuda not in (None, "cpu")
    is_known = has_libtorch or said.cuda is not None
    if module.wants_cuda is not None and is_known and has_cuda != module.wants_cuda:
        reason = f"torch was built {'with' if has_cuda else 'without'} CUDA"
    elif asked.cuda_version and said.cuda and said.cuda != asked.cuda_version:
        reason = f"torch was built for CUDA {said.cuda}, not for CUDA {asked.cuda_version}"
    remedy = "install the torch that you want"
    return Judgement(path=facts.path, reason=reason, remedy=remedy) if reason else None


def judge_machine(module: ModuleContext, facts: LibraryFacts, machine: str) -> Judgement | None:
    """Judge whether a library is for the processor that it should be for, and for that of the environment."""
    wanted = next((name for name in (machine, module.machine) if name and name != facts.machine), "")
    reason, remedy = f"built for {facts.machine}, not for {wanted}", f"install the build for {wanted}"
    return Judgement(path=facts.path, reason=reason, remedy=remedy) if wanted else None


def judge_accelerator(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge a library for an accelerator other than CUDA, or beside a torch for one; None where all is for CUDA or CPU.

    It is wrong where another one was asked for. Else nothing here can tell whether it works.
    """
    name, evidence = facts.other or (module.said.other, module.said.source)
    if name and (asked := module.asked.accelerator):
        reason = f"built for {name} ({evidence}), not for {asked}"
        return Judgement(path=facts.path, reason=reason, remedy=f"install the build for {asked}")
    if not name and module.name != "torch" and module.beside and module.beside.other:
        name, evidence = module.beside.other, f"the torch beside it, {module.beside.version}"
    reason = f"for {name} ({evidence}), which cannot be judged here"
    return Judgement(path=facts.path, reason=reason, unknown=True) if name else None


def find_accelerator(module: ModuleContext, facts: LibraryFacts) -> str | None:
    """Return the CUDA that a library tells of, another accelerator, ``cpu``, or else what metadata say."""
    if other := facts.other or ((module.said.other,) if module.said.other else None):
        return other[0]
    if facts.cuda_runtime:
        return str(facts.cuda_runtime)
    if facts.units or facts.links_cuda:
        return module.said.cuda
    stem, flavour = split(facts.path.rpartition("/")[2])
    lacks_kernels = module.name in KERNELS and stem in KERNELS[module.name].kernels
    return "cpu" if flavour == "cpu" or facts.says_not_compiled or lacks_kernels else module.said.cuda


def find_open_question(module: ModuleContext, facts: LibraryFacts) -> str:
    """Return what was asked of a library and cannot be told, as a sentence; empty where everything can."""
    name, table = library_name(facts.path), KERNELS.get(module.name)
    if module.wants_cuda is None:
        return ""
    if module.name == "torch":
        if name not in _PARTS or "libtorch_cpu.so" in module.names:
            return ""
        built = module.said.cuda
        question = "which device code there is: it is in libtorch" if module.asked.archs else ""
    elif table and split(name)[0] in table.kernels | table.plain:
        return ""
    else:
        built = find_accelerator(module, facts)
        lacks = module.wants_cuda and not facts.units and (module.asked.archs or built == "cpu")
        question = "whether it should have device code: it has none" if lacks else ""
    question = "whether it was compiled with CUDA" if built is None else question
    return f"nothing here tells {question}" if question else ""
