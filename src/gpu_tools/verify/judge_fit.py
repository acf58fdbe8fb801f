"""Judges whether a library fits the torch in its environment: its metadata, its symbols, and the headers it used."""

from __future__ import annotations

from collections.abc import Sequence

from cuda_code.judge import Judgement, judge_abi
from cuda_code.kernels import KERNELS
from cuda_code.library_facts import STABLE_ABI, LibraryFacts
from cuda_code.torch_abi import readable
from gpu_tools.verify.build_target import CPU, fits_torch
from gpu_tools.verify.expectation import LIBTORCH, TORCH_PARTS, ModuleContext
from gpu_tools.verify.installed_torch import library_name
from gpu_tools.verify.subject import TORCH

_LIBTORCH_CUDA = "libtorch_cuda.so"
_TORCHAUDIO = "torchaudio"


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
    if library_name(facts.path) not in TORCH_PARTS:
        return None
    remedy = "install another build of torch"
    target = module.target
    has_cuda: bool | None = None
    if LIBTORCH in module.names:
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
