"""The steps of a slimming: the files each removes, and the features it breaks."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cuda_code.cuda_archs import number
from gpu_tools.contents import Contents
from gpu_tools.file_lists import source_of
from gpu_tools.sizes.inside import classify_path
from gpu_tools.sizes.tree import Kind
from gpu_tools.slim.features import FEATURES, is_nvidia
from gpu_tools.slim.users import find_compiler_users, find_triton_users, find_unused_libraries
from gpu_tools.verify.gpu import replace_native
from groundwork.errors import UsageError
from groundwork.names import cuda_archs


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
    costs: tuple[str, ...] = ()  #: Names of features that stop working.


def parse_keep(keep: Iterable[str]) -> frozenset[str]:
    """Split and check the values of ``--keep``; ``compile`` means ``compile-cpu`` and ``compile-gpu``.

    Raises UsageError: A name is neither a feature nor a step.
    """
    names: set[str] = set()
    choices = [*FEATURES, "compile", *(step.name for step in STEPS)]
    for name in filter(None, map(str.strip, ",".join(keep).split(","))):
        if name not in choices:
            raise UsageError(f"--keep: {name}: unknown feature or step", f"choose from {', '.join(choices)}")
        names |= {"compile-cpu", "compile-gpu"} if name == "compile" else {name}
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


def select_steps(
    request: SlimRequest,
    contents: Contents,
    files: Mapping[str, Sequence[str]],
    users: Mapping[str, Mapping[str, bool]],
) -> tuple[list[SlimStep], dict[str, str]]:
    """Return the steps that break no feature to keep, and the skipped steps.

    The latter by name, with the feature or the packages that would be nearly useless. ``files`` and ``users`` are from
    :func:`find_files` and :func:`find_users`.
    """
    packages = frozenset(contents.owners.values())
    steps, spared = [], {}
    for step in STEPS:
        features = [FEATURES[name] for name in step.costs if FEATURES[name].is_in(packages)]
        if step.name in request.keep or any(feature.name in request.keep for feature in features):
            continue
        if vital := next((feature for feature in features if feature.is_vital), None):
            if files.get(step.name):
                spared[step.name] = vital.name
        elif needing := sorted(name for name, needs in users.get(step.name, {}).items() if needs):
            spared[step.name] = ", ".join(needing)
        elif request.gpus or step.name not in ("gpu-code", "triton-ptxas"):
            steps.append(step)
    return steps, spared


_TORCH = ("torch", "pytorch", "libtorch")
_TRITON_TOOLS = ("/bin/cuobjdump", "/bin/nvdisasm", "/libproton.so")
#: Steps by the pattern of their files' paths. Packages import other modules of their tests folders; licences stay.
_NAMED = {
    "tests": re.compile(r"(.*/)?tests?/(.*/)?(test_[^/]*|conftest)\.py"),
    "documentation": re.compile(r"(.*/)?share/(doc|info|man)/(?!.*(cop(y|ie)|licen[cs]|notice)).*", re.IGNORECASE),
    "nvshmem-device": re.compile(r"(.*/)?libnvshmem_device\.bc"),
}  # fmt: skip


def find_files(contents: Contents, request: SlimRequest) -> Mapping[str, Sequence[str]]:
    """Return the files that each step could remove, by the step's name; a file may be in several steps."""
    files: dict[str, list[str]] = defaultdict(list)
    for path, owner in contents.owners.items():
        kind = classify_path(path)
        if owner in ("triton", "pytorch-triton") and "/triton/" in f"/{path}" and ".dist-info/" not in path:
            files["triton"].append(path)
            if "/nvidia/lib/cupti/" in path or path.endswith(_TRITON_TOOLS):
                files["triton-profiler"].append(path)
        for name in (name for name, named in _NAMED.items() if named.fullmatch(source_of(path) or path)):
            files[name].append(path)
        if source_of(path) in contents.every and contents.kind == "environment":
            files["byte-code"].append(path)
        # other files than archives of objects may have the same suffix, e.g. circuit models
        if kind == Kind.STATIC and contents.begins_with(path, b"!<"):
            files["static"].append(path)
        if kind == Kind.HEADERS and (owner in _TORCH or is_nvidia(owner)):
            files["headers-torch" if owner in _TORCH else "headers-nvidia"].append(path)
    # Triton has an assembler for sm_100 and later, and one for older GPUs
    later = {number(gpu) >= 100 for gpu in request.gpus}
    unused = {"ptxas-blackwell"} if later == {False} else {"ptxas"} if later == {True} else set()
    tools = {path: os.path.basename(path) for path in files["triton"]}
    if {"ptxas", "ptxas-blackwell"} <= set(tools.values()):
        files["triton-ptxas"] += [path for path, name in tools.items() if name in unused]
    if contents.kind == "environment":  # users of a library may be in other packages
        for path, measures in find_unused_libraries(contents).items():
            files["nvidia-profiling" if measures else "nvidia-unused"].append(path)
    return files


def find_users(contents: Contents, files: Mapping[str, Sequence[str]]) -> dict[str, Mapping[str, bool]]:
    """Return by step the packages of an environment that use its files, and whether they are useless without."""
    used = {name for name, paths in files.items() if paths and contents.kind == "environment"}
    users: dict[str, Mapping[str, bool]] = {}
    if "triton" in used:
        users["triton"] = find_triton_users(contents)
    if compiled_with := used & {"static", "headers-torch", "headers-nvidia"}:
        users |= dict.fromkeys(compiled_with, find_compiler_users(contents))
    return users


_COMPILING = ("compile-cpu", "compile-gpu", "extensions", "startup")
#: In order; a file counts for the first step that removes it.
STEPS = (
    SlimStep(name="triton", loses="Triton", costs=("compile-gpu", "startup")),
    SlimStep(name="triton-profiler", loses="Proton, Triton's copies of CUDA tools", costs=("profiler",)),
    SlimStep(name="triton-ptxas", loses="Triton's assembler for other GPUs"),
    SlimStep(name="nvidia-unused", loses="unused NVIDIA libraries"),
    SlimStep(name="nvidia-profiling", loses="GPU performance counters", costs=("profiler",)),
    SlimStep(name="nvshmem-device", loses="NVSHMEM in Triton's kernels", costs=("distributed",)),
    SlimStep(name="static", loses="static libraries", costs=(*_COMPILING, "kernels")),
    SlimStep(name="headers-torch", loses="torch headers", costs=_COMPILING),
    SlimStep(name="headers-nvidia", loses="CUDA headers", costs=("compile-gpu", "extensions", "startup", "kernels")),
    SlimStep(name="tests", loses="packages' own tests"),
    SlimStep(name="documentation", loses="manual pages, documents"),
    SlimStep(name="byte-code", loses="byte code; Python writes it again"),
    # these two shrink libraries
    SlimStep(name="gpu-code", loses="code for other GPUs"),
    SlimStep(name="symbols", loses="function names in debuggers and native traces"),
)  # fmt: skip
