"""The check itself: every library of a subject against what is expected and against the torch beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from judge import Judgement, Wanted, judge, wrong_python, wrong_runtime
from kernels import KERNELS, TORCH_KERNELS, TORCH_MAY_HAVE_KERNELS, split
from library_facts import LibraryFacts, NotElf, read
from megabuild.verify.built_for import BuiltFor, same_torch
from megabuild.verify.expected import Expectation, accelerator
from megabuild.verify.subject import Library, Subject, open_subject
from megabuild.verify.torch_beside import TorchBeside, readable
from megabuild.verify.verdict import LibraryVerdict, Verdict

_UNKNOWN = BuiltFor(source="")


@dataclass(frozen=True, kw_only=True)
class _Context:
    expected: Expectation
    beside: TorchBeside | None
    built_for: BuiltFor


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
    for module in sorted({library.module for library in subject.libraries}):
        libraries = [library for library in subject.libraries if library.module == module]
        built_for = subject.built_for.get(module, _UNKNOWN)
        context = _Context(expected=expected, beside=torch, built_for=built_for)
        verdicts += _module(module, libraries, context)
    return Verdict(subject=subject.name, libraries=tuple(verdicts))


def _module(module: str, libraries: Sequence[Library], context: _Context) -> list[LibraryVerdict]:
    found: list[LibraryFacts] = []
    verdicts: list[LibraryVerdict] = []
    for library in libraries:
        try:
            facts = read(library.file, library.path)
        except (NotElf, ValueError) as error:
            verdicts.append(
                LibraryVerdict(path=library.path, module=module, ok=False, reason=str(error),
                               remedy="get or build it again")
            )  # fmt: skip
            continue
        if facts is not None:
            found.append(facts)
    wanted = _wanted(context)
    if module in KERNELS:
        judged = {one.path: one for one in judge(module, found, wanted)}
    else:
        judged = {facts.path: _other(module, facts, wanted) for facts in found}
    for facts in found:
        one = judged.pop(facts.path)
        if one.ok and module != "torch":
            one = _beside(facts, module, context) or one
        verdicts.append(_library(facts, module, one, context))
    verdicts += [
        LibraryVerdict(path=one.path, module=module, ok=False, reason=one.reason, remedy=one.remedy)
        for one in judged.values()
    ]
    return verdicts


def _wanted(context: _Context) -> Wanted:
    expected, said = context.expected, context.built_for
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


def _other(module: str, facts: LibraryFacts, wanted: Wanted) -> Judgement:
    """Judge a library of torch's, or of a module not in the table: only what holds for all."""
    if module == "torch":
        return _torch(facts, wanted)
    python = wrong_python(facts, wanted.python)
    return python if not python.ok else wrong_runtime(facts, wanted.cuda_major)


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


def _beside(facts: LibraryFacts, module: str, context: _Context) -> Judgement | None:
    """Judge a library against the torch beside it and what its metadata say; None where all is well."""
    said, expected, torch = context.built_for, context.expected, context.beside
    remedy = f"install a build of {module} for torch {expected.torch_version}, or compile it there: no build isolation"
    if said.torch and expected.torch_version and not same_torch(said.torch, expected.torch_version):
        reason = f"built for torch {said.torch} ({said.source}), not for {expected.torch_version}"
        return Judgement(path=facts.path, reason=reason, remedy=remedy)
    python = expected.python
    if said.python not in (None, "abi3", python) and python is not None:
        reason = f"built for Python {said.python} ({said.source}), not for {python}"
        remedy = f"install the build for Python {python}, or rebuild with that Python"
        return Judgement(path=facts.path, reason=reason, remedy=remedy)
    wanted_cuda = expected.cuda_version or "cpu"
    if said.cuda and expected.accelerator and said.cuda != wanted_cuda:
        reason = f"built for {_processor(said.cuda)} ({said.source}), not for {_processor(wanted_cuda)}"
        return Judgement(path=facts.path, reason=reason, remedy=remedy)
    if torch is None:
        return None
    if lacks := torch.lacks(facts.undefined):
        reason = f"built for another torch: {torch.version} has no {readable(lacks[0])}" + _more(lacks)
        return Judgement(path=facts.path, reason=reason, remedy=remedy)
    if denied := torch.denies(facts.assertions):
        reason = f"built for another torch: its headers differ from {torch.version} at {denied[0]}" + _more(
            denied
        )
        return Judgement(path=facts.path, reason=reason, remedy=remedy)
    return None


def _built_with(facts: LibraryFacts, module: str, said: BuiltFor) -> str | None:
    """Return the CUDA that a library tells of, ``cpu``, or else what metadata say."""
    if facts.cuda_runtime:
        return str(facts.cuda_runtime)
    stem, flavour = split(facts.path.rpartition("/")[2])
    if facts.units or facts.links_cuda:
        return said.cuda
    lacks_kernels = module in KERNELS and stem in KERNELS[module].kernels
    return "cpu" if flavour == "cpu" or facts.says_not_compiled or lacks_kernels else said.cuda


def _more(items: Sequence[str]) -> str:
    return f" (and {len(items) - 1} more)" if len(items) > 1 else ""


def _processor(cuda: str) -> str:
    return "the CPU" if cuda == "cpu" else f"CUDA {cuda}"


def _library(facts: LibraryFacts, module: str, one: Judgement, context: _Context) -> LibraryVerdict:
    said = context.built_for
    return LibraryVerdict(
        path=facts.path,
        module=module,
        archs=facts.archs,
        ptx=facts.ptx,
        needed=facts.needed,
        torch=context.beside.version if module == "torch" and context.beside else said.torch,
        cuda=_built_with(facts, module, said),
        python=facts.pythons[0][0] if facts.pythons and said.python != "abi3" else said.python,
        ok=one.ok,
        reason=one.reason or one.note,
        remedy=one.remedy,
    )
