"""The provider of build environments from conda channels."""

from __future__ import annotations

from types import MappingProxyType

from groundwork import redact
from groundwork.channel import Channel
from groundwork.errors import ProviderError
from groundwork.network.channel_logins import separate_logins
from groundwork.network.client import channel_url, why_channel_unreachable
from megabuild.configs.overrides import CHANNELS
from megabuild.isolation.engine import Engine
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.provider import Figures, Provider


class ChannelError(ProviderError):
    """A conda channel does not answer."""


class CondaForgeProvider(Provider):
    """Uses the channels that the config names."""

    engines = (Engine.DOCKER, Engine.PODMAN)
    needs_submodules = True
    figures = MappingProxyType(
        {
            "cpu": Figures(12, 0.5, 0.2, 2.5, 15, 1.6, "reported for conda-forge's three-core runners"),
            "cuda": Figures(
                30, 2.0, 0.2, 5.3, 56, 2.6, "reported for conda-forge's builds, assuming eight cores"
            ),
        }
    )

    def provide(self) -> Environment:
        """Return the config's channels.

        Raises ChannelError: A channel does not answer.
        """
        config = self.request.config
        entries = config.variant.get(CHANNELS, ("conda-forge",))
        names = [name.strip() for entry in entries for name in entry.split(",")]
        given = {name: channel_url(name) for name in names}
        channels = separate_logins(map(Channel.parse, given.values()))
        for name, url in given.items():
            if reason := why_channel_unreachable(url):
                raise ChannelError(
                    f"{config.name}: channel {redact.text(name)} is unreachable: {reason}",
                    "set CONDA_CHANNEL_ALIAS to a mirror",
                )
        return Environment(
            channels=channels.by_priority,
            logins=channels.logins,
            pythons=config.pythons,
            virtual_packages=virtual_gpu(config),
        )
