"""`megabuild verify`: checks every library of a subject against the expectation and the torch it must fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cuda_code.judge import Judgement, empty, judge
from cuda_code.kernels import KERNELS
from cuda_code.library_facts import STABLE_ABI, LibraryFacts, read
from gpu_tools.verify.build_target import BuildTarget
from gpu_tools.verify.expectation import Expectation, ModuleContext
from gpu_tools.verify.inspected_package import open_subject
from gpu_tools.verify.installed_torch import InstalledTorch, library_name
from gpu_tools.verify.judge_builds import judge_builds
from gpu_tools.verify.judge_fit import judge_fit
from gpu_tools.verify.judge_library import find_accelerator, judge_accelerator, judge_contents, judge_silence
from gpu_tools.verify.subject import TORCH, Subject
from groundwork.names import accelerator


@dataclass(frozen=True, kw_only=True)
class LibraryVerdict:
    """The verdict on one library."""

    #: Its path in the subject, and the Python module that it belongs to.
    path: str
    module: str
    #: Device code in it: ``sm_90``; ``compute_120``.
    archs: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()  #: Libraries that it links to.
    #: What it was built for, from the library or its metadata; None if unknown.
    torch: str | None = None
    cuda: str | None = None
    python: str | None = None
    #: It uses only torch's stable ABI: it runs with that torch and every later one.
    stable_abi: bool = False
    #: Whether it is as expected; if not, ``reason`` and ``remedy`` explain. With ``ok``, ``reason`` is a remark.
    ok: bool = True
    #: Not ``ok`` only because of an open question, which is the ``reason``.
    unknown: bool = False
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on a package, a wheel or an environment."""

    subject: str
    libraries: tuple[LibraryVerdict, ...]
    notes: tuple[str, ...] = ()  #: Remarks on the whole.

    @property
    def ok(self) -> bool:
        """Whether there is at least one library, and all are as expected."""
        return bool(self.libraries) and all(library.ok for library in self.libraries)

    @property
    def unknown(self) -> bool:
        """Whether no fault was found, but at least one library has an open question."""
        wrong = any(not (library.ok or library.unknown) for library in self.libraries)
        return not wrong and any(library.unknown for library in self.libraries)

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {"ok": self.ok, "unknown": self.unknown, **asdict(self)}


def verify(path: Path, *, beside: Path | None = None, expect: Expectation | None = None) -> Verdict:
    """Verify a package, a wheel or an environment.

    Its libraries must fit the torch in the environment ``beside`` (default: ``path``, if an environment). Properties
    missing from ``expect`` come from that torch, then from the metadata.

    Raises UsageError: :func:`open_subject` cannot open ``path`` or ``beside``.
    Raises IntegrityError: The package or wheel is damaged.
    """
    with (
        open_subject(path) as subject,
        open_subject(beside) if beside else nullcontext(subject) as environment,
    ):
        return _verify(subject, environment, expect or Expectation())


def _verify(subject: Subject, environment: Subject, asked: Expectation) -> Verdict:
    torch = environment.torch
    expected = asked.filled(_expect_installed(torch, environment.python))
    verdicts = []
    for damage in dict.fromkeys((*environment.damaged, *subject.damaged)):
        verdicts.append(
            LibraryVerdict(
                path=damage.path,
                module=damage.module,
                ok=False,
                unknown=True,
                reason=damage.reason,
                remedy="reinstall its package",
            )
        )
    extensions = subject.targets.keys() & KERNELS.keys()
    names = sorted(subject.libraries.keys() | extensions)
    contents = {name: _read_libraries(subject.libraries.get(name, {})) for name in names}
    has_code = _has_own_code(contents)
    for name, content in contents.items():
        libraries = subject.libraries.get(name, {})
        module = ModuleContext(
            name=name,
            names=frozenset(map(library_name, libraries)),
            asked=asked,
            expected=expected,
            torch=torch,
            target=subject.targets.get(name, BuildTarget(source="")),
            python=subject.python,
            machine=environment.machine,
            only_uses_torch=name in subject.users,
            package_has_code=has_code,
        )
        verdicts += _verify_module(module, content, is_empty=not libraries)
    notes = dict.fromkeys((*subject.notes, *environment.notes))
    return Verdict(subject=subject.name, libraries=tuple(verdicts), notes=tuple(notes))


def _expect_installed(torch: InstalledTorch | None, python: str | None) -> Expectation:
    """Return the properties that libraries for an environment's torch and Python need."""
    if torch is None:
        return Expectation(python=python)
    return Expectation(
        accelerator="" if torch.other else accelerator(torch.cuda),
        archs=torch.archs,
        exact_archs=False,
        python=python,
        torch_version=torch.version,
    )


@dataclass(frozen=True, kw_only=True)
class _Contents:
    """The readable libraries of a module, and the faults of the others, by path."""

    facts: Mapping[str, LibraryFacts]
    faults: Mapping[str, Judgement]


def _read_libraries(libraries: Mapping[str, Path]) -> _Contents:
    by_path: dict[str, LibraryFacts] = {}
    faults: dict[str, Judgement] = {}
    for path, file in libraries.items():
        try:
            facts = read(file, path)
        except ValueError as error:
            faults[path] = Judgement(str(error), "download or build it again")
        else:
            if facts:
                by_path[path] = facts
    return _Contents(facts=by_path, faults=faults)


def _has_own_code(contents: Mapping[str, _Contents]) -> bool:
    """Return whether a library of neither torch nor a module in KERNELS has device code."""
    for name, content in contents.items():
        if name in KERNELS or name == TORCH:
            continue
        if any(facts.units for facts in content.facts.values()):
            return True
    return False


def _verify_module(module: ModuleContext, contents: _Contents, *, is_empty: bool) -> Iterator[LibraryVerdict]:
    by_path = contents.facts
    judgements = dict(contents.faults)
    if is_empty:
        judgements[module.name] = empty(module.name)
    elif module.name in KERNELS:
        judgements |= judge(module.name, list(by_path.values()), module.wanted, unread=list(judgements))
    else:
        own = {path: judge_contents(module, facts) for path, facts in by_path.items()}
        judgements |= own
        judgements |= judge_builds(module, by_path, own)
    machines = [facts.machine for facts in by_path.values()]
    most_frequent = max(machines, key=machines.count, default="")
    machine = module.machine or module.target.machine or most_frequent
    for path, judgement in judgements.items():
        judged = by_path.get(path)
        if judged:
            yield _verify_library(module, judged, judgement, machine)
        else:
            yield LibraryVerdict(
                path=path, module=module.name, ok=False, reason=judgement.reason, remedy=judgement.remedy
            )


def _verify_library(
    module: ModuleContext, facts: LibraryFacts, judgement: Judgement, machine: str
) -> LibraryVerdict:
    if machine != facts.machine:
        reason = f"built for {facts.machine}, not for {machine}"
        judgement = Judgement(reason, f"install the build for {machine}")
    else:
        judgement = judge_accelerator(module, facts) or judgement
    if judgement.ok:
        judgement = judge_fit(module, facts) or judge_silence(module, facts) or judgement
    target = module.target
    return LibraryVerdict(
        path=facts.path,
        module=module.name,
        archs=facts.archs,
        ptx=facts.ptx,
        needed=facts.needed,
        torch=target.torch,
        stable_abi=facts.stable_abi,
        cuda=find_accelerator(module, facts),
        python=_find_python(facts, target.python or module.python),
        ok=judgement.ok,
        unknown=judgement.unknown,
        reason=judgement.reason or judgement.note,
        remedy=judgement.remedy,
    )


def _find_python(facts: LibraryFacts, known: str | None) -> str | None:
    """Return the Python that a library names, unless its metadata name the stable ABI."""
    if known == STABLE_ABI or not facts.pythons:
        return known
    return facts.pythons[0].version
