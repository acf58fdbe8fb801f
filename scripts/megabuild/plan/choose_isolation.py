"""Chooses a build's isolation, as requested or as fits the config; lists configs that this machine can build."""

from __future__ import annotations

import os
import platform
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


def isolation_of(options: Options, environment: Environment) -> Isolation | IsolationError:
    """Return the isolation of a run, or the error that prevents it: a plan is useful without isolation."""
    config, here = options.config, machine_platform()
    if not options.own and config.platform != here:
        return IsolationError(
            f"{config.name} needs a {config.platform} machine, this one is {here}: other feedstocks are not"
            " cross-compiled",
            f"run on a {config.platform} machine",
        )
    try:
        return choose_isolation(options.engine, config, environment)
    except IsolationError as error:
        return error


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
        "install or start podman, or pass --engine host (compilers come from the channel), "
        f"or {_alternative(config)}",
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
    return ProviderError(error.message, f"{error.remedy}, or {_alternative(config)}")


def _alternative(config: Config) -> str:
    """Return advice to build on this machine without channel and container, best for the same accelerator."""
    for accelerator in (config.accelerator, "cpu"):
        for kind in ("debian", "wheel"):
            name = f"{machine_platform().replace('-', '_')}_{accelerator}_{kind}"
            if config.path.with_name(f"{name}.yaml").is_file():
                return f"run: python3 build-locally.py {name}"
    return "pass --provider local"
