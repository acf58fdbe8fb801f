"""The paths of a task as rattler-build sees them: fixed inside an isolation, the real ones on the host."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import rattler_build

import megabuild
from groundwork import files
from groundwork.network import certificates
from groundwork.network.channel_logins import Channels, credentials_file
from megabuild.configs.overrides import chosen
from megabuild.engine.job import Job
from megabuild.engine.supervisor import Place
from megabuild.isolation.base import Mount
from megabuild.plan.options import INSIDE
from megabuild.providers.environment import folder_of
from megabuild.run.attempt import Attempt
from megabuild.run.launcher import LAUNCHER_FILES, write_launcher

VARIANT = "variant.yaml"
#: Variables that tell rattler-build the versions of virtual packages.
_OVERRIDES = {"__glibc": "CONDA_OVERRIDE_GLIBC", "__cuda": "CONDA_OVERRIDE_CUDA"}
#: Subfolders of a task's state folder that builds write. The driver owns the rest; builds see single files of it.
_WRITABLE = ("out", "tmp")


def make_place(
    attempt: Attempt,
    *,
    recipe: Path,
    channels: Sequence[Path | str],
    more: Mapping[str, Path] | None = None,
    written: Sequence[str] = (),
    heavy_jobs: int = 0,
) -> Place:
    """Return the mounts and paths of one task, and create missing folders.

    ``recipe`` is below ``plan.options.recipes``; channels are in order of
    priority. ``more`` maps names to further folders to mount, ``written`` names further folders below ``state`` that
    the build writes. For ``heavy_jobs`` see :func:`write_launcher`.
    """
    plan, isolation, state = attempt.run.plan, attempt.run.isolation, attempt.state
    options = plan.options
    mounts: list[Mount] = []

    def mount(name: str, source: Path, *, writable: bool = False) -> str:
        target = f"{INSIDE}/{name}"
        if writable:
            source.mkdir(parents=True, exist_ok=True)
        mounts.append(Mount(source=source, target=target, writable=writable))
        return isolation.path(target, source)

    if (options.root / "rehearsal").is_dir():
        mount("rehearsal", options.root.absolute() / "rehearsal")
    urls = [
        f"file://{mount(f'channel{number}', folder.resolve())}"
        if (folder := folder_of(channel))
        else str(channel)
        for number, channel in enumerate(channels)
    ]
    environment = {_OVERRIDES[name]: version for name, version in plan.environment.virtual_packages.items()}
    # One cache per config, because nothing proves that a build's cache entries are correct.
    environment["RATTLER_CACHE_DIR"] = mount("rattler", options.unpacked_folder(isolation), writable=True)
    if not isolation.is_host and (bundle := certificates.system_bundle(os.environ)):
        # rattler-build's downloads inside use the same proxy, with the same company's certificate
        trusted = mount("certificates.pem", bundle)
        environment |= dict.fromkeys(("SSL_CERT_FILE", "GIT_SSL_CAINFO"), trusted)
    state_inside = isolation.path(f"{INSIDE}/state", state)
    write_launcher(
        state,
        inside=state_inside,
        folder=mount("ccache", options.objects_folder(isolation), writable=True),
        heavy_jobs=heavy_jobs,
    )
    sandbox = Place(
        isolation=isolation,
        state=state,
        state_inside=state_inside,
        scripts_inside=mount("scripts", Path(megabuild.__file__).resolve().parent.parent),
        python=sys.executable if isolation.is_host else "python3",
        site_inside=mount("site", Path(rattler_build.__file__).resolve().parent.parent),
        mounts=mounts,
        recipe=f"{mount('recipe', options.recipes)}/{recipe.relative_to(options.recipes).as_posix()}",
        channels=tuple(urls),
        logins=credentials_file(
            Channels(addresses=tuple(channels), logins=plan.environment.logins), os.environ
        ),
        source=mount("source", plan.environment.source) if plan.environment.source else None,
        environment=environment,
        more={name: mount(name, folder) for name, folder in (more or {}).items()},
    )
    for name in (*_WRITABLE, *written):
        (state / name).mkdir(parents=True, exist_ok=True)
        mounts.append(sandbox.mount(name, writable=True))
    mounts += [sandbox.mount(name) for name in (*LAUNCHER_FILES, VARIANT)]
    return sandbox


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
        variant_file=f"{sandbox.state_inside}/{VARIANT}",
        channels=sandbox.channels,
        named=any(item.package.names_channels for item in plan.all_items),
        test=part.test_built,
        tests=part.tests,
        env={"CPU_COUNT": str(attempt.jobs), **part.env, **sandbox.environment},
        planned=part.planned,
        keep_going=part.keep_going,
    )
