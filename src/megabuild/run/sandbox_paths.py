"""The paths of a task as rattler-build sees them: fixed inside an isolation, the real ones on the host."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import rattler_build

import megabuild
from groundwork import files
from groundwork.channel import Channel
from groundwork.job_pool import jobserver
from groundwork.network import certificates
from groundwork.network.channel_logins import Channels, credentials_file
from megabuild.configs.overrides import chosen
from megabuild.engine.job import Job, worker_options
from megabuild.engine.supervisor import Place
from megabuild.isolation.base import Isolation, Mount
from megabuild.plan.options import INSIDE, Options
from megabuild.plan.virtual_packages import OVERRIDE, override_variable
from megabuild.run.attempt import Attempt, RunContext
from megabuild.run.launcher import LAUNCHER_FILES, write_launcher

VARIANT = "variant.yaml"
#: Subfolders of a task's state folder that builds write. The driver owns the rest; builds see single files of it.
_WRITABLE = ("out", "tmp")


class _Mounts:
    """The mounts of a task's worker, collected one by one."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self.all: list[Mount] = []

    def add(self, name: str, source: Path, *, writable: bool = False) -> str:
        """Mount a folder or file; return its path inside."""
        target = f"{INSIDE}/{name}"
        if writable:
            source.mkdir(parents=True, exist_ok=True)
        self.all.append(Mount(source=source, target=target, writable=writable))
        return self._isolation.path(target, source)


def make_place(
    attempt: Attempt,
    *,
    recipe: Path,
    channels: Sequence[Channel],
    more: Mapping[str, Path] = MappingProxyType({}),
    written: Sequence[str] = (),
    heavy_jobs: int = 0,
    takes_jobs: bool = False,
) -> Place:
    """Return the mounts and paths of one task, and create missing folders.

    ``recipe`` is below ``plan.options.recipes``; channels are in order of
    priority. ``more`` maps names to further folders to mount, ``written`` names further folders below ``state`` that
    the build writes. For ``heavy_jobs`` see :func:`write_launcher`. With ``takes_jobs``, the build takes jobs from the
    pool of configs that are built at the same time, if there is one.
    """
    plan = attempt.run.plan
    isolation = attempt.run.isolation
    state = attempt.state
    options = plan.options
    mounts = _Mounts(isolation)
    if (options.root / "rehearsal").is_dir():
        mounts.add("rehearsal", options.root.absolute() / "rehearsal")
    urls = _mount_channels(mounts, channels)
    environment = _mount_environment(mounts, attempt.run)
    state_inside = isolation.path(f"{INSIDE}/state", state)
    objects = mounts.add("ccache", options.objects_folder(isolation), writable=True)
    passing = _Mounts(isolation)
    locks = ""
    if options.pool is not None and heavy_jobs:
        locks = passing.add("locks", options.pool.locks, writable=True)
    write_launcher(state, inside=state_inside, folder=objects, heavy_jobs=heavy_jobs, locks=locks)
    if takes_jobs:
        environment |= _mount_jobs(passing, options)
    recipes = mounts.add("recipe", options.recipes)
    given = Channels(by_priority=tuple(channels), logins=plan.environment.logins)
    source = plan.environment.source
    sandbox = Place(
        isolation=isolation,
        state=state,
        state_inside=state_inside,
        packages_inside=mounts.add("src", Path(megabuild.__file__).resolve().parent.parent),
        python=sys.executable if isolation.is_host else "python3",
        site_inside=mounts.add("site", Path(rattler_build.__file__).resolve().parent.parent),
        mounts=mounts.all,
        passing_mounts=passing.all,
        recipe=f"{recipes}/{recipe.relative_to(options.recipes).as_posix()}",
        channels=tuple(urls),
        logins=credentials_file(given, os.environ),
        source=None if source is None else mounts.add("source", source),
        environment=environment,
        more={name: mounts.add(name, folder) for name, folder in more.items()},
    )
    for name in (*_WRITABLE, *written):
        (state / name).mkdir(parents=True, exist_ok=True)
        mounts.all.append(sandbox.mount(name, writable=True))
    for name in (*LAUNCHER_FILES, VARIANT):
        mounts.all.append(sandbox.mount(name))
    return sandbox


def _mount_channels(mounts: _Mounts, channels: Sequence[Channel]) -> list[str]:
    """Mount the folders among the channels; return the URLs of all, as rattler-build sees them."""
    urls = []
    for number, channel in enumerate(channels):
        if channel.folder is None:
            urls.append(channel.url)
        else:
            path = mounts.add(f"channel{number}", channel.folder.resolve())
            urls.append(f"file://{path}")
    return urls


def _mount_environment(mounts: _Mounts, run: RunContext) -> dict[str, str]:
    """Mount rattler-build's cache and the system's certificates; return the variables for rattler-build."""
    # rattler-build inside solves as the plan did; the host's has these variables anyway
    environment = {name: value for name, value in os.environ.items() if name.startswith(OVERRIDE)}
    for name, version in run.plan.environment.virtual_packages.items():
        environment[override_variable(name)] = version
    # One cache per config, because nothing proves that a build's cache entries are correct.
    unpacked = run.plan.options.unpacked_folder(run.isolation)
    environment["RATTLER_CACHE_DIR"] = mounts.add("rattler", unpacked, writable=True)
    bundle = None if run.isolation.is_host else certificates.system_bundle(os.environ)
    if bundle is not None:
        # rattler-build's downloads inside use the same proxy, with the same company's certificate
        trusted = mounts.add("certificates.pem", bundle)
        environment |= dict.fromkeys(("SSL_CERT_FILE", "GIT_SSL_CAINFO"), trusted)
    return environment


def _mount_jobs(mounts: _Mounts, options: Options) -> dict[str, str]:
    """Mount the pipe of the config's jobs, if it shares some; return the variable for the scripts' ninja."""
    if options.pool is None or options.pool.is_fixed:
        return {}
    # read-only: that says nothing on what programs write into a pipe
    return {"MAKEFLAGS": jobserver(mounts.add("jobs", options.pool.pipe))}


@dataclass(frozen=True, kw_only=True)
class JobPart:
    """The part of a worker's job that differs between tasks."""

    planned: Sequence[str] = ()  #: file names of the packages to build
    tests: Sequence[str] = ()  #: package files to test; nothing is built
    test_built: bool = True  #: test the packages that are built
    keep_going: bool = False  #: after a failure, build the other packages
    env: Mapping[str, str] = field(default_factory=dict)  #: further variables for the recipe's scripts


def make_job(
    attempt: Attempt, sandbox: Place, part: JobPart, *, overrides: Mapping[str, Sequence[str]]
) -> Job:
    """Return the worker's job, and write the variant file for rattler-build.

    ``part`` is the task's own; ``overrides`` replace variant values of the config.
    """
    plan = attempt.run.plan
    variant = chosen(plan.options.config, overrides)
    zip_keys = [list(group) for group in variant.zip_keys]
    document = {**variant.as_written(variant.variant), "zip_keys": zip_keys}
    files.write(sandbox.state / VARIANT, json.dumps(document, indent=1))  # JSON is YAML
    return Job(
        recipe=sandbox.recipe,
        output_dir=f"{sandbox.state_inside}/out",
        platform=variant.platform,
        build_platform=variant.build_platform,
        variant_file=f"{sandbox.state_inside}/{VARIANT}",
        channels=sandbox.channels,
        named=any(item.package.names_channels for item in plan.all_items),
        test=part.test_built,
        tests=part.tests,
        env={"CPU_COUNT": str(attempt.jobs), **part.env, **sandbox.environment},
        planned=part.planned,
        options=replace(worker_options(plan.options), keep_going=part.keep_going),
    )
