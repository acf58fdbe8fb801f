"""The conda-forge provider: a channel on the network, asked whether it answers before anything depends on it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rattler import Channel

from megabuild.configs.config import Config
from megabuild.errors import ProviderError
from megabuild.network.client import why_silent
from megabuild.providers.environment import Environment, machine_platform, virtual_gpu

_SECONDS = 5.0
_INDEXES = ("repodata.json.zst", "repodata.json")


def provide(config: Config) -> Environment:
    """Return the channels that a config names.

    Raises
    ------
    ProviderError
        One of them does not answer; the remedy names the configs that need none.
    """
    entries = config.variant.get("channel_sources", ("conda-forge",))
    names = [name.strip() for entry in entries for name in entry.split(",")]
    channels = {name: channel_url(name) for name in names}
    for name, url in channels.items():
        if reason := why_unreachable(url):
            works = ", ".join([*without_channel(config), f"{config.name} --rehearse"])
            raise ProviderError(
                f"{config.name}: the channel {name} does not answer ({reason})",
                f"Set CONDA_CHANNEL_ALIAS to a mirror, or use what works here: {works}.",
            )
    return Environment(
        channels=tuple(channels.values()), pythons=config.pythons, virtual_packages=virtual_gpu(config)
    )


def without_channel(config: Config) -> tuple[str, ...]:
    """Return the names of the configs beside ``config`` that need no conda channel and fit this machine."""
    folder = config.path.parent
    names = [path.stem for path in sorted((*folder.glob("*_debian.yaml"), *folder.glob("*_wheel.yaml")))]
    machine = machine_platform().replace("-", "_")
    return tuple(name for name in names if name.startswith(machine))


def channel_url(name: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the address of a channel: a URL as it is, a name below CONDA_CHANNEL_ALIAS or the engine's own alias.

    Parameters
    ----------
    name:
        An entry of `channel_sources`, possibly with a label ("conda-forge/label/x").
    environ:
        Environment variables; None for this process's.
    """
    if "://" in name:
        return name.rstrip("/")
    alias = (os.environ if environ is None else environ).get("CONDA_CHANNEL_ALIAS", "").strip()
    # rattler knows the public alias: no host name stands here
    return f"{alias.rstrip('/')}/{name}" if alias else str(Channel(name).base_url).rstrip("/")


def why_unreachable(url: str) -> str:
    """Return why the channel at an address does not answer within five seconds; an empty string if it does."""
    return why_silent([f"{url}/noarch/{index}" for index in _INDEXES], _SECONDS)
