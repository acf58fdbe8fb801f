"""The steps of a slimming: what each takes away, and which features that costs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from cuda_archs import number
from megabuild.errors import UsageError
from megabuild.sizes.inside import by_name
from megabuild.sizes.installed import source_of
from megabuild.sizes.tree import Kind
from megabuild.slim.listing import Contents
from megabuild.slim.needed import is_nvidia, not_needed


class Feature(str, Enum):
    """What people do with a PyTorch environment; the values are what ``--keep`` takes."""

    IMPORT = "import"
    AUTOGRAD = "autograd"
    JIT = "jit"
    COMPILE_CPU = "compile-cpu"
    COMPILE_GPU = "compile-gpu"
    EXTENSIONS = "extensions"
    DISTRIBUTED = "distributed"
    PROFILER = "profiler"

    def __str__(self) -> str:
        return _WORDS.get(self, self.value)


_WORDS = {
    Feature.JIT: "torch.jit",
    Feature.COMPILE_CPU: "torch.compile on the CPU",
    Feature.COMPILE_GPU: "torch.compile on GPUs",
    Feature.EXTENSIONS: "compiling extensions",
}
_GROUPS = {"compile": (Feature.COMPILE_CPU, Feature.COMPILE_GPU)}


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
    """

    gpus: tuple[str, ...] = ()
    keep: frozenset[str] = frozenset()
    lto_ir: bool = True


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
    known = [*(one.value for one in Feature), *_GROUPS, *(step.name for step in STEPS)]
    for name in filter(None, keep):
        if name not in known:
            raise UsageError(f"there is nothing called {name} to keep", f"choose of {', '.join(known)}")
        found |= {feature.value for feature in _GROUPS[name]} if name in _GROUPS else {name}
    return frozenset(found)


def chosen(request: Request, kind: str) -> list[Step]:
    """Return the steps to take: those that cost and limit nothing that is to be kept."""
    steps = [
        step
        for step in STEPS
        if step.name not in request.keep
        and not any(feature.value in request.keep for feature in (*step.costs, *step.limits))
    ]
    if not request.gpus:
        steps = [step for step in steps if step.name not in ("gpu-code", "triton-ptxas")]
    if kind != "environment":  # who needs a library is not known
        steps = [step for step in steps if not step.name.startswith("nvidia-")]
    return steps


def _triton(contents: Contents, request: Request) -> Iterator[str]:
    for path in _owned(contents, "triton"):
        if "/triton/" in f"/{path}" and ".dist-info/" not in path:
            yield path


def _triton_profiler(contents: Contents, request: Request) -> Iterator[str]:
    for path in _triton(contents, request):
        if "/nvidia/lib/cupti/" in path or path.endswith(
            ("/bin/cuobjdump", "/bin/nvdisasm", "/libproton.so")
        ):
            yield path


def _other_ptxas(contents: Contents, request: Request) -> Iterator[str]:
    """Return the ptxas that Triton uses for GPUs not named: it has one for sm_100 and later, one for all before."""
    later = {number(gpu) >= 100 for gpu in request.gpus}
    unused = {"ptxas-blackwell"} if later == {False} else {"ptxas"} if later == {True} else set()
    tools = {path: os.path.basename(path) for path in _triton(contents, request)}
    if {"ptxas", "ptxas-blackwell"} <= set(tools.values()):
        yield from (path for path, name in tools.items() if name in unused)


def _static(contents: Contents, request: Request) -> Iterator[str]:
    yield from (path for path in contents.owners if by_name(path) == Kind.STATIC)


def _torch_headers(contents: Contents, request: Request) -> Iterator[str]:
    yield from _headers(
        path for owner in ("torch", "pytorch", "libtorch") for path in _owned(contents, owner)
    )


def _nvidia_headers(contents: Contents, request: Request) -> Iterator[str]:
    yield from _headers(path for path, owner in contents.owners.items() if is_nvidia(owner))


def _headers(paths: Iterable[str]) -> Iterator[str]:
    yield from (path for path in paths if by_name(path) == Kind.HEADERS)


def _device_libraries(contents: Contents, request: Request) -> Iterator[str]:
    yield from (path for path in contents.owners if os.path.basename(path) == "libnvshmem_device.bc")


_TEST_FOLDERS = frozenset({"test", "tests"})
_IMPORTED_TESTS = re.compile(
    rb"^[ \t]*(?:from|import)[ \t]+(\.*[\w.]*?)\b(tests?)\b(?:\.[\w.]+)?", re.MULTILINE
)
_MODULES = re.compile(r"(?:.*/)?(?:(?:site|dist)-packages|python3\.\d+)/")


def _tests(contents: Contents, request: Request) -> Iterator[str]:
    """Return folders of tests; one that a module outside of it imports stays."""
    folders: dict[str, list[str]] = {}
    for path in contents.owners:
        module = _module_path(path, contents)
        parts = PurePosixPath(module).parts[:-1]
        if (
            parts
            and "include" not in parts
            and (at := next((n for n, x in enumerate(parts) if x in _TEST_FOLDERS), 0))
        ):
            folders.setdefault("/".join(parts[: at + 1]), []).append(path)
    used = _imported(contents)
    for folder, paths in folders.items():
        if folder not in used:
            yield from paths


def _imported(contents: Contents) -> set[str]:
    """Return folders of tests that modules elsewhere import, as paths of modules."""
    found: set[str] = set()
    for path in contents.owners:
        module = _module_path(path, contents)
        if not module.endswith(".py") or _TEST_FOLDERS & set(PurePosixPath(module).parts[:-1]):
            continue
        content = contents.every[path].source.read_bytes()
        if b"test" in content:
            for match in _IMPORTED_TESTS.finditer(content):
                found.add(_absolute(match[1].decode(), match[2].decode(), module))
    return found


def _absolute(before: str, name: str, module: str) -> str:
    """Return the folder that an import names, written in a module."""
    named = before.lstrip(".")
    up = len(before) - len(named)
    parts = list(PurePosixPath(module).parts[:-up]) if up else []
    return "/".join([*parts, *filter(None, named.split(".")), name])


def _module_path(path: str, contents: Contents) -> str:
    """Return a file's path below the folder that Python imports from; empty for what lies elsewhere."""
    found = _MODULES.match(path)
    if found:
        return path[found.end() :]
    return path if contents.kind == "wheel" else ""


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


def _owned(contents: Contents, owner: str) -> Iterator[str]:
    yield from (path for path, one in contents.owners.items() if one in (owner, f"pytorch-{owner}"))


_COMPILING = (Feature.COMPILE_CPU, Feature.COMPILE_GPU, Feature.EXTENSIONS)
#: In the order in which they are taken; a file counts for the first that takes it.
STEPS = (
    Step(name="triton", loses="Triton", costs=(Feature.COMPILE_GPU,),
         picks=_triton),
    Step(name="triton-profiler", loses="Proton, Triton's copies of CUDA's tools",
         limits=(Feature.PROFILER,), picks=_triton_profiler),
    Step(name="triton-ptxas", loses="Triton's assembler for other GPUs", picks=_other_ptxas),
    Step(name="nvidia-unused", loses="libraries that nothing here names", picks=_unused),
    Step(name="nvidia-profiling", loses="GPU's performance counters",
         limits=(Feature.PROFILER,), picks=_profiling),
    Step(name="nvshmem-device", loses="NVSHMEM in Triton's kernels",
         limits=(Feature.DISTRIBUTED,), picks=_device_libraries),
    Step(name="static", loses="static libraries", costs=_COMPILING, picks=_static),
    Step(name="headers-torch", loses="headers of torch", costs=_COMPILING, picks=_torch_headers),
    Step(name="headers-nvidia", loses="headers of CUDA",
         costs=(Feature.COMPILE_GPU, Feature.EXTENSIONS), picks=_nvidia_headers),
    Step(name="tests", loses="packages' own tests", picks=_tests),
    Step(name="byte-code", loses="compiled Python, which comes back as it is run", picks=_byte_code),
    Step(name="documentation", loses="documentation", picks=_documentation),
    Step(name="gpu-code", loses="code for other GPUs"),
    Step(name="symbols", loses="function names in debuggers and native traces"),
)  # fmt: skip
