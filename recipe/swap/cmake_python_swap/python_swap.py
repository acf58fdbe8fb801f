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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from . import frozen_settings, python_entries, python_headers, skbuild_backend, undo_folder
from .atomic_file import keep_original, write_atomically
from .cmake_cache import NAME, CacheError, CMakeCache, load, save
from .cmake_regenerate import RegenerateError, regenerate, written_by_cmake
from .ninja_dry_run import Graph, NinjaError, Step, dry_run
from .python_entries import Change, EntriesError
from .python_facts import InterpreterError, PythonFacts, ask

# The CMake targets that are compiled once per Python. A target that is not in this list counts as core.
# CMake makes _C from 2.13 on (pytorch#180243), and with CUDA's USE_NCCL_EP _nccl_ep (#187366), which the wheels of 2.13
# to 2.15 leave out.
PYTHON_TARGETS = frozenset({"torch_python", "functorch", "nnapi_backend", "_C", "_nccl_ep"})
SHOWN = 20
_NINJA = "Ninja"  # CMake's name of its generator
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


class TreeRefused(Exception):
    """The swap would rebuild more than the Python side; the tree's cache is restored.

    The process ends with exit code 9, from which the driver makes its own ``SwapRefused``: the swap needs no driver.
    """


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

    Raises TreeRefused: A frozen setting differs, or ninja would rebuild more than the Python side.
    Raises CacheError, EntriesError, InterpreterError, NinjaError, RegenerateError, skbuild_backend.SkbuildError: The
        tree or the interpreter is not usable. After any error the former cache is restored.
    """
    if environment is None:
        environment = os.environ
    path = build_dir / NAME
    recover(build_dir)
    cache = load(path)
    facts = ask(python)
    _refuse(_obstacles(cache, facts, build_dir, environment))
    former = python_entries.version(cache)
    changes = python_entries.plan(cache, facts)
    if not changes and not former:
        raise TreeRefused(f"{path} names no Python: configure the tree with a Python first")
    backend = "setup.py"
    files = skbuild_backend.claim(build_dir, facts.executable, facts.skbuild)
    if files:
        backend = "scikit-build-core"
    elif python_entries.describes(cache, facts) and not _cmake_is_due(build_dir, cache):
        changes = ()  # staging's own Python: CMake has nothing to do
    report = Report(before=former, after=facts.short, backend=backend, changes=changes)
    if only_plan:
        return report
    graph = Graph(build_dir)
    with _undone_on_failure(build_dir, (NAME, *files)):
        if changes or files:
            _configure(build_dir, cache, facts, changes, files)
        configured = load(path)
        _refuse(
            [*python_entries.disagreements(configured, facts), *frozen_settings.changed(cache, configured)]
        )
        steps = _judged(build_dir, graph, python_targets)
        if _forget_other_headers(build_dir, facts, python_targets):
            steps = _ask_ninja(build_dir, cache)
        python_headers.record(build_dir, facts)
    return replace(report, steps=len(steps), objects=_count_objects(steps), core=0)


def _forget_other_headers(build_dir: Path, facts: PythonFacts, python_targets: frozenset[str]) -> bool:
    """Delete the Python side's objects if headers have changed under the same path; return whether there were any."""
    if not python_headers.changed(build_dir, facts):
        return False
    return python_headers.forget_objects(build_dir, python_targets) > 0


def _configure(
    build_dir: Path,
    cache: CMakeCache,
    facts: PythonFacts,
    changes: tuple[Change, ...],
    files: Mapping[str, bytes],
) -> None:
    """Change the cache and the back end's files, and run CMake."""
    path = build_dir / NAME
    log = build_dir / _LOG
    python_entries.apply(cache, changes)
    keep_original(path)
    for name, content in files.items():
        write_atomically(build_dir / name, content)
    save(cache, path)
    if files:  # the back end runs CMake itself, so that ninja is asked about the real build
        tree = Path(cache.get("CMAKE_HOME_DIRECTORY"))
        skbuild_backend.configure(tree, facts.executable, log=log)
    else:
        regenerate(build_dir, log=log)


def check(build_dir: Path, python_targets: frozenset[str] = PYTHON_TARGETS) -> None:
    """Raise TreeRefused if a build would rebuild more than the Python side; change nothing."""
    _judged(build_dir, Graph(build_dir), python_targets)


def _cmake_is_due(build_dir: Path, cache: CMakeCache) -> bool:
    """Return whether ninja would run CMake first, because one of CMake's input files has changed."""
    try:
        _ask_ninja(build_dir, cache)
    except NinjaError:
        return True
    return False


def _ask_ninja(build_dir: Path, cache: CMakeCache) -> tuple[Step, ...]:
    """Return the steps that the tree's own ninja would run."""
    return dry_run(build_dir, ninja=cache.get("CMAKE_MAKE_PROGRAM", "ninja"))


def _count_objects(steps: Iterable[Step]) -> int:
    return sum(step.count_objects() for step in steps)


def _judged(build_dir: Path, former: Graph, python_targets: frozenset[str]) -> tuple[Step, ...]:
    """Return the steps that ninja would run; raise TreeRefused if one is outside the Python side."""
    steps = _ask_ninja(build_dir, load(build_dir / NAME))
    core = [step for step in steps if step.binary and step.target not in python_targets]
    if core:
        raise TreeRefused(_dirty(core, former, Graph(build_dir)))
    return steps


def _obstacles(
    cache: CMakeCache, facts: PythonFacts, build_dir: Path, environment: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each reason to rebuild libtorch that is known before the swap changes anything."""
    generator = cache.get("CMAKE_GENERATOR", "no generator")
    if generator != _NINJA:
        yield f"the tree was configured for {generator}, but the swap needs ninja's dry run: configure with -G Ninja"
    prefix = python_entries.prefix(cache)
    if prefix and os.path.normpath(prefix) != os.path.normpath(facts.prefix):
        yield (
            f"the tree was configured with a Python in the prefix {prefix}, but {facts.executable} is in "
            f"{facts.prefix}: libtorch's command lines contain the prefix: move each Python's environment to {prefix}"
        )
    yield from frozen_settings.conflicts(cache, environment, build_dir)


def _refuse(reasons: Iterable[str]) -> None:
    """Raise TreeRefused if there are reasons."""
    found = list(reasons)
    if found:
        raise TreeRefused("\n".join(found))


def _dirty(core: Sequence[Step], former: Graph, current: Graph) -> str:
    """Return the text of a refusal: the number of steps, and the first of them with their reasons."""
    core = sorted(core, key=lambda step: not step.reason)  # steps with a reason of their own come first
    counts = f"{len(core)} files outside the Python side ({_count_objects(core)} objects)"
    lines = [f"ninja would rebuild {counts}; nothing was built:"]
    for step in core[:SHOWN]:
        name, *_ = step.outputs or (step.description,)
        lines.append(f"  {name} [{step.target or 'unknown target'}]: {_why(step, former, current)}")
    if len(core) > SHOWN:
        lines.append(f"  ... and {len(core) - SHOWN} more")
    return "\n".join(lines)


def _why(step: Step, former: Graph, current: Graph) -> str:
    reason = step.reason or "one of its inputs is rebuilt"
    if "command line" not in reason or not step.outputs:
        return reason
    name = step.outputs[0]
    if name not in former.by_output:
        return f"{reason} (it did not exist before)"
    old = former.command(former.by_output[name])
    new = current.command(current.by_output[name])
    words = frozen_settings.difference(old, new) or "its last build did not use the tree's configuration"
    return f"{reason} ({words})"


@contextmanager
def _undone_on_failure(build_dir: Path, names: Sequence[str]) -> Iterator[None]:
    """Restore files, and those that CMake writes, if the body fails; after a kill, the next swap restores them."""
    files = [build_dir / name for name in names]
    files += written_by_cmake(build_dir)
    undo_folder.prepare(build_dir, files)
    try:
        yield
    except BaseException:
        recover(build_dir)
        raise
    undo_folder.forget(build_dir)


def recover(build_dir: Path) -> bool:
    """Undo a swap that failed or was killed; return whether there was one."""
    if not undo_folder.undo(build_dir):
        return False
    # build.ninja may be that of the failed swap: the new date makes ninja run CMake first.
    os.utime(build_dir / NAME)
    undo_folder.forget(build_dir)  # last: after a kill in between, only another undo gives the date
    return True


def marker(report: Report) -> str:
    """Return the log line by which the driver recognises a swap."""
    before = report.before or "unknown"
    return f"::megabuild:: swap from={before} to={report.after} steps={report.steps} core={report.core}"
