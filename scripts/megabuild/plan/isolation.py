"""Which isolation a build gets: the one asked for, or the one that fits the config."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from groundwork.errors import IsolationError, UsageError
from megabuild.configs.config import Config
from megabuild.isolation.base import Host, Isolation
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.container import Container
from megabuild.plan import conda_smithy_env
from megabuild.providers.environment import Environment

AUTO = "auto"
ENGINES = (AUTO, "host", "bubblewrap", *conda_smithy_env.CONTAINERS)
_REHEARSAL_SOURCE = ("model",)
_LOCAL_SOURCES = (("model",), ("debian",))


def choose_isolation(
    requested: str | None,
    *,
    config: Config,
    environment: Environment,
    alternatives: Callable[[], Sequence[str]] = tuple,
) -> Isolation:
    """Choose where to build; whoever builds for long checks it first.

    That is the engine of the requested name, or for ``auto`` or None the one that fits: a rehearsal and wheels run on
    the host, Debian's packages, and what needs an emulator, in their root folder, conda-forge's in its container image.
    From local channels and sources alone, the build gets no network, unless ccache is to ask a server. An
    error names alternatives: configs that do work on this machine.

    What is built with this machine's own compilers, by somebody else's recipe, sees of the machine what bubblewrap
    shows of it.

    Raises UsageError: An engine that does not exist.
    Raises IsolationError: None of the engines that fit can be used here.
    """
    create = partial(_create, network=bool(os.environ.get("CCACHE_REMOTE_STORAGE")))
    if requested not in (None, *ENGINES):
        raise UsageError(f"there is no engine {requested!r}", f"choose one of: {', '.join(ENGINES)}")
    if requested not in (None, AUTO):
        return create(str(requested), config, environment)
    if environment.emulator is not None:
        return create("bubblewrap", config, environment)
    if _is_rehearsal(environment) or not config.platform.startswith("linux-"):
        return Host()
    if config.provider in ("debian", "local"):
        return create("bubblewrap", config, environment)
    if config.provider == "conda-forge":
        return _first_that_works(create, config, environment, alternatives)
    return Host()


def rehearsal_image() -> str:
    """Name of the image that ``rehearsal/image/make-image.sh`` makes, with the host's own release inside."""
    return f"megabuild-rehearsal:{_release()}"


def _create(engine: str, config: Config, environment: Environment, *, network: bool) -> Isolation:
    network = network or not _is_offline(environment)
    if engine == "host":
        return Host()
    if engine == "bubblewrap":
        return Bubblewrap(root=environment.root or Path("/"), network=network, emulator=environment.emulator)
    image, more = conda_smithy_env.chosen_image(os.environ), conda_smithy_env.read_run_arguments(os.environ)
    if not image and _is_rehearsal(environment):
        return Container(
            name=engine,
            image=rehearsal_image(),
            network=network,
            made_here=f"make it with rehearsal/image/make-image.sh {engine}",
            more=more,
        )
    image = image or config.docker_image
    if not image:
        raise IsolationError(
            f"{config.name} names no container image",
            "set DOCKER_IMAGE to an image, or choose another engine with --engine",
        )
    return Container(name=engine, image=image, network=network, more=more)


def _first_that_works(
    create: Callable[[str, Config, Environment], Isolation],
    config: Config,
    environment: Environment,
    alternatives: Callable[[], Sequence[str]],
) -> Isolation:
    problems = []
    for engine in conda_smithy_env.list_engines(os.environ):
        isolation = create(engine, config, environment)
        try:
            isolation.check()
            return isolation
        except IsolationError as error:
            problems.append(error.message)
    usable = alternatives()
    here = f"; without one these can be built here: {', '.join(usable)}" if usable else ""
    raise IsolationError(
        f"{config.name} is built in a container, and no engine can be used: {'; '.join(problems)}",
        "install or start docker or podman, or build on this very system with --engine host "
        f"(its compilers then come from the channel){here}",
    )


def _is_rehearsal(environment: Environment) -> bool:
    return tuple(environment.overrides.get("torch_source", ())) == _REHEARSAL_SOURCE


def _is_offline(environment: Environment) -> bool:
    source = tuple(environment.overrides.get("torch_source", ()))
    return source in _LOCAL_SOURCES and all(isinstance(channel, Path) for channel in environment.channels)


def _release() -> str:
    """Codename of the system (``trixie``), or its number where it has none."""
    try:
        facts = platform.freedesktop_os_release()
    except OSError:
        return "unknown"
    return facts.get("VERSION_CODENAME") or facts.get("VERSION_ID") or "unknown"
