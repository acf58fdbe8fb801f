"""The steps of a slimming: the files each removes, and the features it breaks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cuda_code.cuda_archs import number
from gpu_tools.sizes.inside import classify_path
from gpu_tools.sizes.tree import Kind
from gpu_tools.slim.contents import Contents
from gpu_tools.slim.features import (
    COMPILE_CPU,
    COMPILE_GPU,
    DISTRIBUTED,
    EXTENSIONS,
    FEATURES,
    KERNELS,
    PROFILER,
    STARTUP,
    Feature,
    is_nvidia,
)
from gpu_tools.slim.users import find_compiler_users, find_triton_users, find_unused_libraries
from gpu_tools.verify.gpu import replace_native
from groundwork.errors import UsageError
from groundwork.names import cuda_archs


@dataclass(frozen=True, kw_only=True)
class SlimRequest:
    """The user's limits for slimming."""

    gpus: tuple[str, ...] = ()  #: GPUs to keep code for (``sm_120``); empty: keep all code.
    keep: frozenset[str] = frozenset()  #: Names of features to keep and of steps to skip.


Picker = Callable[[Contents, SlimRequest], Iterable[str]]


@dataclass(frozen=True, kw_only=True)
class SlimStep:
    """A removal of one kind of files or code."""

    name: str  #: Value for ``--keep``.
    loses: str  #: The removed things, as report text.
    costs: tuple[Feature, ...] = ()  #: Features that stop working.
    limits: tuple[Feature, ...] = ()  #: Features that partly stop working.
    #: Returns the files to remove; None for a step that shrinks libraries.
    picks: Picker | None = None
    #: Returns other packages that use the removed files, and whether they are useless without.
    users: Callable[[Contents], Mapping[str, bool]] | None = None

    def find_users(self, contents: Contents, request: SlimRequest, *, needing: bool) -> tuple[str, ...]:
        """Return the packages that use the removed files: those useless without (``needing``), or the others."""
        if (
            contents.kind != "environment"
            or self.users is None
            or not self.gives_something(contents, request)
        ):
            return ()
        return tuple(sorted(name for name, needs in self.users(contents).items() if needs == needing))

    def gives_something(self, contents: Contents, request: SlimRequest) -> bool:
        """Return whether there are files to remove."""
        return self.picks is not None and any(True for _ in self.picks(contents, request))


def parse_keep(keep: Iterable[str]) -> frozenset[str]:
    """Split and check the values of ``--keep``; ``compile`` means ``compile-cpu`` and ``compile-gpu``.

    Raises UsageError: A name is neither a feature nor a step.
    """
    names: set[str] = set()
    choices = [*(feature.name for feature in FEATURES), "compile", *(step.name for step in STEPS)]
    for name in _split(keep):
        if name not in choices:
            raise UsageError(f"--keep: {name}: unknown feature or step", f"choose from {', '.join(choices)}")
        names |= {COMPILE_CPU.name, COMPILE_GPU.name} if name == "compile" else {name}
    return frozenset(names)


def parse_gpus(arch_lists: Iterable[str]) -> tuple[str, ...]:
    """Return the GPUs of ``--arch-list`` as ``sm_120``; ``native`` means this machine's GPUs.

    Raises UnknownError: ``native``, but this machine has no GPU or driver.
    Raises UsageError: A value is not a compute capability.
    """
    gpus: dict[str, None] = {}
    for arch in cuda_archs(replace_native(";".join(arch_lists))):
        if arch.endswith(("+PTX", "a", "f")):
            raise UsageError(
                f"--arch-list: {arch}: not a GPU", "pass a GPU's compute capability, such as 9.0 or 12.0"
            )
        gpus[f"sm_{arch.replace('.', '')}"] = None
    return tuple(gpus)


def _split(texts: Iterable[str]) -> list[str]:
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def select_steps(request: SlimRequest, contents: Contents) -> tuple[list[SlimStep], dict[str, str]]:
    """Return the steps that break no feature to keep, and the skipped steps.

    The latter by name, with the feature or the packages that would be nearly useless.
    """
    packages = frozenset(contents.owners.values())
    steps, spared = [], {}
    for step in STEPS:
        features = [feature for feature in (*step.costs, *step.limits) if feature.is_in(packages)]
        if step.name in request.keep or any(feature.name in request.keep for feature in features):
            continue
        if contents.kind != "environment" and step.name.startswith("nvidia-"):
            continue  # users of a library may be in other packages
        if vital := next((feature for feature in features if feature.is_vital), None):
            if step.gives_something(contents, request):
                spared[step.name] = vital.name
        elif needing := step.find_users(contents, request, needing=True):
            spared[step.name] = ", ".join(needing)
        elif request.gpus or step.name not in ("gpu-code", "triton-ptxas"):
            steps.append(step)
    return steps, spared


def _where(belongs: Callable[[str, str], bool]) -> Picker:
    return lambda contents, request: (path for path, owner in contents.owners.items() if belongs(path, owner))


_TORCH = ("torch", "pytorch", "libtorch")


def _is_of_triton(path: str, owner: str) -> bool:
    return owner in ("triton", "pytorch-triton") and "/triton/" in f"/{path}" and ".dist-info/" not in path


def _is_triton_profiler(path: str, owner: str) -> bool:
    tools = ("/bin/cuobjdump", "/bin/nvdisasm", "/libproton.so")
    return _is_of_triton(path, owner) and ("/nvidia/lib/cupti/" in path or path.endswith(tools))


def _other_ptxas(contents: Contents, request: SlimRequest) -> Iterable[str]:
    """Return Triton's ptxas for other GPUs: it has one for sm_100 and later, and one for older GPUs."""
    later = {number(gpu) >= 100 for gpu in request.gpus}
    unused = {"ptxas-blackwell"} if later == {False} else {"ptxas"} if later == {True} else set()
    tools = {path: os.path.basename(path) for path in _where(_is_of_triton)(contents, request)}
    both = {"ptxas", "ptxas-blackwell"} <= set(tools.values())
    return [path for path, name in tools.items() if both and name in unused]


def _static_libraries(contents: Contents, request: SlimRequest) -> Iterable[str]:
    """Return archives of object files; other files may have the same suffix, e.g. circuit models."""
    return (
        path
        for path in contents.owners
        if classify_path(path) == Kind.STATIC and contents.begins_with(path, b"!<")
    )


def _unused_libraries(*, for_measuring: bool) -> Picker:
    return lambda contents, request: (
        path for path, measures in find_unused_libraries(contents).items() if measures == for_measuring
    )


_COMPILING = (COMPILE_CPU, COMPILE_GPU, EXTENSIONS, STARTUP)
#: In order; a file counts for the first step that removes it.
STEPS = (
    SlimStep(name="triton", loses="Triton", costs=(COMPILE_GPU, STARTUP), picks=_where(_is_of_triton),
             users=find_triton_users),
    SlimStep(name="triton-profiler", loses="Proton, Triton's copies of CUDA tools",
             limits=(PROFILER,), picks=_where(_is_triton_profiler)),
    SlimStep(name="triton-ptxas", loses="Triton's assembler for other GPUs", picks=_other_ptxas),
    SlimStep(name="nvidia-unused", loses="unused NVIDIA libraries",
             picks=_unused_libraries(for_measuring=False)),
    SlimStep(name="nvidia-profiling", loses="GPU performance counters",
             limits=(PROFILER,), picks=_unused_libraries(for_measuring=True)),
    SlimStep(name="nvshmem-device", loses="NVSHMEM in Triton's kernels", limits=(DISTRIBUTED,),
             picks=_where(lambda path, owner: os.path.basename(path) == "libnvshmem_device.bc")),
    SlimStep(name="static", loses="static libraries", costs=(*_COMPILING, KERNELS),
             picks=_static_libraries, users=find_compiler_users),
    SlimStep(name="headers-torch", loses="torch headers", costs=_COMPILING,
             picks=_where(lambda path, owner: owner in _TORCH and classify_path(path) == Kind.HEADERS),
             users=find_compiler_users),
    SlimStep(name="headers-nvidia", loses="CUDA headers",
             costs=(COMPILE_GPU, EXTENSIONS, STARTUP, KERNELS),
             picks=_where(lambda path, owner: is_nvidia(owner) and classify_path(path) == Kind.HEADERS),
             users=find_compiler_users),
    SlimStep(name="gpu-code", loses="code for other GPUs"),
    SlimStep(name="symbols", loses="function names in debuggers and native traces"),
)  # fmt: skip
