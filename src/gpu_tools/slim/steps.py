"""The steps of a slimming, in one registry: the files each removes, their users, and the features it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpu_tools.contents import Contents
from gpu_tools.slim.features import (
    COMPILE_CPU,
    COMPILE_GPU,
    DISTRIBUTED,
    EXTENSIONS,
    FEATURES,
    PROFILER,
    RUN_TIME_KERNELS,
    STARTUP,
    Feature,
    find_existing,
)
from gpu_tools.slim.find_files import (
    Finder,
    Survey,
    by_path,
    find_byte_code,
    find_measuring,
    find_nothing,
    find_nvidia_headers,
    find_other_assembler,
    find_static_libraries,
    find_torch_headers,
    find_triton,
    find_triton_profiler,
    find_unused,
)
from gpu_tools.slim.library import Shrinking
from gpu_tools.slim.users import find_compiler_users, find_triton_users
from gpu_tools.subject_kind import SubjectKind
from gpu_tools.verify.gpu import replace_native
from groundwork.errors import UsageError
from groundwork.names import cuda_archs

#: Returns packages that use a step's files, and whether they are useless without.
UsersFinder = Callable[[Contents], Mapping[str, bool]]


@dataclass(frozen=True, kw_only=True)
class SlimRequest:
    """The user's limits for slimming."""

    gpus: tuple[str, ...] = ()  #: GPUs to keep code for (``sm_120``); empty: keep all code.
    keep: frozenset[str] = frozenset()  #: Names of features to keep and of steps to skip.


@dataclass(frozen=True, kw_only=True)
class SlimStep:
    """A removal of one kind of files or code."""

    name: str  #: Value for ``--keep``.
    loses: str  #: The removed things, as report text.
    files: Finder = find_nothing
    users: UsersFinder | None = None  #: None: no package uses the files.
    shrinks: Shrinking | None = None  #: The part of libraries that it removes.
    costs: tuple[Feature, ...] = ()  #: The features that stop working.


_COMPILING = (COMPILE_CPU, COMPILE_GPU, EXTENSIONS, STARTUP)
#: In order; a file counts for the first step that removes it.
STEPS = (
    SlimStep(name="triton", loses="Triton", files=find_triton, users=find_triton_users,
             costs=(COMPILE_GPU, STARTUP)),
    SlimStep(name="triton-profiler", loses="Proton, Triton's copies of CUDA tools", files=find_triton_profiler,
             costs=(PROFILER,)),
    SlimStep(name="triton-ptxas", loses="Triton's assembler for other GPUs", files=find_other_assembler),
    SlimStep(name="nvidia-unused", loses="unused NVIDIA libraries", files=find_unused),
    SlimStep(name="nvidia-profiling", loses="GPU performance counters", files=find_measuring, costs=(PROFILER,)),
    SlimStep(name="nvshmem-device", loses="NVSHMEM in Triton's kernels",
             files=by_path(r"(.*/)?libnvshmem_device\.bc"), costs=(DISTRIBUTED,)),
    SlimStep(name="static", loses="static libraries", files=find_static_libraries, users=find_compiler_users,
             costs=(*_COMPILING, RUN_TIME_KERNELS)),
    SlimStep(name="headers-torch", loses="torch headers", files=find_torch_headers, users=find_compiler_users,
             costs=_COMPILING),
    SlimStep(name="headers-nvidia", loses="CUDA headers", files=find_nvidia_headers, users=find_compiler_users,
             costs=(COMPILE_GPU, EXTENSIONS, STARTUP, RUN_TIME_KERNELS)),
    # packages import other modules of their tests folders
    SlimStep(name="tests", loses="packages' own tests",
             files=by_path(r"(.*/)?tests?/(.*/)?(test_[^/]*|conftest)\.py")),
    # licences stay
    SlimStep(name="documentation", loses="manual pages, documents",
             files=by_path(r"(?i)(.*/)?share/(doc|info|man)/(?!.*(cop(y|ie)|licen[cs]|notice)).*")),
    SlimStep(name="byte-code", loses="byte code; Python writes it again", files=find_byte_code),
    SlimStep(name="gpu-code", loses="code for other GPUs", shrinks=Shrinking.GPU_CODE),
    SlimStep(name="symbols", loses="function names in debuggers and native traces", shrinks=Shrinking.SYMBOLS),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A step in an environment or package, with the files it could remove and the packages that use them."""

    step: SlimStep
    files: Sequence[str]  #: A file may be in several steps.
    users: Mapping[str, bool]  #: Names, and whether the package is useless without the files.


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The steps that break no feature to keep, and the skipped steps."""

    chosen: tuple[Candidate, ...]
    #: By name, with the feature or the packages that would be nearly useless.
    spared: Mapping[str, str]

    @property
    def shrinkings(self) -> frozenset[Shrinking]:
        """The parts of libraries to remove."""
        return frozenset(item.step.shrinks for item in self.chosen if item.step.shrinks)


def parse_keep(keep: Iterable[str]) -> frozenset[str]:
    """Split and check the values of ``--keep``; ``compile`` means ``compile-cpu`` and ``compile-gpu``.

    Raises UsageError: A name is neither a feature nor a step.
    """
    meanings = {feature.name: {feature.name} for feature in FEATURES}
    meanings["compile"] = {COMPILE_CPU.name, COMPILE_GPU.name}
    meanings |= {step.name: {step.name} for step in STEPS}
    names: set[str] = set()
    for name in filter(None, map(str.strip, ",".join(keep).split(","))):
        if name not in meanings:
            raise UsageError(f"--keep: {name}: unknown feature or step", f"choose from {', '.join(meanings)}")
        names |= meanings[name]
    return frozenset(names)


def parse_gpus(arch_lists: Iterable[str]) -> tuple[str, ...]:
    """Return the GPUs of ``--arch-list`` as ``sm_120``; ``native`` means this machine's GPUs.

    Raises UnknownError: ``native``, but this machine has no GPU or driver.
    Raises UsageError: A value is not a compute capability.
    """
    gpus = []
    for arch in cuda_archs(replace_native(";".join(arch_lists))):
        if arch.endswith(("+PTX", "a", "f")):
            raise UsageError(f"--arch-list: {arch}: not a GPU", "pass a compute capability, such as 12.0")
        gpus.append(f"sm_{arch.replace('.', '')}")
    return tuple(gpus)


def select_steps(contents: Contents, request: SlimRequest) -> Selection:
    """Find the files of each step, and select the steps that break no feature to keep."""
    chosen: list[Candidate] = []
    spared: dict[str, str] = {}
    for candidate in _find_candidates(contents, request):
        step = candidate.step
        if step.shrinks is Shrinking.GPU_CODE and not request.gpus:
            continue
        lost = find_existing(step.costs, contents)
        names = {step.name, *(feature.name for feature in lost)}
        if names & request.keep:
            continue
        vital = [feature.name for feature in lost if feature.is_vital]
        needing = sorted(name for name, is_useless in candidate.users.items() if is_useless)
        if vital:
            if candidate.files:
                spared[step.name] = vital[0]
        elif needing:
            spared[step.name] = ", ".join(needing)
        else:
            chosen.append(candidate)
    return Selection(chosen=tuple(chosen), spared=spared)


def _find_candidates(contents: Contents, request: SlimRequest) -> list[Candidate]:
    """Return all steps with their files and users."""
    survey = Survey(contents=contents, gpus=request.gpus)
    answers: dict[UsersFinder, Mapping[str, bool]] = {}
    candidates = []
    for step in STEPS:
        files = list(step.files(survey))
        users: Mapping[str, bool] = {}
        if step.users and files and contents.kind is SubjectKind.ENVIRONMENT:
            if step.users not in answers:  # several steps have the same users
                answers[step.users] = step.users(contents)
            users = answers[step.users]
        candidates.append(Candidate(step=step, files=files, users=users))
    return candidates
