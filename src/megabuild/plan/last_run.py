"""The last runs of a config on this machine: where their seconds went, and the objects left in the cache."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from groundwork import files
from groundwork.errors import ConfigError, IsolationError
from groundwork.keys import Key
from megabuild.configs.config import available, load
from megabuild.configs.sharing import find_sharing
from megabuild.isolation.base import Isolation
from megabuild.plan import object_cache
from megabuild.plan.environment_inputs import ObjectCounts
from megabuild.plan.object_cache import has_object_cache
from megabuild.plan.options import NO_OBJECT_CACHE, Options, object_cache_program
from megabuild.plan.tree_reuse import LAST_STAGING, LAST_STAGINGS, LastStaging
from megabuild.plan.upstream_tests import has_upstream_tests
from megabuild.providers.select import provider_of


def find_shared_objects(
    options: Options, overrides: Mapping[str, Sequence[str]], isolation: Isolation | IsolationError
) -> str:
    """Return another config whose objects the isolation's cache has, built before or earlier in this command; or ""."""
    compiles = options.own and not options.rehearse and provider_of(options.config).compiles
    if not compiles or object_cache_program() == NO_OBJECT_CACHE:
        return ""
    names = available(options.root)
    built = {*options.earlier, *_find_compiled(options, names, isolation)}
    compiled = []
    for name in names:
        if name in built:
            with suppress(ConfigError):  # an unreadable config has an error of its own
                compiled.append(load(options.root, name))
    return find_sharing(options.config, compiled, overrides)


def _find_compiled(
    options: Options, names: Iterable[str], isolation: Isolation | IsolationError
) -> list[str]:
    """Return the configs that were compiled with these options, if the isolation's object cache still exists."""
    if isinstance(isolation, IsolationError) or not has_object_cache(options, isolation):
        return []
    compiled: list[str] = []
    for name in names:
        other = replace(options, config=replace(options.config, name=name))
        if _left_staging_file(other, isolation).is_file():
            compiled.append(name)
    return compiled


class RunKind(str, Enum):
    """The kinds of complete runs, by the work that they repeat."""

    SCRATCH = "scratch"  #: all objects are compiled
    REBUILD = "rebuild"  #: a former tree, or the object cache, has most objects
    REPACK = "repack"  #: the finished staging is reused: nothing of libtorch is compiled


_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class RunCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the seconds of a complete run went."""

    seconds: _Seconds  #: of the whole run, without its preparation
    sync: _Seconds = 0.0  #: staging's sources
    configure: _Seconds = 0.0  #: staging's CMake
    compile: _Seconds = 0.0  #: staging's objects and links
    install: _Seconds = 0.0  #: staging's checks and installation
    pythons: _Seconds = 0.0  #: all Pythons' scripts: swap, bindings, package
    compiled: ObjectCounts = (
        ObjectCounts()
    )  #: staging's objects that came neither from a tree nor from the cache

    @property
    def fixed(self) -> float:
        """Seconds of environments, packing and tests, and of staging without its compile."""
        return max(0.0, self.seconds - self.compile - self.pythons)


class LastRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The last complete run of each kind, and the seconds of single steps."""

    version: Literal[1] = 1
    runs: Mapping[RunKind, RunCosts] = {}
    object_seconds: Mapping[str, _Seconds] = {}  #: of one object, by kind
    link_seconds: _Seconds = 0.0  #: of all links, one after the other


NO_RUNS = LastRuns()
_LAST_RUNS = msgspec.json.Decoder(LastRuns)


def read_last_runs(options: Options) -> LastRuns:
    """Return the last runs of a config with these options; none without a readable record."""
    return files.read_record(_last_run_file(options), _LAST_RUNS) or NO_RUNS


def keep_last_runs(options: Options, runs: LastRuns) -> None:
    """Record the last runs, for the next plan's estimate and time left."""
    files.write(_last_run_file(options), msgspec.json.encode(runs))


def read_left_staging(options: Options, isolation: Isolation) -> LastStaging | None:
    """Return the last staging with these options in any output folder, whose objects the isolation's cache has.

    None without a readable record, or if the cache was deleted since.
    """
    return files.read_record(_left_staging_file(options, isolation), LAST_STAGINGS)


def keep_left_staging(options: Options, isolation: Isolation, staging: LastStaging) -> None:
    """Record a finished staging, whose objects are in the isolation's cache, for plans in other output folders.

    Records of former caches of this name are removed.
    """
    path = _left_staging_file(options, isolation)
    for former in path.parent.glob(f"{options.objects_names.of(isolation)}@*-{LAST_STAGING}"):
        if former != path:
            former.unlink(missing_ok=True)
    files.write(path, msgspec.json.encode(staging))


def _left_staging_file(options: Options, isolation: Isolation) -> Path:
    """Return the record of the objects in one cache: builds on the host and isolated ones do not share theirs."""
    identity = object_cache.read_identity(options, isolation)
    return _objects_folder(options) / f"{options.objects_names.of(isolation)}@{identity}-{LAST_STAGING}"


@dataclass(frozen=True, kw_only=True)
class CompiledObjects(Key):
    """Everything in a run's options that changes objects, besides the config."""

    provider: str
    cross_from: str  #: platform of the machine that compiles for another one; empty for its own
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
    jobs: str  #: as requested by option or variable; empty: by cores and memory; with a word if configs share them
    memory: int | None
    object_cache: str  #: the program that is used in place of ccache, or empty


def compiled_objects(options: Options) -> CompiledObjects:
    """Return the options that change objects."""
    return CompiledObjects(
        provider=options.config.provider,
        cross_from=options.config.platforms.cross_from,
        optimization=options.optimization,
        arch_list=options.arch_list,
        torch_source=str(options.torch_source or ""),
    )


def run_duration(options: Options, environ: Mapping[str, str]) -> RunDuration:
    """Return the options and variables that change a run's duration."""
    requested = (str(options.cpu_count or ""), environ.get("CPU_COUNT"), environ.get("MAX_JOBS"))
    jobs = next(filter(None, requested), "")
    if options.pool is not None:
        jobs = f"{options.pool.share} of {options.pool.most}"
    return RunDuration(
        pythons=options.pythons,
        engine=options.engine,
        pyg=options.pyg.value,
        pyg_index=options.pyg_index,
        pyg_sources=options.pyg_sources,
        extensions=options.extensions,
        upstream_tests=has_upstream_tests(options),
        jobs=jobs,
        memory=options.memory,
        object_cache=environ.get("TORCH_CCACHE", ""),
    )


def _last_run_file(options: Options) -> Path:
    return _objects_folder(options) / run_duration(options, os.environ).digest[:16]


def _objects_folder(options: Options) -> Path:
    """Return the folder of the runs with the same objects; checkouts share it."""
    return options.cache / "last-run" / f"{options.cache_name}-{compiled_objects(options).digest[:8]}"
