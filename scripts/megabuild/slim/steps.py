"""The steps of a slimming: what each takes away, and which features that costs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cuda_archs import number
from megabuild.errors import UsageError
from megabuild.sizes.inside import by_name
from megabuild.sizes.installed import source_of
from megabuild.sizes.tree import Kind
from megabuild.slim.features import (
    COMPILE_CPU,
    COMPILE_GPU,
    DISTRIBUTED,
    EXTENSIONS,
    FEATURES,
    KERNELS,
    PROFILER,
    STARTUP,
    Feature,
)
from megabuild.slim.listing import Contents
from megabuild.slim.needed import is_nvidia, not_needed
from megabuild.slim.own_tests import picked

_GROUPS = {"compile": (COMPILE_CPU, COMPILE_GPU)}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be made smaller, and how far.

    Parameters
    ----------
    gpus:
        The GPUs to keep code for, ``sm_120``; none: that of all.
    keep:
        Names of features, and of steps, that are not to be lost or taken.
    lto_ir:
        Whether LTO-IR stays.
    unsupported:
        Whether to go on for a GPU for which nothing there has code.
    """

    gpus: tuple[str, ...] = ()
    keep: frozenset[str] = frozenset()
    lto_ir: bool = True
    unsupported: bool = False


Picker = Callable[[Contents, Request], Iterable[str]]


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something that is taken away.

    Parameters
    ----------
    name:
        As ``--keep`` takes it.
    loses:
        What is gone with it, in words.
    costs:
        The features that do not work without it.
    limits:
        The features of which a part does not work.
    picks:
        Returns the files to remove; None for a step that goes on inside libraries.
    """

    name: str
    loses: str
    costs: tuple[Feature, ...] = ()
    limits: tuple[Feature, ...] = ()
    picks: Picker | None = None


def wanted(keep: Iterable[str]) -> frozenset[str]:
    """Check the names given for ``--keep``, and resolve those that stand for several.

    Raises
    ------
    UsageError
        One is neither a feature nor a step.
    """
    found: set[str] = set()
    known = [*(one.name for one in FEATURES), *_GROUPS, *(step.name for step in STEPS)]
    for name in filter(None, keep):
        if name not in known:
            raise UsageError(f"there is nothing called {name} to keep", f"choose of {', '.join(known)}")
        found |= {feature.name for feature in _GROUPS[name]} if name in _GROUPS else {name}
    return frozenset(found)


def chosen(request: Request, contents: Contents) -> tuple[list[Step], dict[str, Feature]]:
    """Choose the steps to take: those that cost and limit nothing that is to be kept.

    Returns
    -------
    The steps, and by name those that are left out for a feature without which a package here is of little use.
    """
    packages = frozenset(contents.owners.values())
    steps, spared = [], {}
    for step in STEPS:
        features = [one for one in (*step.costs, *step.limits) if one.is_in(packages)]
        if step.name in request.keep or any(one.name in request.keep for one in features):
            continue
        vital = next((one for one in features if one.is_vital), None)
        if vital:
            spared[step.name] = vital
        elif request.gpus or step.name not in ("gpu-code", "triton-ptxas"):
            steps.append(step)
    if contents.kind != "environment":  # who needs a library is not known
        steps = [step for step in steps if not step.name.startswith(("nvidia-", "accelerators"))]
    return steps, spared


def _triton(contents: Contents, request: Request) -> Iterator[str]:
    """Return Triton, if PyTorch is all that requires it: others may not even be imported without."""
    names = ("triton", "pytorch-triton")
    requirers = {
        owner for owner, all_of in contents.requires.items() if any(all_of.get(one) for one in names)
    }
    if contents.kind != "environment" or all(map(_is_torch, requirers)):
        yield from _of_triton(contents)


def _of_triton(contents: Contents) -> Iterator[str]:
    for path in _owned(contents, "triton"):
        if "/triton/" in f"/{path}" and ".dist-info/" not in path:
            yield path


def _triton_profiler(contents: Contents, request: Request) -> Iterator[str]:
    for path in _of_triton(contents):
        if "/nvidia/lib/cupti/" in path or path.endswith(
            ("/bin/cuobjdump", "/bin/nvdisasm", "/libproton.so")
        ):
            yield path


def _other_ptxas(contents: Contents, request: Request) -> Iterator[str]:
    """Return the ptxas that Triton uses for GPUs not named: it has one for sm_100 and later, one for all before."""
    later = {number(gpu) >= 100 for gpu in request.gpus}
    unused = {"ptxas-blackwell"} if later == {False} else {"ptxas"} if later == {True} else set()
    tools = {path: os.path.basename(path) for path in _of_triton(contents)}
    if {"ptxas", "ptxas-blackwell"} <= set(tools.values()):
        yield from (path for path, name in tools.items() if name in unused)


def _static(contents: Contents, request: Request) -> Iterator[str]:
    yield from (path for path in contents.owners if by_name(path) == Kind.STATIC)


def _torch_headers(contents: Contents, request: Request) -> Iterator[str]:
    yield from _headers(path for path, owner in contents.owners.items() if _is_torch(owner))


def _nvidia_headers(contents: Contents, request: Request) -> Iterator[str]:
    yield from _headers(path for path, owner in contents.owners.items() if is_nvidia(owner))


def _headers(paths: Iterable[str]) -> Iterator[str]:
    yield from (path for path in paths if by_name(path) == Kind.HEADERS)


def _is_torch(owner: str) -> bool:
    return owner in ("torch", "pytorch", "libtorch")


_BUILD = re.compile(r"(lib.+)_(cuda|rocm|hip|xpu)(\d*)\.so")


def _other_builds(contents: Contents, request: Request) -> Iterator[str]:
    """Return builds of a library for other accelerators, or other major versions, than PyTorch's.

    bitsandbytes has fifteen, opens the one that fits ``torch.version``, and none of another major version.
    """
    version = next((path for path in contents.owners if path.endswith("/torch/version.py")), None)
    text = contents.every[version].source.read_text(encoding="utf-8", errors="replace") if version else ""
    torchs = dict(_ACCELERATOR.findall(text))
    if not torchs:  # PyTorch for CPUs, or none: which one is opened is not known
        return
    builds: dict[str, list[tuple[str, str, str]]] = {}
    for path in contents.owners:
        if found := _BUILD.fullmatch(os.path.basename(path)):
            kind = "hip" if found[2] == "rocm" else found[2]
            builds.setdefault(f"{os.path.dirname(path)}/{found[1]}", []).append((path, kind, found[3]))
    for several in builds.values():
        fit = {path for path, kind, number in several if kind in torchs and number.startswith(torchs[kind])}
        if fit:
            yield from (path for path, _, _ in several if path not in fit)


#: As PyTorch's build writes them: ``cuda: Optional[str] = '13.0'``, and None for what it was not built for.
_ACCELERATOR = re.compile(r"^(cuda|hip|xpu)\b[^=\n]*= ?['\"](\d+)", re.MULTILINE)


def _device_libraries(contents: Contents, request: Request) -> Iterator[str]:
    yield from (path for path in contents.owners if os.path.basename(path) == "libnvshmem_device.bc")


def _byte_code(contents: Contents, request: Request) -> Iterator[str]:
    yield from (path for path in contents.owners if source_of(path) in contents.every)


_LEGAL = re.compile(r"licen[cs]e|copying|copyright|notice|authors|eula", re.IGNORECASE)
_DOCUMENTS = re.compile(
    r"share/(?:doc|man|info|gtk-doc)/|(?:.*/)?(?:site|dist)-packages/(?:.*/)?docs?/", re.DOTALL
)


def _documentation(contents: Contents, request: Request) -> Iterator[str]:
    for path in contents.owners:
        if (
            _DOCUMENTS.match(path)
            and not _LEGAL.search(path)
            and not path.endswith((".py", ".pyc", ".pyi", ".so", ".json"))
        ):
            yield path


def _unused(contents: Contents, request: Request) -> Iterator[str]:
    yield from (path for path, measures in not_needed(contents).items() if not measures)


def _profiling(contents: Contents, request: Request) -> Iterator[str]:
    yield from (path for path, measures in not_needed(contents).items() if measures)


def _tests(contents: Contents, request: Request) -> Iterator[str]:
    yield from picked(contents)


def _owned(contents: Contents, owner: str) -> Iterator[str]:
    yield from (path for path, one in contents.owners.items() if one in (owner, f"pytorch-{owner}"))


_COMPILING = (COMPILE_CPU, COMPILE_GPU, EXTENSIONS, STARTUP)
#: In the order in which they are taken; a file counts for the first that takes it.
STEPS = (
    Step(name="triton", loses="Triton", costs=(COMPILE_GPU, STARTUP), picks=_triton),
    Step(name="triton-profiler", loses="Proton, Triton's copies of CUDA's tools",
         limits=(PROFILER,), picks=_triton_profiler),
    Step(name="triton-ptxas", loses="Triton's assembler for other GPUs", picks=_other_ptxas),
    Step(name="nvidia-unused", loses="NVIDIA's libraries that nothing loads", picks=_unused),
    Step(name="nvidia-profiling", loses="GPU's performance counters",
         limits=(PROFILER,), picks=_profiling),
    Step(name="nvshmem-device", loses="NVSHMEM in Triton's kernels",
         limits=(DISTRIBUTED,), picks=_device_libraries),
    Step(name="accelerators", loses="builds for other accelerators than torch's", picks=_other_builds),
    Step(name="static", loses="static libraries", costs=(*_COMPILING, KERNELS), picks=_static),
    Step(name="headers-torch", loses="headers of torch", costs=_COMPILING, picks=_torch_headers),
    Step(name="headers-nvidia", loses="headers of CUDA",
         costs=(COMPILE_GPU, EXTENSIONS, STARTUP, KERNELS), picks=_nvidia_headers),
    Step(name="tests", loses="packages' own tests", picks=_tests),
    Step(name="byte-code", loses="compiled Python, which comes back as it is run", picks=_byte_code),
    Step(name="documentation", loses="documentation", picks=_documentation),
    Step(name="gpu-code", loses="code for other GPUs"),
    Step(name="symbols", loses="function names in debuggers and native traces"),
)  # fmt: skip
