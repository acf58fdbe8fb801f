"""Which isolation a build gets: the requested one, or the one that fits the config; and configs that work here."""

from __future__ import annotations

import functools
import os
import platform
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from groundwork.errors import IsolationError, MegabuildError, ProviderError, UsageError
from groundwork.machine import machine_platform
from megabuild.configs.config import Config, load
from megabuild.isolation.base import Host, Isolation
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.container import Container
from megabuild.plan.options import Options
from megabuild.providers.command import each
from megabuild.providers.debian import apt
from megabuild.providers.debian import root as debian_root
from megabuild.providers.environment import Environment
from megabuild.providers.local import compilers, interpreters
from megabuild.providers.pypi import lock, torch

CONTAINERS = ("docker", "podman")
_AT_ONCE = 4


def isolation_of(options: Options, environment: Environment) -> Isolation | IsolationError:
    """Return where a run takes place, or why it cannot: a plan is of use all the same."""
    config, here = options.config, machine_platform()
    if not options.own and config.platform != here:
        return IsolationError(
            f"{config.name} is for {config.platform}, this machine is {here}, and another feedstock is not"
            " cross-compiled here",
            "build it on such a machine",
        )
    try:
        return choose_isolation(
            options.engine, config=config, environment=environment, usable=lambda: usable_configs(options)
        )
    except IsolationError as error:
        return error


def choose_isolation(
    requested: str | None,
    *,
    config: Config,
    environment: Environment,
    usable: Callable[[], Sequence[str]] = tuple,
) -> Isolation:
    """Return the requested isolation, or the one that fits; a run checks it before it builds for long.

    A rehearsal and wheels run on the host. Debian's packages and other people's recipes with this
    machine's compilers run in bubblewrap, conda-forge's in the config's container image.

    Raises IsolationError: Neither docker nor podman can be used; ``usable`` configs are named.
    """
    if requested in CONTAINERS:
        return _container(requested, config, environment)
    rehearsal = environment.overrides.get("torch_source") == ("model",)
    linux = config.platform.startswith("linux-") and not rehearsal
    fitting = requested is None and linux and config.provider in ("debian", "local")
    if requested == "bubblewrap" or fitting:
        root, network = environment.root or Path("/"), _has_network(environment)
        return Bubblewrap(root=root, network=network)
    if requested == "host" or not linux or config.provider != "conda-forge":
        return Host()
    problems = []
    for engine in _engines():
        container = _container(engine, config, environment)
        try:
            container.check()
            return container
        except IsolationError as error:
            problems.append(error.message)
    names = ", ".join(usable())
    raise IsolationError(
        f"{config.name} is built in a container, and no engine can be used: {'; '.join(problems)}",
        "install or start docker or podman, or build on this very system with --engine host "
        f"(its compilers then come from the channel){f'; these can be built here: {names}' if names else ''}",
    )


def _engines() -> Sequence[str]:
    """Return the container engines to try, or the one that conda-smithy's variable names."""
    named = os.environ.get("DOCKER_EXECUTABLE", "").strip()
    if named and named not in CONTAINERS:
        raise UsageError(
            f"DOCKER_EXECUTABLE is '{named}', and containers are run with the docker or podman on PATH",
            "set it to docker or podman, or unset it",
        )
    return (named,) if named else CONTAINERS


def _container(engine: str, config: Config, environment: Environment) -> Container:
    try:
        arguments = tuple(shlex.split(os.environ.get("CONDA_FORGE_DOCKER_RUN_ARGS", "")))
    except ValueError as error:
        raise UsageError(f"CONDA_FORGE_DOCKER_RUN_ARGS: {error}", "quote it as for a shell") from error
    image, made_here = os.environ.get("DOCKER_IMAGE", "").strip(), ""
    if not image and environment.overrides.get("torch_source") == ("model",):
        image, made_here = rehearsal_image(), f"make it with rehearsal/image/make-image.sh {engine}"
    image = image or config.docker_image
    if not image:
        raise IsolationError(
            f"{config.name} names no container image",
            "set DOCKER_IMAGE to an image, or choose another engine with --engine",
        )
    network = _has_network(environment)
    return Container(name=engine, image=image, network=network, made_here=made_here, more=arguments)


def _has_network(environment: Environment) -> bool:
    """Whether a build needs one: for channels and sources that are not on this machine, or for ccache's server."""
    local = all(isinstance(channel, Path) for channel in environment.channels)
    source = environment.overrides.get("torch_source")
    return (
        bool(os.environ.get("CCACHE_REMOTE_STORAGE")) or not local or source not in (("model",), ("debian",))
    )


def rehearsal_image() -> str:
    """Name of the image that ``rehearsal/image/make-image.sh`` makes, with the host's own release inside."""
    try:
        facts = platform.freedesktop_os_release()
    except OSError:
        facts = {}
    return f"megabuild-rehearsal:{facts.get('VERSION_CODENAME') or facts.get('VERSION_ID') or 'unknown'}"


def unreachable(error: ProviderError, options: Options) -> ProviderError:
    """Return the error of a channel that does not answer with all that is missing, and what can be built without."""
    message, remedy = error.message, error.remedy
    isolation = isolation_of(options, Environment(channels=(), pythons=()))
    if isinstance(isolation, IsolationError):
        message += f"; {isolation.message}"
        remedy += " and install or start docker or podman"
    if names := usable_configs(options):
        remedy += f", or use what works here: {', '.join(names)}"
    elif "torch_source" not in options.config.variant:  # whether pip's indexes have all of it was not asked
        remedy += f", or try {options.config.name} --provider local"
    return ProviderError(message, f"{remedy}.")


def usable_configs(options: Options) -> tuple[str, ...]:
    """Return, as words for the command line, what this machine can build without a conda channel or a container."""
    config, cache = options.config, options.cache
    try:
        compilers.probe()
        *_, newest = interpreters.some_of(config.pythons, lambda _: None).values()
        lock.resolve(["cmake", "ninja"], newest, cache / "wheels" / "locks")
    except ProviderError:
        return ()
    rehearses = "torch_source" in config.variant and config.platform == machine_platform()
    own = (f"{config.name} --rehearse",) if rehearses else ()
    return own + _usable_others(config.path.parent, cache)


@functools.cache
def _usable_others(folder: Path, cache: Path) -> tuple[str, ...]:
    machine = machine_platform().replace("-", "_")
    names = sorted(
        path.stem for kind in ("wheel", "debian") for path in folder.glob(f"{machine}_*_{kind}.yaml")
    )
    usable = each(lambda name: _is_usable(load(folder.parent, name), cache), names, _AT_ONCE)
    return tuple(name for name, is_usable in zip(names, usable, strict=True) if is_usable)


def _is_usable(config: Config, cache: Path) -> bool:
    try:
        if config.provider == "debian":
            apt.debian_lines(debian_root.SUITE)
            Bubblewrap(root=Path("/")).check()
            return not debian_root.install_command()
        pythons = interpreters.some_of(config.pythons, lambda _: None)
        newest = [python for python in pythons if not python.endswith("t")][-1:]
        torch.find(config, {python: pythons[python] for python in newest}, cache / "wheels")
    except MegabuildError:
        return False
    return True
