"""Judges one library: its device code, accelerator and Python, against the request and its metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cuda_code.judge import (
    Judgement,
    Wanted,
    judge_archs,
    judge_blank_code,
    judge_for_cpu,
    judge_python,
    judge_runtime,
)
from cuda_code.kernels import KERNELS, TORCH_KERNELS, TORCH_MAY_HAVE_KERNELS, split
from cuda_code.library_facts import TORCH_HEADERS, LibraryFacts, NamedAccelerator, NamedPython
from gpu_tools.verify.build_target import CPU
from gpu_tools.verify.expectation import LIBTORCH, TORCH_PARTS, ModuleContext
from gpu_tools.verify.installed_torch import library_name
from gpu_tools.verify.judge_builds import cuda_of_name
from gpu_tools.verify.subject import TORCH


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
        return target.cuda or cuda_of_name(facts.path)
    name = split(facts.file_name)
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
        is_alone = name in TORCH_PARTS and LIBTORCH not in module.names
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
