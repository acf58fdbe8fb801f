"""Estimates disk, memory and time of a run, from a table or from the config's last run on this machine.

The table: Debian's PyTorch 2.6 with few features and the wheels of 2.13 were measured on two cores; the others are
reported for conda-forge's builds (pytorch-cpu-feedstock #210 and #298; for flash-attention pytorch #130443).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from groundwork import files
from groundwork.errors import ConfigError
from groundwork.jobs import Jobs, bytes_per_compile, compile_jobs
from groundwork.keys import Key
from groundwork.machine import measure
from megabuild.configs.config import available, load
from megabuild.configs.sharing import find_sharing
from megabuild.plan.options import Options
from megabuild.plan.plan import Estimate, Method, Plan
from megabuild.providers.provider import Figures
from megabuild.providers.select import provider_of

GB = 1_000_000_000
#: For each heavy nvcc object compiled at a time: the largest reported, plus an ordinary object next to it.
_HEAVY_BYTES = 6 * GB
#: Share of a compile that is left with the objects of a config with another BLAS (docs/lab/measurements.md, "Objects
#: that configs share").
_SHARED = 0.03
_MODEL = Figures(0.1, 0.05, 0.02, 0.5, 0.01, 0.008, "measured rehearsals")


def estimate(plan: Plan) -> tuple[Estimate, Jobs, int]:
    """Estimate the remaining work; also return the compile jobs, and how many of them may compile heavy objects."""
    options, accelerator, machine = plan.options, "cuda" if plan.config.cuda_version else "cpu", measure()
    memory = min(machine.memory_free, options.memory or machine.memory_free)
    source = plan.config.variant.get("torch_source", ("",))[0]
    # another feedstock's recipe has no source, and no figures
    of_provider = {} if source in ("", "model") else provider_of(plan.config).figures
    figures = _MODEL if source == "model" else of_provider.get(accelerator)
    heavy = figures is not None and figures.memory * GB > bytes_per_compile(cuda=True)
    largest = int(figures.memory * GB) if figures else 0
    ordinary = bytes_per_compile(cuda=False) if heavy else largest
    tasks = [task for task in plan.missing_tasks if task.method is not Method.NOTHING]
    if any(task.method is Method.COMPILE for task in tasks):
        ordinary = max(ordinary, bytes_per_compile(cuda=accelerator == "cuda"))
    jobs = compile_jobs(
        machine, bytes_per_job=ordinary, most=memory, requested=options.cpu_count, environ=os.environ
    )
    if figures is None:
        return Estimate(), jobs, 0
    pythons = plan.rounds
    packages = 0.0
    disk = 0.0
    if plan.missing:  # one and a half trees while a package is made, the packages, their test environments
        packages = figures.package + pythons * figures.per_python
        disk = 1.5 * figures.tree + 3 * packages
    if tasks:  # an environment that all tasks share
        disk += (5.5 if accelerator == "cuda" else 1.0) + 0.2 * min(jobs.count, len(tasks))
    cpu_hours = plan.compiles_staging * figures.hours + pythons * figures.python_hours
    cpu_hours *= _SHARED if plan.shared else 1
    cpu_hours += sum(task.cpu_seconds for task in tasks) / 3600
    at_once = min(jobs.count, machine.cores)  # more jobs than cores are no faster
    hours, basis = cpu_hours / at_once, figures.basis
    if plan.is_from_scratch and plan.last_run:
        hours, basis = plan.last_run / 3600, "the last run here"
    largest = max(largest if plan.missing else 0, ordinary if tasks else 0)
    total = Estimate(
        disk=int(disk * GB), packages=int(packages * GB), memory_per_job=largest, memory_of_ordinary=ordinary,
        cpu_hours=round(cpu_hours, 3), hours=round(hours, 3), basis=basis,
    )  # fmt: skip
    return total, jobs, min(jobs.count, max(1, memory // _HEAVY_BYTES)) if heavy else 0


def find_shared_objects(options: Options, overrides: Mapping[str, Sequence[str]]) -> str:
    """Return another config, built before or earlier in this command, whose objects the cache has, or ""."""
    compiles = options.own and not options.rehearse and provider_of(options.config).compiles
    if not compiles or os.environ.get("TORCH_CCACHE") == "none":
        return ""
    full = any((options.cache / "objects" / name).is_dir() for name in options.objects_names)
    compiled = []
    for name in available(options.root):
        other = replace(options, config=replace(options.config, name=name))
        if name in options.earlier or (full and _last_run_file(other).parent.is_dir()):
            with suppress(ConfigError):  # an unreadable config has an error of its own
                compiled.append(load(options.root, name))
    return find_sharing(options.config, compiled, overrides)


def read_last_run(options: Options) -> float:
    """Return the seconds of a config's last complete run from scratch; 0 without a readable record."""
    with suppress(OSError, ValueError):
        return float(_last_run_file(options).read_text())
    return 0.0


def keep_last_run(options: Options, seconds: float) -> None:
    """Record the duration of a complete run, for the next plan's estimate and time left."""
    files.write(_last_run_file(options), str(seconds))


@dataclass(frozen=True, kw_only=True)
class CompiledObjects(Key):
    """Everything in a run's options that changes objects, besides the config."""

    provider: str
    optimization: str | None
    arch_list: str | None
    torch_source: str  #: folder or tarball, or empty


@dataclass(frozen=True, kw_only=True)
class RunDuration(Key):
    """Everything in a run's options that changes its duration, besides :class:`CompiledObjects`."""

    pythons: Sequence[str]
    engine: str | None
    pyg: str
    pyg_index: str | None
    pyg_sources: str | None
    extensions: Sequence[str]
    upstream_tests: bool
    jobs: str  #: as requested by option or variable; empty: by cores and memory
    memory: int | None
    object_cache: str  #: the program that is used in place of ccache, or empty


def compiled_objects(options: Options) -> CompiledObjects:
    """Return the options that change objects."""
    return CompiledObjects(
        provider=options.config.provider,
        optimization=options.optimization,
        arch_list=options.arch_list,
        torch_source=str(options.torch_source or ""),
    )


def run_duration(options: Options, environ: Mapping[str, str]) -> RunDuration:
    """Return the options and variables that change a run's duration."""
    requested = (str(options.cpu_count or ""), environ.get("CPU_COUNT"), environ.get("MAX_JOBS"))
    return RunDuration(
        pythons=options.pythons,
        engine=options.engine,
        pyg=options.pyg,
        pyg_index=options.pyg_index,
        pyg_sources=options.pyg_sources,
        extensions=options.extensions,
        upstream_tests=options.upstream_tests,
        jobs=next(filter(None, requested), ""),
        memory=options.memory,
        object_cache=environ.get("TORCH_CCACHE", ""),
    )


def _last_run_file(options: Options) -> Path:
    """Return the file with a run's duration, in a folder of the runs with the same objects; checkouts share it."""
    folder = f"{options.cache_name}-{compiled_objects(options).digest[:8]}"
    return options.cache / "last-run" / folder / run_duration(options, os.environ).digest[:16]
