"""How the engine sees a run: fixed paths inside an isolation, the real ones on the host."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import platformdirs
import rattler_build

import megabuild
from megabuild.configs.config import Config
from megabuild.configs.overrides import complete
from megabuild.engine.job import Job
from megabuild.engine.supervisor import Place
from megabuild.isolation.base import Isolation
from megabuild.isolation.mount import Mount
from megabuild.run.options import Options, Plan

_INSIDE = "/opt/megabuild"
VARIANT = "variant.yaml"
COMPILER_LAUNCHER = "compiler-launcher"
#: How the engine is told of virtual packages.
_OVERRIDES = {"__glibc": "CONDA_OVERRIDE_GLIBC", "__cuda": "CONDA_OVERRIDE_CUDA"}
LAUNCHER = """\
#!/bin/sh
# In front of every compiler of this config: the object cache where there is one, else the compiler itself. Always this
# file, since another command line would compile everything again.
program={program}
# A build may have put us on PATH under the cache's name: round and round it would go.
case "${{MEGABUILD_LAUNCHED:-}}" in xx*) exec "$@" ;; esac
MEGABUILD_LAUNCHED="x${{MEGABUILD_LAUNCHED:-}}"
export MEGABUILD_LAUNCHED
command -v "$program" >/dev/null 2>&1 || exec "$@"
CCACHE_DIR={folder}
CCACHE_STATSLOG={stats}
CCACHE_MAXSIZE=${{CCACHE_MAXSIZE:-40G}}
export CCACHE_DIR CCACHE_STATSLOG CCACHE_MAXSIZE
exec "$program" "$@"
"""


def cache_folder(options: Options, environ: Mapping[str, str]) -> Path:
    """Return the folder that configs share: the option, ``MEGABUILD_CACHE``, or the user's cache folder."""
    if options.cache is not None:
        return options.cache.absolute()
    named = environ.get("MEGABUILD_CACHE", "")
    return Path(named).absolute() if named else platformdirs.user_cache_path("megabuild")


def for_engine(config: Config) -> Config:
    """Return a config without the channels it names: the engine takes them from there or from the call, not from both.

    What is planned and what is built must both go by this one, since the engine hashes that key into build strings.
    """
    return replace(
        config, variant={key: values for key, values in config.variant.items() if key != "channel_sources"}
    )


def state_inside(isolation: Isolation, state: Path) -> str:
    """Return the state folder's path as builds see it: it becomes part of objects."""
    return isolation.path(f"{_INSIDE}/state", state)


@dataclass(frozen=True, kw_only=True)
class View:
    """One run seen from inside.

    Parameters
    ----------
    place:
        For the supervisor.
    recipe:
        The recipe file's path inside.
    channels:
        URLs, as the engine needs them.
    source:
        The provider's source tree inside, or None.
    caches:
        Environment that points the engine at caches it may write to.
    more:
        Further folders that were asked for, by name: their paths inside.
    """

    place: Place
    recipe: str
    channels: tuple[str, ...]
    source: str | None
    caches: Mapping[str, str]
    more: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a view is to show.

    Parameters
    ----------
    state:
        Folder that belongs to this run or task alone; writable.
    recipe:
        The recipe file.
    recipes:
        Folder to show with it, in which its scripts lie.
    channels:
        Channels in order of priority.
    launcher:
        Text of the program in front of compilers, with ``{program}``, ``{folder}``, ``{stats}`` and ``{state}``.
    more:
        Further folders to show, by a name for them.
    """

    state: Path
    recipe: Path
    recipes: Path
    channels: Sequence[Path | str]
    launcher: str = LAUNCHER
    more: Mapping[str, Path] = field(default_factory=dict)


def view(plan: Plan, isolation: Isolation, cache: Path, wanted: Wanted | None = None) -> View:
    """Lay out mounts and paths for one run; folders that are missing are made.

    Parameters
    ----------
    plan:
        What to run.
    isolation:
        Where to run it.
    cache:
        The folder that configs share.
    wanted:
        What to show; without it, what PyTorch's own recipe needs.
    """
    options, environment = plan.options, plan.environment
    wanted = wanted or Wanted(
        state=options.state,
        recipe=options.recipe,
        recipes=options.recipe.parent,
        channels=environment.channels,
    )
    mounts: list[Mount] = []

    def shown(name: str, source: Path, *, writable: bool = False) -> str:
        target = f"{_INSIDE}/{name}"
        if writable:
            source.mkdir(parents=True, exist_ok=True)
        mounts.append(Mount(source=source, target=target, writable=writable))
        return isolation.path(target, source)

    state = shown("state", wanted.state, writable=True)
    recipes = shown("recipe", wanted.recipes)
    if (options.root / "rehearsal").is_dir():
        shown("rehearsal", options.root.absolute() / "rehearsal")
    scripts = shown("scripts", Path(megabuild.__file__).resolve().parent)
    site = shown("site", Path(rattler_build.__file__).resolve().parent.parent)
    channels = []
    for number, channel in enumerate(wanted.channels):
        if isinstance(channel, Path):
            inside = shown(f"channel{number or ''}", channel.resolve())
            channels.append(f"file://{inside}")
        else:
            channels.append(channel)
    source = shown("source", environment.source) if environment.source else None
    more = {name: shown(name, folder) for name, folder in wanted.more.items()}
    on_host = isolation.name == "host"
    place = Place(
        isolation=isolation,
        state=wanted.state,
        state_inside=state,
        scripts_inside=scripts,
        python=sys.executable if on_host else "python3",
        site_inside=site,
        mounts=mounts,
    )
    # On the host the engine's own package cache is shared with whatever else uses it; elsewhere it needs a place.
    caches = {} if on_host else {"RATTLER_CACHE_DIR": shown("rattler", cache / "rattler", writable=True)}
    ccache = shown("ccache", cache / "ccache", writable=True)
    _launcher(wanted.launcher, wanted.state, inside=state, ccache=ccache)
    return View(
        place=place,
        recipe=f"{recipes}/{wanted.recipe.relative_to(wanted.recipes).as_posix()}",
        channels=tuple(channels),
        source=source,
        caches=caches,
        more=more,
    )


def _launcher(text: str, state: Path, *, inside: str, ccache: str) -> None:
    program = os.environ.get("TORCH_CCACHE", "") or "ccache"
    path = state / COMPILER_LAUNCHER
    path.write_text(
        text.format(program=program, folder=ccache, stats=f"{inside}/ccache-stats.log", state=inside)
    )
    path.chmod(0o755)


def job(plan: Plan, seen: View, *, jobs: int, leftovers: Sequence[str]) -> Job:
    """Describe the run to the worker.

    Parameters
    ----------
    plan:
        What to build.
    seen:
        The run from inside.
    jobs:
        Compile jobs at once.
    leftovers:
        Packages in the output folder that were never tested.
    """
    options = plan.options
    state = seen.place.state_inside
    source = {"torch_source_path": (seen.source,)} if seen.source is not None else {}
    variant_file(options.config, {**plan.overrides, **source}, options.state)
    return Job(
        recipe=seen.recipe,
        output_dir=f"{state}/out",
        target_platform=options.config.platform,
        build_platform=options.config.platform,
        variant_config=[f"{state}/{VARIANT}"],
        channels=seen.channels,
        test="skip" if options.skip_tests else "native",
        env={
            "STAGING_FINGERPRINT": plan.staging_fingerprint,
            "TORCH_TREE": f"{state}/tree",
            "TORCH_CCACHE": f"{state}/{COMPILER_LAUNCHER}",
            "CPU_COUNT": str(jobs),
            "MAX_JOBS": str(jobs),
            **engine_environment(plan, seen),
        },
        planned=[package.file_name for package in plan.missing],
        leftovers=leftovers,
        published=[item.package.file_name for item in plan.items if item.exists],
        up_to=options.up_to,
        keep_going=options.keep_going,
        keep_build=options.debug,
    )


def engine_environment(plan: Plan, seen: View) -> dict[str, str]:
    """Return what the engine must be told through its environment: its caches, and the machine to build for."""
    virtual = plan.environment.virtual_packages
    return {**seen.caches, **{_OVERRIDES[name]: version for name, version in virtual.items()}}


def variant_file(config: Config, overrides: Mapping[str, Sequence[str]], folder: Path) -> None:
    """Write a config with a run's overrides in it: a file is what the engine's own command line could repeat."""
    config = for_engine(config)
    values = {**config.variant, **complete(config, overrides)}
    document = {
        **{key: list(value) for key, value in values.items()},
        "zip_keys": [list(g) for g in config.zip_keys],
    }
    (folder / VARIANT).write_text(json.dumps(document, indent=1))  # JSON is YAML
