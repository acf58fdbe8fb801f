"""Re-point a built PyTorch tree at another Python, so that only its Python side has to be compiled again.

The cache entries that belong to Python, NumPy and pybind11 are changed by key (python_entries.py); CMake runs again;
then ninja is asked what it would run. If that is anything outside the Python side, the swap is undone and says what and
why: nobody finds out hours later that libtorch was compiled once more.

A swap costs about 160 steps of PyTorch 2.6.0's 1374, of which 154 are objects. 131 of these include Python.h and have
to be compiled. The other 23 (most of torch/csrc/jit/passes/onnx) run again only because the path of Python's headers is
on their command line. They could be spared by showing CMake one path for all Pythons, but then ninja would no longer
notice that the headers behind it are others, conda's packages being older than the objects. An object cache does it
safely: ccache compares what the preprocessor made, and answers each in a tenth of the time.
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

# The CMake targets that are compiled once per Python. An allow-list: a target nobody thought of counts as core.
# _nccl_ep is an extension module like _C, with CUDA, since 2.13 (by pytorch#189388; no graph seen here had it).
PYTHON_TARGETS = frozenset({"torch_python", "functorch", "nnapi_backend", "_C", "_nccl_ep"})
SHOWN = 20
_LOG = "python-swap.log"
# A tree or an interpreter that is not usable at all; each says what is wrong with it.
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
    """The swap would rebuild something outside the Python side; the tree's cache is as it was."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A swap, done or (`only_plan`) planned.

    `before`, `after`: Versions, like "3.12" and "3.13t"; ``before`` is "" where the cache does not say.
    `steps`, `objects`, `core`: what ninja will run: all steps; objects among them; steps outside the Python side (0).
      None when only planned.
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

    `python`: the interpreter, in the same prefix as the one before it.
    `environment`: Whose compilers and flags must agree with the tree's; default: this process's.
    `only_plan`: Report what would be changed and leave everything as it is.

    Raises SwapRefused: Something frozen differs, or ninja would rebuild something outside the Python side. The former
        cache is back.
    Raises CacheError, EntriesError, InterpreterError, NinjaError, RegenerateError, skbuild_backend.SkbuildError: The
        tree or the interpreter is not usable; the former cache is back.
    """
    path = build_dir / "CMakeCache.txt"
    recover(build_dir)
    cache = load(path)
    facts = ask(python)
    _refuse(_obstacles(cache, facts, build_dir, os.environ if environment is None else environment))
    changes = python_entries.plan(cache, facts)
    if not changes and not python_entries.version(cache):
        raise SwapRefused(f"{path} names no Python: configure the tree with one first")
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
            if files:  # the back end's own run of CMake: ninja is asked about what will really be built
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
    """Raise SwapRefused if building now would rebuild something outside the Python side; nothing is changed."""
    _judged(build_dir, Graph(build_dir), python_targets)


def _cmake_is_due(build_dir: Path, cache: CMakeCache) -> bool:
    """Whether ninja would run CMake first: one of CMake's own files has changed since it did."""
    try:
        dry_run(build_dir, ninja=cache.get("CMAKE_MAKE_PROGRAM", "ninja"))
    except NinjaError:
        return True
    return False


def _judged(build_dir: Path, former: Graph, python_targets: frozenset[str]) -> tuple[Step, ...]:
    """What ninja would run, if that is the Python side alone."""
    steps = dry_run(build_dir, ninja=load(build_dir / "CMakeCache.txt").get("CMAKE_MAKE_PROGRAM", "ninja"))
    core = [step for step in steps if step.binary and step.target not in python_targets]
    if core:
        raise SwapRefused(_dirty(core, former, Graph(build_dir)))
    return steps


def _obstacles(
    cache: CMakeCache, facts: PythonFacts, build_dir: Path, environment: Mapping[str, str]
) -> Iterator[str]:
    """Sentences about what would make the swap rebuild libtorch, known before anything is changed."""
    generator = cache.get("CMAKE_GENERATOR", "no generator")
    if generator != "Ninja":
        yield f"the tree was configured for {generator}; configure it with -G Ninja, whose dry run is the proof"
    prefix = python_entries.prefix(cache)
    if prefix and os.path.normpath(prefix) != os.path.normpath(facts.prefix):
        yield (
            f"the tree was configured with a Python in the prefix {prefix}, and {facts.executable} is in "
            f"{facts.prefix}: libtorch's own command lines hold the prefix; put each Python at the same place in turn"
        )
    yield from frozen_settings.conflicts(cache, environment, build_dir)


def _refuse(reasons: Iterator[str] | Sequence[str]) -> None:
    found = list(reasons)
    if found:
        raise SwapRefused("\n".join(found))


def _dirty(core: Sequence[Step], former: Graph, current: Graph) -> str:
    """The refusal's text: how much would be rebuilt, the first names, and why."""
    core = sorted(core, key=lambda step: not step.reason)  # those ninja has something to say about come first
    objects = sum(output.endswith(".o") for step in core for output in step.outputs)
    lines = [
        f"ninja would rebuild {len(core)} things outside the Python side ({objects} objects); nothing was built:"
    ]
    for step in core[:SHOWN]:
        name = step.outputs[0] if step.outputs else step.description
        lines.append(f"  {name} [{step.target or 'unknown target'}]: {_why(step, former, current)}")
    if len(core) > SHOWN:
        lines.append(f"  ... and {len(core) - SHOWN} more")
    return "\n".join(lines)


def _why(step: Step, former: Graph, current: Graph) -> str:
    reason = step.reason or "something it is made of is made again"
    if "command line" in reason and step.outputs:
        name = step.outputs[0]
        if name not in former.by_output:
            return f"{reason} (it did not exist before)"
        old, new = (graph.command(graph.by_output[name]) for graph in (former, current))
        words = frozen_settings.difference(old, new)
        reason += (
            f" ({words})"
            if words
            else " (it was last built with another one than the tree was configured for)"
        )
    return reason


@contextmanager
def _undone_on_failure(build_dir: Path, names: Sequence[str]) -> Iterator[None]:
    """Put files, and what CMake writes, back when the body fails; a killed swap is undone by the next one."""
    undo_folder.prepare(build_dir, [*(build_dir / name for name in names), *written_by_cmake(build_dir)])
    try:
        yield
    except BaseException:
        recover(build_dir)
        raise
    undo_folder.forget(build_dir)


def recover(build_dir: Path) -> bool:
    """Undo a swap that failed or was killed half-way; returns whether there was one."""
    undone = undo_folder.undo(build_dir)
    if undone:
        # build.ninja may be the failed attempt's: ninja must run CMake before it builds anything.
        os.utime(build_dir / "CMakeCache.txt")
    return undone


def marker(report: Report) -> str:
    """The line by which the driver learns of a swap."""
    before = report.before or "unknown"
    return f"::megabuild:: swap from={before} to={report.after} steps={report.steps} core={report.core}"
