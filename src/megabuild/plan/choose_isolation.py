"""Chooses a build's isolation, as requested or as fits the config; lists configs that this machine can build."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from groundwork.errors import IsolationError, ProviderError
from groundwork.exhaustive import assert_never
from groundwork.machine import machine_platform
from megabuild.configs.config import Config
from megabuild.configs.provider_name import ProviderName
from megabuild.isolation import emulation
from megabuild.isolation.base import Host, Isolation
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.container import Container
from megabuild.isolation.emulation import Emulator
from megabuild.isolation.engine import Engine
from megabuild.plan.options import MODEL, Options
from megabuild.providers.environment import Environment
from megabuild.providers.select import provider_of

#: Providers that need neither a channel nor a container, the best first.
_WITHOUT_CHANNEL = (ProviderName.DEBIAN, ProviderName.WHEEL)


def check_platform(options: Options) -> None:
    """Check that this machine compiles a config: natively, or for another platform.

    Linux configs of this repository run under emulation, too (docs/arm.md).

    Raises IsolationError: It does not.
    """
    config = options.config
    needed = config.build_platform
    here = machine_platform()
    both_linux = needed.startswith("linux-") and here.startswith("linux-")
    if needed == here or (options.own and both_linux):
        return
    machines = " or ".join(dict.fromkeys((needed, config.platform)))
    raise IsolationError(
        f"{config.name} is built on {machines} only; this machine is {here}",
        f"run on a {machines} machine, or choose a config for {here}",
    )


def check_engine(requested: Engine | None, config: Config, *, rehearses: bool) -> None:
    """Check that the requested engine can enter the Debian root of a config, which may not be made yet.

    Raises IsolationError: The config has such a root, and only bubblewrap enters it.
    """
    if requested in (None, Engine.BUBBLEWRAP) or not _has_debian_root(config, rehearses=rehearses):
        return
    contents = "cross compilers are" if config.platforms.is_cross else "compilers and libraries are"
    raise IsolationError(
        f"{config.name}: its {contents} in a Debian root, which only bubblewrap enters",
        "leave out --engine",
    )


def isolation_of(
    options: Options, environment: Environment, *, fetches_sources: bool
) -> Isolation | IsolationError:
    """Return the isolation of a run, or the error that prevents it: a plan is useful without isolation.

    ``fetches_sources``: a build may fetch sources of extensions.
    """
    try:
        check_platform(options)
        isolation = choose_isolation(
            options.engine, options.config, environment, fetches_sources=fetches_sources
        )
        isolation.check()
    except IsolationError as error:
        return error
    else:
        return isolation


def why_untested(config: Config, isolation: Isolation | IsolationError, environment: Environment) -> str:
    """Return why a run cannot test its packages, or an empty string if it can, or if that is not known yet."""
    is_native = not config.platforms.is_cross
    if isinstance(isolation, IsolationError) or is_native or not environment.channels:
        return ""
    if isolation.runs(config.platform):
        return ""
    return f"this machine runs no programs for {config.platform}"


def choose_isolation(
    requested: Engine | None, config: Config, environment: Environment, *, fetches_sources: bool = False
) -> Isolation:
    """Return the requested isolation, or the one that fits the config; the preflight tests it.

    ``fetches_sources``: a build may fetch sources of extensions.

    Rehearsals and wheel configs run on the host. Debian configs, and other feedstocks with this machine's compilers,
    run in bubblewrap. conda-forge configs run in their container image.

    Raises IsolationError: Neither docker nor podman can be used, or the requested one cannot enter a Debian root.
    """
    check_engine(requested, config, rehearses=_rehearses(environment))
    engines = _engines(requested, config, environment)
    network = fetches_sources or _has_network(config, environment)
    if len(engines) == 1:
        return _isolation(engines[0], config, environment, network=network)
    problems = []
    for engine in engines:
        isolation = _isolation(engine, config, environment, network=network)
        try:
            isolation.check()
            return isolation
        except IsolationError as error:
            problems.append(error.message)
    raise IsolationError(
        f"{config.name} needs {' or '.join(engine.value for engine in engines)}: {'; '.join(problems)}",
        _either("install or start podman, or pass --engine host (compilers come from the channel)", config),
    )


def _engines(requested: Engine | None, config: Config, environment: Environment) -> Sequence[Engine]:
    """Return the engines to try, in this order."""
    if requested is not None:
        return (requested,)
    if _has_debian_root(config, rehearses=_rehearses(environment)):
        return (Engine.BUBBLEWRAP,)
    if _rehearses(environment) or not config.build_platform.startswith("linux-"):
        return (Engine.HOST,)
    return provider_of(config).engines


def _rehearses(environment: Environment) -> bool:
    return environment.overrides.get("torch_source") == (MODEL,)


def _has_debian_root(config: Config, *, rehearses: bool) -> bool:
    """Return whether a build's compilers are in a Debian root; a native rehearsal has this machine's."""
    if rehearses:
        return config.platforms.is_cross
    return config.provider is ProviderName.DEBIAN


def _isolation(engine: Engine, config: Config, environment: Environment, *, network: bool) -> Isolation:
    match engine:
        case Engine.HOST:
            return Host()
        case Engine.BUBBLEWRAP:
            return _bubblewrap(config, environment, network=network)
        case Engine.DOCKER | Engine.PODMAN:
            return _container(engine, config, environment, network=network)
        case never:
            assert_never(never)


def _bubblewrap(config: Config, environment: Environment, *, network: bool) -> Bubblewrap:
    """Return bubblewrap for a config; with the environment's emulator, if it works and the machine has none."""
    plain = Bubblewrap(root=environment.root or Path("/"), network=network)
    program = environment.emulator
    if program is None or plain.runs(config.platform) or not emulation.can_register():
        return plain
    emulating = replace(plain, emulator=Emulator(program=program, platform=config.platform))
    if emulating.runs(config.platform):
        return emulating
    return plain


def _container(engine: Engine, config: Config, environment: Environment, *, network: bool) -> Container:
    image = os.environ.get("DOCKER_IMAGE", "").strip()
    made_here = ""
    if not image and _rehearses(environment):
        image = rehearsal_image()
        made_here = f"run: rehearsal/image/make-image.sh {engine.value}"
    image = image or config.docker_image
    if not image:
        raise IsolationError(
            f"{config.name}: no container image in its config",
            "set DOCKER_IMAGE to an image, or pass --engine bubblewrap or host",
        )
    return Container(engine=engine, image=image, network=network, made_here=made_here)


def _has_network(config: Config, environment: Environment) -> bool:
    """Return whether a build needs the network, for remote channels or PyTorch's source, or for ccache's server."""
    if os.environ.get("CCACHE_REMOTE_STORAGE"):
        return True
    if any(channel.is_on_server for channel in environment.channels):
        return True
    source = environment.overrides.get("torch_source", config.variant.get("torch_source"))
    return source not in ((MODEL,), ("debian",))


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
    """Return advice to build on this machine without channel and container; empty if there is none."""
    platform = machine_platform().replace("-", "_")
    names: list[str] = []
    if config.platforms.is_cross and config.cuda_version is None:  # Debian has no cross compiler for CUDA
        names.append(f"{config.platform.replace('-', '_')}_cpu_{ProviderName.DEBIAN}")
    for accelerator in (config.accelerator, *_nearest_cudas(config, platform)):
        names += [f"{platform}_{accelerator}_{provider}" for provider in _WITHOUT_CHANNEL]
    for name in names:
        if config.path.with_name(f"{name}.yaml").is_file():
            return f"run: python3 build-locally.py {name}"
    if config.cuda_version or config.platforms.is_cross:  # local has no compilers for these
        return ""
    return "pass --provider local"


def _nearest_cudas(config: Config, platform: str) -> list[str]:
    """Return the accelerators of configs for other CUDA versions, the nearest first; none for a CPU config."""
    if not config.cuda_version:
        return []
    own = int(config.accelerator.removeprefix("cuda"))
    providers = "|".join(_WITHOUT_CHANNEL)
    versions: set[int] = set()
    for path in config.path.parent.glob(f"{platform}_cuda*.yaml"):
        match = re.search(rf"_cuda(\d+)_(?:{providers})$", path.stem)
        if match is not None:
            versions.add(int(match[1]))
    return [f"cuda{version}" for version in sorted(versions, key=lambda version: abs(version - own))]
