"""The check itself: every library of a subject against what is expected and against the torch beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from judge import Judgement, Wanted, judge, wrong_python, wrong_runtime
from kernels import KERNELS, TORCH_KERNELS, TORCH_MAY_HAVE_KERNELS, split
from library_facts import LibraryFacts, read
from megabuild.configs.config import accelerator
from megabuild.verify.built_for import BuiltFor, same_torch
from megabuild.verify.expected import Expectation
from megabuild.verify.subject import Library, Subject, open_subject
from megabuild.verify.torch_beside import TorchBeside, readable
from megabuild.verify.verdict import LibraryVerdict, Verdict


@dataclass(frozen=True, kw_only=True)
class _Module:
    """What the libraries of one module are compared with."""

    name: str
    expected: Expectation
    beside: TorchBeside | None
    said: BuiltFor


def verify(path: Path, *, beside: Path | None = None, expect: Expectation | None = None) -> Verdict:
    """Look into a package, a wheel or an environment.

    Parameters
    ----------
    path:
        What to look into.
    beside:
        An environment whose torch it must fit; by default its own, where it is one.
    expect:
        What its libraries should be. What it leaves open is taken from the torch beside it, then from the metadata.

    Raises
    ------
    UsageError
        There is no such thing to look into, or ``beside`` is no environment with torch.
    IntegrityError
        A package or wheel is damaged.
    """
    with open_subject(path) as subject:
        if beside is None:
            return _verdict(subject, subject, expect)
        with open_subject(beside) as environment:
            return _verdict(subject, environment, expect)


def _verdict(subject: Subject, environment: Subject, expect: Expectation | None) -> Verdict:
    torch = environment.torch
    known = Expectation(accelerator="", python=environment.python)
    if torch is not None:
        known = replace(
            known,
            accelerator=accelerator(torch.cuda),
            torch_version=torch.version,
            archs=torch.archs,
            exact_archs=bool(torch.promised),
        )
    expected = (expect or Expectation(accelerator="")).filled(known)
    verdicts: list[LibraryVerdict] = []
    for name in sorted({library.module for library in subject.libraries}):
        said = subject.built_for.get(name, BuiltFor(source=""))
        module = _Module(name=name, expected=expected, beside=torch, said=said)
        verdicts += _judged(module, [library for library in subject.libraries if library.module == name])
    return Verdict(subject=subject.name, libraries=tuple(verdicts))


def _judged(module: _Module, libraries: Sequence[Library]) -> Iterator[LibraryVerdict]:
    found: dict[str, LibraryFacts] = {}
    for library in libraries:
        try:
            if facts := read(library.file, library.path):
                found[library.path] = facts
        except ValueError as error:
            bad = Judgement(path=library.path, reason=str(error), remedy="get or build it again")
            yield _without_facts(module, bad)
    wanted = _wanted(module)
    if module.name in KERNELS:
        judged = judge(module.name, list(found.values()), wanted)
    else:
        judged = tuple(_other(module, facts, wanted) for facts in found.values())
    for one in judged:
        facts = found.get(one.path)
        if facts is None:
            yield _without_facts(module, one)
        elif one.ok and module.name != "torch":
            yield _library(module, facts, _beside(module, facts) or one)
        else:
            yield _library(module, facts, one)


def _wanted(module: _Module) -> Wanted:
    expected, said = module.expected, module.said
    cuda_version = expected.cuda_version or (said.cuda if said.cuda not in (None, "cpu") else None)
    cuda = expected.cuda if expected.accelerator else (None if said.cuda is None else said.cuda != "cpu")
    python = None if said.python == "abi3" else expected.python or said.python
    return Wanted(
        cuda=cuda,
        cuda_major=int(cuda_version.split(".")[0]) if cuda_version else None,
        archs=expected.archs if cuda is not False else (),
        exact=expected.exact_archs,
        python=python,
    )


def _other(module: _Module, facts: LibraryFacts, wanted: Wanted) -> Judgement:
    """Judge a library of torch's, or of a module not in the table: only what holds for all."""
    if module.name == "torch":
        return _torch(facts, wanted)
    wrong = wrong_python(facts, wanted.python) or wrong_runtime(facts, wanted.cuda_major)
    return wrong or Judgement(path=facts.path)


def _torch(facts: LibraryFacts, wanted: Wanted) -> Judgement:
    name = facts.path.rpartition("/")[2]
    if name not in TORCH_KERNELS | TORCH_MAY_HAVE_KERNELS or wanted.cuda is False:
        return Judgement(path=facts.path)
    if name in TORCH_KERNELS and not facts.units:
        return Judgement(path=facts.path, reason="libtorch was compiled without device code",
                         remedy="build libtorch again with USE_CUDA=1 and TORCH_CUDA_ARCH_LIST set")  # fmt: skip
    held = {f"{arch.removesuffix('+PTX')}" for arch in wanted.archs}
    numbers = {name.partition("_")[2].rstrip("af") for name in facts.archs}
    lacking = sorted(arch for arch in held if arch.replace(".", "") not in numbers)
    if not lacking or not facts.units:
        return Judgement(path=facts.path)
    reason = f"no code for {', '.join('sm_' + arch.replace('.', '') for arch in lacking)}"
    if name in TORCH_MAY_HAVE_KERNELS:  # the official wheels leave some out
        return Judgement(path=facts.path, note=reason)
    return Judgement(path=facts.path, reason=reason,
                     remedy=f'build libtorch again with TORCH_CUDA_ARCH_LIST="{";".join(wanted.archs)}"')  # fmt: skip


def _beside(module: _Module, facts: LibraryFacts) -> Judgement | None:
    """Judge a library against the torch beside it and what its metadata say; None where all is well."""
    said, expected, torch = module.said, module.expected, module.beside
    reason, python = "", expected.python
    build = f"a build of {module.name} for torch {expected.torch_version}"
    remedy = f"install {build}, or compile it there: no build isolation"
    wanted_cuda = expected.cuda_version or "cpu"
    if said.torch and expected.torch_version and not same_torch(said.torch, expected.torch_version):
        reason = f"built for torch {said.torch} ({said.source}), not for {expected.torch_version}"
    elif said.python not in (None, "abi3", python) and python is not None:
        reason = f"built for Python {said.python} ({said.source}), not for {python}"
        remedy = f"install the build for Python {python}, or rebuild with that Python"
    elif said.cuda and expected.accelerator and said.cuda != wanted_cuda:
        reason = f"built for {_processor(said.cuda)} ({said.source}), not for {_processor(wanted_cuda)}"
    elif torch and (lacks := torch.lacks(facts.undefined)):
        reason = f"built for another torch: {torch.version} has no {readable(lacks[0])}" + _more(lacks)
    elif torch and (denied := torch.denies(facts.assertions)):
        reason = f"built for another torch: its headers differ from {torch.version} at {denied[0]}" + _more(
            denied
        )
    return Judgement(path=facts.path, reason=reason, remedy=remedy) if reason else None


def _built_with(module: _Module, facts: LibraryFacts) -> str | None:
    """Return the CUDA that a library tells of, ``cpu``, or else what metadata say."""
    if facts.cuda_runtime:
        return str(facts.cuda_runtime)
    if facts.units or facts.links_cuda:
        return module.said.cuda
    stem, flavour = split(facts.path.rpartition("/")[2])
    lacks_kernels = module.name in KERNELS and stem in KERNELS[module.name].kernels
    return "cpu" if flavour == "cpu" or facts.says_not_compiled or lacks_kernels else module.said.cuda


def _more(items: Sequence[str]) -> str:
    return f" (and {len(items) - 1} more)" if len(items) > 1 else ""


def _processor(cuda: str) -> str:
    return "the CPU" if cuda == "cpu" else f"CUDA {cuda}"


def _without_facts(module: _Module, one: Judgement) -> LibraryVerdict:
    return LibraryVerdict(path=one.path, module=module.name, ok=False, reason=one.reason, remedy=one.remedy)


def _library(module: _Module, facts: LibraryFacts, one: Judgement) -> LibraryVerdict:
    said, torch = module.said, module.beside
    return LibraryVerdict(
        path=facts.path,
        module=module.name,
        archs=facts.archs,
        ptx=facts.ptx,
        needed=facts.needed,
        torch=torch.version if module.name == "torch" and torch else said.torch,
        cuda=_built_with(module, facts),
        python=facts.pythons[0][0] if facts.pythons and said.python != "abi3" else said.python,
        ok=one.ok,
        reason=one.reason or one.note,
        remedy=one.remedy,
    )
