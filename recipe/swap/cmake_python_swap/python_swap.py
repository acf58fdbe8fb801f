"""Re-point a built PyTorch tree at another Python, so that only its Python side has to be recompiled.

The swap changes the cache entries of Python, NumPy and pybind11 by key (python_entries.py), runs CMake, and asks ninja
which steps it would run. If ninja would rebuild anything outside the Python side, the swap is undone and reports the
steps with their reasons, before hours go into compiling libtorch a second time.

A swap costs about 160 of PyTorch 2.6.0's 1374 steps; 154 of them compile. 131 objects include Python.h and have to be
recompiled. The other 23 (most of torch/csrc/jit/passes/onnx) only have the path of Python's headers on their command
line. One path for all Pythons would avoid that, but ninja would then not notice changed headers, because conda's
packages are older than the objects. An object cache is safe: ccache compares preprocessed text, and takes a tenth of
the time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import frozen_settings, python_entries, python_headers, skbuild_backend, undo_folder
from .atomic_file import keep_original, write_atomically
from .cmake_cache import CacheError, CMakeCache, load, save
from .cmake_regenerate import RegenerateError, regenerate, written_by_cmake
from .ninja_dry_run import Graph, NinjaError, Step, dry_run
from .python_entries import Change, EntriesError
from .python_facts import InterpreterError, PythonFacts, ask

# The CMake targets that are compiled once per Python. A target that is not in this list counts as core.
# _nccl_ep is an extension module like _C, with CUDA, since 2.13 (from pytorch#189388; not seen in a real graph yet).
PYTHON_TARGETS = frozenset({"torch_python", "functorch", "nnapi_backend", "_C", "_nccl_ep"})
SHOWN = 20
_LOG = "python-swap.log"
# Errors of an unusable tree or interpreter.
UNUSABLE = (
    CacheError,
    EntriesError,
    InterpreterError,
    NinjaError,
    RegenerateError,
    skbuild_backend.SkbuildError,
    OSError,
)


class SwapRefused(Exception):
    """The swap would rebuild more than the Python side; the tree's cache is restored."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A swap, done or (`only_plan`) planned.

    `before`, `after`: versions, such as "3.12" and "3.13t"; ``before`` is "" if unknown.
    `steps`, `objects`, `core`: numbers of steps that ninja will run: all, those that compile, and those outside the
      Python side (0). None if only planned.
    """

    before: str
    after: str
    backend: str
    changes: tuple[Change, ...]
    steps: int | None = None
    objects: int | None = None
    core: int | None = None


def swap(
    build_dir: Path,
    python: Path,
    *,
    environment: Mapping[str, str] | None = None,
    only_plan: bool = False,
    python_targets: frozenset[str] = PYTHON_TARGETS,
) -> Report:
    """Re-point a tree at another interpreter.

    `python`: the interpreter, in the same prefix as the previous one.
    `environment`: environment variables, whose compilers and flags must be the tree's; default: this process's.
    `only_plan`: report the changes without making them.

    Raises SwapRefused: A frozen setting differs, or ninja would rebuild more than the Python side.
    Raises CacheError, EntriesError, InterpreterError, NinjaError, RegenerateError, skbuild_backend.SkbuildError: The
        tree or the interpreter is not usable. After any error the former cache is restored.
    """
    path = build_dir / "CMakeCache.txt"
    recover(build_dir)
    cache = load(path)
    facts = ask(python)
    _refuse(_obstacles(cache, facts, build_dir, os.environ if environment is None else environment))
    changes = python_entries.plan(cache, facts)
    if not changes and not python_entries.version(cache):
        raise SwapRefused(f"{path} names no Python: configure the tree with a Python first")
    files = skbuild_backend.claim(build_dir, facts.executable, facts.skbuild)
    if not files and python_entries.describes(cache, facts) and not _cmake_is_due(build_dir, cache):
        changes = ()  # staging's own Python: CMake has nothing to do
    report = Report(
        before=python_entries.version(cache),
        after=facts.short,
        backend="scikit-build-core" if files else "setup.py",
        changes=changes,
    )
    if only_plan:
        return report
    former = Graph(build_dir)
    with _undone_on_failure(build_dir, ("CMakeCache.txt", *files)):
        if changes or files:
            python_entries.apply(cache, changes)
            keep_original(path)
            for name, content in files.items():
                write_atomically(build_dir / name, content)
            save(cache, path)
            if files:  # the back end runs CMake itself, so that ninja is asked about the real build
                skbuild_backend.configure(
                    Path(cache.get("CMAKE_HOME_DIRECTORY")), facts.executable, log=build_dir / _LOG
                )
            else:
                regenerate(build_dir, log=build_dir / _LOG)
        _refuse(
            [*python_entries.disagreements(load(path), facts), *frozen_settings.changed(cache, load(path))]
        )
        steps = _judged(build_dir, former, python_targets)
        if python_headers.changed(build_dir, facts) and python_headers.forget_objects(
            build_dir, python_targets
        ):
            steps = dry_run(build_dir, ninja=cache.get("CMAKE_MAKE_PROGRAM", "ninja"))
        python_headers.record(build_dir, facts)
    objects = sum(output.endswith(".o") for step in steps for output in step.outputs)
    return Report(**{**vars(report), "steps": len(steps), "objects": objects, "core": 0})


def check(build_dir: Path, python_targets: frozenset[str] = PYTHON_TARGETS) -> None:
    """Raise SwapRefused if a build would rebuild more than the Python side; change nothing."""
    _judged(build_dir, Graph(build_dir), python_targets)


def _cmake_is_due(build_dir: Path, cache: CMakeCache) -> bool:
    """Return whether ninja would run CMake first, because one of CMake's input files has changed."""
    try:
        dry_run(build_dir, ninja=cache.get("CMAKE_MAKE_PROGRAM", "ninja"))
    except NinjaError:
        return True
    return False


def _judged(build_dir: Path, former: Graph, python_targets: frozenset[str]) -> tuple[Step, ...]:
    """Return the steps that ninja would run; raise SwapRefused if one is outside the Python side."""
    steps = dry_run(build_dir, ninja=load(build_dir / "CMakeCache.txt").get("CMAKE_MAKE_PROGRAM", "ninja"))
    core = [step for step in steps if step.binary and step.target not in python_targets]
    if core:
        raise SwapRefused(_dirty(core, former, Graph(build_dir)))
    return steps


def _obstacles(
    cache: CMakeCache, facts: PythonFacts, build_dir: Path, environment: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each reason to rebuild libtorch that is known before the swap changes anything."""
    generator = cache.get("CMAKE_GENERATOR", "no generator")
    if generator != "Ninja":
        yield f"the tree was configured for {generator}, but the swap needs ninja's dry run: configure with -G Ninja"
    prefix = python_entries.prefix(cache)
    if prefix and os.path.normpath(prefix) != os.path.normpath(facts.prefix):
        yield (
            f"the tree was configured with a Python in the prefix {prefix}, but {facts.executable} is in "
            f"{facts.prefix}: libtorch's command lines contain the prefix: move each Python's environment to {prefix}"
        )
    yield from frozen_settings.conflicts(cache, environment, build_dir)


def _refuse(reasons: Iterator[str] | Sequence[str]) -> None:
    found = list(reasons)
    if found:
        raise SwapRefused("\n".join(found))


def _dirty(core: Sequence[Step], former: Graph, current: Graph) -> str:
    """Return the text of a refusal: the number of steps, and the first of them with their reasons."""
    core = sorted(core, key=lambda step: not step.reason)  # steps with a reason of their own come first
    objects = sum(output.endswith(".o") for step in core for output in step.outputs)
    lines = [
        f"ninja would rebuild {len(core)} files outside the Python side ({objects} objects); nothing was built:"
    ]
    for step in core[:SHOWN]:
        name = step.outputs[0] if step.outputs else step.description
        lines.append(f"  {name} [{step.target or 'unknown target'}]: {_why(step, former, current)}")
    if len(core) > SHOWN:
        lines.append(f"  ... and {len(core) - SHOWN} more")
    return "\n".join(lines)


def _why(step: Step, former: Graph, current: Graph) -> str:
    reason = step.reason or "one of its inputs is rebuilt"
    if "command line" in reason and step.outputs:
        name = step.outputs[0]
        if name not in former.by_output:
            return f"{reason} (it did not exist before)"
        old, new = (graph.command(graph.by_output[name]) for graph in (former, current))
        words = frozen_settings.difference(old, new)
        reason += f" ({words})" if words else " (its last build did not use the tree's configuration)"
    return reason


@contextmanager
def _undone_on_failure(build_dir: Path, names: Sequence[str]) -> Iterator[None]:
    """Restore files, and those that CMake writes, if the body fails; after a kill, the next swap restores them."""
    undo_folder.prepare(build_dir, [*(build_dir / name for name in names), *written_by_cmake(build_dir)])
    try:
        yield
    except BaseException:
        recover(build_dir)
        raise
    undo_folder.forget(build_dir)


def recover(build_dir: Path) -> bool:
    """Undo a swap that failed or was killed; return whether there was one."""
    undone = undo_folder.undo(build_dir)
    if undone:
        # build.ninja may be that of the failed swap: the new date makes ninja run CMake first.
        os.utime(build_dir / "CMakeCache.txt")
    return undone


def marker(report: Report) -> str:
    """Return the log line by which the driver recognises a swap."""
    before = report.before or "unknown"
    return f"::megabuild:: swap from={before} to={report.after} steps={report.steps} core={report.core}"
