"""Chooses a build's isolation, as requested or as fits the config; lists configs that this machine can build."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from groundwork.errors import IsolationError, ProviderError
from groundwork.machine import machine_platform
from megabuild.configs.config import Config
from megabuild.isolation.base import Host, Isolation
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.container import Container
from megabuild.plan.options import Options
from megabuild.providers.environment import Environment
from megabuild.providers.select import provider_of

CONTAINERS = ("docker", "podman")


def check_platform(options: Options) -> None:
    """Check that a config is built on this machine's platform.

    Linux configs of this repository run under emulation, too (docs/arm.md).

    Raises IsolationError: It is not.
    """
    config, here = options.config, machine_platform()
    both_linux = config.platform.startswith("linux-") and here.startswith("linux-")
    if config.platform == here or (options.own and both_linux):
        return
    raise IsolationError(
        f"{config.name} is built on {config.platform} only; this machine is {here}",
        f"run on a {config.platform} machine, or choose a config for {here}",
    )


def isolation_of(options: Options, environment: Environment) -> Isolation | IsolationError:
    """Return the isolation of a run, or the error that prevents it: a plan is useful without isolation."""
    try:
        check_platform(options)
        isolation = choose_isolation(options.engine, options.config, environment)
        if environment.root is None or environment.root.is_dir():  # a run makes the root before it is checked
            isolation.check()
    except IsolationError as error:
        return error
    else:
        return isolation


def choose_isolation(requested: str | None, config: Config, environment: Environment) -> Isolation:
    """Return the requested isolation, or the one that fits the config; the preflight tests it.

    Rehearsals and wheel configs run on the host. Debian configs, and other feedstocks with this machine's compilers,
    run in bubblewrap. conda-forge configs run in their container image.

    Raises IsolationError: Neither docker nor podman can be used.
    """
    if requested in CONTAINERS:
        return _container(requested, config, environment)
    rehearsal = environment.overrides.get("torch_source") == ("model",)
    linux = config.platform.startswith("linux-") and not rehearsal
    fitting = provider_of(config).isolation if linux else "host"
    if (requested or fitting) == "bubblewrap":
        root, network = environment.root or Path("/"), _has_network(environment)
        return Bubblewrap(root=root, network=network)
    if (requested or fitting) == "host":
        return Host()
    problems = []
    for engine in CONTAINERS:
        container = _container(engine, config, environment)
        try:
            container.check()
            return container
        except IsolationError as error:
            problems.append(error.message)
    raise IsolationError(
        f"{config.name} needs docker or podman: {'; '.join(problems)}",
        _either("install or start podman, or pass --engine host (compilers come from the channel)", config),
    )


def _container(engine: str, config: Config, environment: Environment) -> Container:
    image, made_here = os.environ.get("DOCKER_IMAGE", "").strip(), ""
    if not image and environment.overrides.get("torch_source") == ("model",):
        image, made_here = rehearsal_image(), f"run: rehearsal/image/make-image.sh {engine}"
    image = image or config.docker_image
    if not image:
        raise IsolationError(
            f"{config.name}: no container image in its config",
            "set DOCKER_IMAGE to an image, or pass --engine bubblewrap or host",
        )
    return Container(name=engine, image=image, network=_has_network(environment), made_here=made_here)


def _has_network(environment: Environment) -> bool:
    """Return whether a build needs the network, for remote channels or sources, or for ccache's server."""
    local = all(isinstance(channel, Path) for channel in environment.channels)
    source = environment.overrides.get("torch_source")
    return (
        bool(os.environ.get("CCACHE_REMOTE_STORAGE")) or not local or source not in (("model",), ("debian",))
    )


def rehearsal_image() -> str:
    """Return the name of the image that ``rehearsal/image/make-image.sh`` makes of the host's own release."""
    try:
        facts = platform.freedesktop_os_release()
    except OSError:
        facts = {}
    return f"megabuild-rehearsal:{facts.get('VERSION_CODENAME') or facts.get('VERSION_ID') or 'unknown'}"


def unreachable(error: ProviderError, config: Config) -> ProviderError:
    """Return the error of an unreachable channel, with a command that builds without a channel."""
    return ProviderError(error.message, _either(error.remedy, config))


def _either(remedy: str, config: Config) -> str:
    return ", or ".join(filter(None, (remedy, _alternative(config))))


def _alternative(config: Config) -> str:
    """Return advice to build on this machine without channel and container; empty if there is none for a GPU."""
    platform = machine_platform().replace("-", "_")
    accelerators = [config.accelerator]
    if config.cuda_version:  # another version of CUDA, the nearest one first
        number = int(config.accelerator.removeprefix("cuda"))
        stems = (path.stem for path in config.path.parent.glob(f"{platform}_cuda*_*.yaml"))
        found = {match[1] for stem in stems if (match := re.search(r"_cuda(\d+)_(?:debian|wheel)$", stem))}
        accelerators += [
            f"cuda{other}" for other in sorted(found, key=lambda other: abs(int(other) - number))
        ]
    for accelerator in accelerators:
        for kind in ("debian", "wheel"):
            name = f"{platform}_{accelerator}_{kind}"
            if config.path.with_name(f"{name}.yaml").is_file():
                return f"run: python3 build-locally.py {name}"
    return "" if config.cuda_version else "pass --provider local"
