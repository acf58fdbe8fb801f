"""The check itself: every library of a subject against what is expected and against the torch beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cuda_code.judge import (
    Judgement,
    Wanted,
    empty,
    judge,
    judge_abi,
    judge_archs,
    judge_blank_code,
    judge_for_cpu,
    judge_python,
    judge_runtime,
)
from cuda_code.kernels import KERNELS, TORCH_KERNELS, TORCH_MAY_HAVE_KERNELS
from cuda_code.library_facts import LibraryFacts, read
from cuda_code.torch_abi import readable
from gpu_tools.verify.build_target import BuildTarget, fits_torch
from gpu_tools.verify.inspected_package import Library, Subject, open_subject
from gpu_tools.verify.installed_torch import library_name
from gpu_tools.verify.module_context import (
    ModuleContext,
    find_accelerator,
    find_open_question,
    judge_machine,
    judge_torch_part,
    other_accelerator,
    remedy,
)
from gpu_tools.verify.verdict import Expectation, LibraryVerdict, Verdict
from groundwork.names import accelerator


def verify(path: Path, *, beside: Path | None = None, expect: Expectation | None = None) -> Verdict:
    """Look into a package, a wheel or an environment.

    Its libraries must fit the torch of the environment beside it, which is by default itself, where it is one. What is
    not expected of them is taken from that torch, then from the metadata.

    Raises UsageError: There is no such thing to look into, or ``beside`` is not an environment with torch.
    Raises IntegrityError: A package or wheel is damaged.
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
            accelerator="" if torch.other else accelerator(torch.cuda),
            torch_version=torch.version,
            archs=torch.archs,
            exact_archs=bool(torch.promised),
        )
    asked = expect or Expectation(accelerator="")
    expected = asked.filled(known)
    verdicts = [
        LibraryVerdict(
            path=path, module=module, ok=False, unknown=True, reason=reason, remedy="install it again"
        )
        for path, module, reason in dict.fromkeys((*environment.damaged, *subject.damaged))
    ]
    extensions = subject.targets.keys() & KERNELS.keys()
    for name in sorted({library.module for library in subject.libraries} | extensions):
        libraries = [library for library in subject.libraries if library.module == name]
        said = subject.targets.get(name, BuildTarget(source=""))
        if subject is environment:
            said = replace(said, python=said.python or subject.python)
            if torch is not None and name == "torch":
                said = replace(said, torch=torch.version, cuda=None if torch.other else torch.cuda or "cpu")
        verdicts += _judged(
            ModuleContext(
                name=name,
                names=frozenset(library_name(library.path) for library in libraries),
                asked=asked,
                expected=expected,
                beside=torch,
                said=said,
                machine=environment.machine,
            ),
            libraries,
        )
    notes = dict.fromkeys((*subject.notes, *environment.notes))
    return Verdict(subject=subject.name, libraries=tuple(verdicts), notes=tuple(notes))


def _judged(module: ModuleContext, libraries: Sequence[Library]) -> Iterator[LibraryVerdict]:
    found: dict[str, LibraryFacts] = {}
    unread: list[str] = []
    for library in libraries:
        try:
            if facts := read(library.file, library.path):
                found[library.path] = facts
        except ValueError as error:
            unread.append(library.path)
            bad = Judgement(path=library.path, reason=str(error), remedy="get or build it again")
            yield _without_facts(module, bad)
    wanted = _wanted(module)
    judged: tuple[Judgement, ...]
    if not libraries:
        judged = (empty(module.name),)
    elif module.name in KERNELS:
        judged = judge(module.name, list(found.values()), wanted, unread=unread)
    else:
        judged = tuple(_other(module, facts, wanted) for facts in found.values())
    machines = [facts.machine for facts in found.values()]
    machine = module.said.machine or module.machine or max(machines, key=machines.count, default="")
    for judgement in judged:
        facts = found.get(judgement.path)
        if facts is None:
            yield _without_facts(module, judgement)
            continue
        judgement = judge_machine(module, facts, machine) or other_accelerator(module, facts) or judgement
        if judgement.ok:
            more = judge_torch_part if module.name == "torch" else _beside
            judgement = more(module, facts) or judgement
        yield _library(module, facts, judgement)


def _wanted(module: ModuleContext) -> Wanted:
    expected, said = module.expected, module.said
    cuda_version = expected.cuda_version or (said.cuda if said.cuda not in (None, "cpu") else None)
    cuda = expected.cuda if module.wants_cuda is None else module.wants_cuda
    if cuda is None and said.cuda is not None:
        cuda = said.cuda != "cpu"
    python = None if said.python == "abi3" else expected.python or said.python
    return Wanted(
        cuda=cuda,
        cuda_major=int(cuda_version.split(".")[0]) if cuda_version else None,
        archs=expected.archs if cuda is not False else (),
        exact=expected.exact_archs,
        explain=bool(module.asked.archs) and not expected.exact_archs,
        python=python,
    )


def _other(module: ModuleContext, facts: LibraryFacts, wanted: Wanted) -> Judgement:
    """Judge a library of torch's, or of a module not in the table: only what holds for all."""
    if module.name == "torch":
        return _torch(facts, wanted)
    wrong = judge_python(facts, wanted.python) or judge_runtime(facts, wanted.cuda_major)
    wrong = wrong or judge_blank_code(facts)
    if wrong is None and module.asked.archs and facts.units:
        wrong = judge_archs(facts, wanted)
    if wrong is None and module.asked.cuda is False:
        wrong = judge_for_cpu(facts)
    return wrong or Judgement(path=facts.path)


def _torch(facts: LibraryFacts, wanted: Wanted) -> Judgement:
    name = library_name(facts.path)
    if wrong := judge_runtime(facts, wanted.cuda_major):
        return wrong
    if name not in TORCH_KERNELS | TORCH_MAY_HAVE_KERNELS or wanted.cuda is False:
        return Judgement(path=facts.path)
    if name in TORCH_KERNELS and not facts.units:
        return Judgement(path=facts.path, reason="libtorch was compiled without device code",
                         remedy="build libtorch again with USE_CUDA=1 and TORCH_CUDA_ARCH_LIST set")  # fmt: skip
    if not facts.units:
        return Judgement(path=facts.path)
    archs = tuple(arch.removesuffix("+PTX") for arch in wanted.archs)
    own = {name.rstrip("af") for name in facts.archs}  # 9.0a alone will do for 9.0
    if not wanted.exact or {f"sm_{arch.replace('.', '')}" for arch in archs} <= own:
        judgement = judge_archs(facts, replace(wanted, archs=archs, exact=False))
    else:
        judgement = judge_archs(facts, replace(wanted, archs=archs))
    if judgement.ok:
        return judgement
    if name in TORCH_MAY_HAVE_KERNELS:  # the official wheels leave some out
        return Judgement(path=facts.path, note=judgement.reason)
    return replace(judgement, remedy=f"build libtorch again: {judgement.remedy}")


def _beside(module: ModuleContext, facts: LibraryFacts) -> Judgement | None:
    """Judge a library against the torch beside it and what its metadata say; None where all is well."""
    said, expected, torch = module.said, module.expected, module.beside
    reason, python = "", expected.python
    build = f"a build of {module.name} for torch {expected.torch_version}"
    remedy = f"install {build}, or compile it there: no build isolation"
    wanted_cuda = expected.cuda_version or "cpu"
    if said.later and (wrong := judge_abi(facts)):
        return wrong
    if (
        said.torch
        and expected.torch_version
        and not fits_torch(said.torch, expected.torch_version, later=facts.stable_abi)
    ):
        reason = f"built for torch {said.torch} ({said.source}), not for {expected.torch_version}"
    elif said.python not in (None, "abi3", python) and python is not None:
        reason = f"built for Python {said.python} ({said.source}), not for {python}"
        remedy = f"install the build for Python {python}, or rebuild with that Python"
    elif said.cuda and expected.accelerator and said.cuda != wanted_cuda:
        reason = f"built for {_processor(said.cuda)} ({said.source}), not for {_processor(wanted_cuda)}"
    elif torch and (lacks := torch.lacks(facts.undefined)):
        reason = f"built for another torch: {torch.version} has no {readable(lacks[0])}" + _more(lacks)
    elif torch and not facts.stable_abi and (denied := torch.denies(facts.assertions)):
        reason = f"built for another torch: its headers differ from {torch.version} at {denied[0]}" + _more(
            denied
        )
    return Judgement(path=facts.path, reason=reason, remedy=remedy) if reason else None


def _more(items: Sequence[str]) -> str:
    return f" (and {len(items) - 1} more)" if len(items) > 1 else ""


def _processor(cuda: str) -> str:
    return "the CPU" if cuda == "cpu" else f"CUDA {cuda}"


def _without_facts(module: ModuleContext, judgement: Judgement) -> LibraryVerdict:
    return LibraryVerdict(
        path=judgement.path, module=module.name, ok=False, reason=judgement.reason, remedy=judgement.remedy
    )


def _library(module: ModuleContext, facts: LibraryFacts, judgement: Judgement) -> LibraryVerdict:
    said = module.said
    question = (
        judgement.reason if judgement.unknown else find_open_question(module, facts) if judgement.ok else ""
    )
    return LibraryVerdict(
        path=facts.path,
        module=module.name,
        archs=facts.archs,
        ptx=facts.ptx,
        needed=facts.needed,
        torch=said.torch,
        stable_abi=facts.stable_abi,
        cuda=find_accelerator(module, facts),
        python=facts.pythons[0][0] if facts.pythons and said.python != "abi3" else said.python,
        ok=judgement.ok and not question,
        unknown=bool(question),
        reason=question or judgement.reason or judgement.note,
        remedy=remedy(module) if question and not judgement.unknown else judgement.remedy,
    )
