"""Questions that a user asked, as against what is known: which of them nothing at hand can answer, and torch's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cuda_code.judge import Judgement
from cuda_code.kernels import KERNELS, split
from cuda_code.library_facts import LibraryFacts
from gpu_tools.verify.build_target import BuildTarget, same_torch
from gpu_tools.verify.installed_torch import TorchBeside, library_name
from gpu_tools.verify.verdict import Expectation

#: The libraries that stand for torch's two parts; what is wrong with a part is said of them.
_PARTS = frozenset({"libtorch_cpu.so", "libtorch_python.so"})


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


def remedy(module: ModuleContext) -> str:
    """Return what to do about a question without an answer."""
    if module.name == "torch":
        return "ask all of torch: the environment that it is in, or libtorch's package"
    return (
        "name an environment with the torch that it should work with (--beside ENVIRONMENT), or take a build whose "
        "name or dependencies say it"
    )


def find_open_question(module: ModuleContext, facts: LibraryFacts) -> str:
    """Return what was asked of a library and cannot be told, as a sentence; empty where everything can."""
    name = library_name(facts.path)
    if module.name != "torch":
        open_questions = list(_of_extension(module, facts))
    elif name in _PARTS:
        open_questions = list(_of_torch(module, facts))
    else:
        return ""
    return f"nothing here tells {', or '.join(open_questions)}" if open_questions else ""


def _of_extension(module: ModuleContext, facts: LibraryFacts) -> Iterator[str]:
    asked, said, torch = module.asked, module.said, module.beside
    # beside the very torch that was asked for, its symbols and its headers' assertions were compared
    compared = torch and asked.torch_version and same_torch(asked.torch_version, torch.version)
    if asked.torch_version and said.torch is None and not compared:
        yield f"whether it was built for torch {asked.torch_version}"
    if asked.python and said.python is None and not facts.pythons:
        yield f"whether it was built for Python {asked.python}"
    table = KERNELS.get(module.name)
    if module.wants_cuda is None or (
        table and split(facts.path.rpartition("/")[2])[0] in table.kernels | table.plain
    ):
        return
    if (built := find_accelerator(module, facts)) is None:
        yield "whether it was compiled with CUDA"
    elif module.wants_cuda and not facts.units and (asked.archs or built == "cpu"):
        yield "whether it should have device code: it has none"


def _of_torch(module: ModuleContext, facts: LibraryFacts) -> Iterator[str]:
    asked, said = module.asked, module.said
    if asked.torch_version and said.torch is None:
        yield "which torch it is"
    is_python_side = library_name(facts.path) == "libtorch_python.so"
    if asked.python and said.python is None and is_python_side:
        yield f"whether it was built for Python {asked.python}"
    if module.wants_cuda is None or "libtorch_cpu.so" in module.names:
        return
    if said.cuda is None:
        yield "whether it was compiled with CUDA"
    elif asked.archs:
        yield "which device code there is: it is in libtorch"


def judge_torch_part(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge a library of torch's by what was asked of torch as a whole; None where nothing is wrong."""
    asked, said, names = module.asked, module.said, module.names
    if library_name(facts.path) not in _PARTS:
        return None
    reason = ""
    has_cuda = "libtorch_cuda.so" in names if "libtorch_cpu.so" in names else said.cuda not in (None, "cpu")
    known = "libtorch_cpu.so" in names or said.cuda is not None
    if asked.torch_version and said.torch and not same_torch(said.torch, asked.torch_version):
        reason = f"it is torch {said.torch}, not {asked.torch_version}"
    elif module.wants_cuda is not None and known and has_cuda != module.wants_cuda:
        reason = f"torch was built {'with' if has_cuda else 'without'} CUDA"
    elif asked.cuda_version and said.cuda and said.cuda != asked.cuda_version:
        reason = f"torch was built for CUDA {said.cuda}, not for CUDA {asked.cuda_version}"
    elif asked.python and said.python not in (None, "abi3", asked.python):
        reason = f"torch was built for Python {said.python} ({said.source}), not for {asked.python}"
    return (
        Judgement(path=facts.path, reason=reason, remedy="install the torch that you want")
        if reason
        else None
    )


def judge_machine(module: ModuleContext, facts: LibraryFacts, machine: str) -> Judgement | None:
    """Judge whether a library is for the processor that it should be for, and for that of the environment."""
    wanted = next((name for name in (machine, module.machine) if name and name != facts.machine), "")
    if not wanted:
        return None
    return Judgement(
        path=facts.path,
        reason=f"built for {facts.machine}, not for {wanted}",
        remedy=f"install the build for {wanted}",
    )


def other_accelerator(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge a library for an accelerator other than CUDA, or beside a torch for one; None where all is for CUDA or CPU.

    It is wrong where another one was asked for. Else nothing here can tell whether it works.
    """
    name, evidence = facts.other or (module.said.other, module.said.source)
    if name and module.asked.accelerator:
        return Judgement(
            path=facts.path,
            reason=f"built for {name} ({evidence}), not for {module.asked.accelerator}",
            remedy=f"install the build for {module.asked.accelerator}",
        )
    if not name and module.name != "torch" and module.beside and module.beside.other:
        name, evidence = module.beside.other, f"the torch beside it, {module.beside.version}"
    if not name:
        return None
    return Judgement(
        path=facts.path, reason=f"for {name} ({evidence}), which cannot be judged here", unknown=True
    )


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
