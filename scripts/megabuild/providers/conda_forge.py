"""The conda-forge provider: a channel on the network, probed before anything depends on it."""

from __future__ import annotations

from groundwork.errors import ProviderError
from groundwork.network.client import channel_url, why_channel_unreachable
from megabuild.configs.overrides import CHANNELS
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.provider import Provider


class ChannelError(ProviderError):
    """A conda channel does not answer."""


class CondaForgeProvider(Provider):
    """Uses the channels that the config names."""

    def provide(self) -> Environment:
        """Return the channels; raises ChannelError where one does not answer."""
        config = self.request.config
        entries = config.variant.get(CHANNELS, ("conda-forge",))
        names = [name.strip() for entry in entries for name in entry.split(",")]
        channels = {name: channel_url(name) for name in names}
        for name, url in channels.items():
            if reason := why_channel_unreachable(url):
                raise ChannelError(
                    f"{config.name}: the channel {name} does not answer ({reason})",
                    "Set CONDA_CHANNEL_ALIAS to a mirror",
                )
        return Environment(
            channels=tuple(channels.values()), pythons=config.pythons, virtual_packages=virtual_gpu(config)
        )
