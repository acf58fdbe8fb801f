"""The conda-forge provider: a channel on the network, probed before anything depends on it."""

from __future__ import annotations

from groundwork.errors import ProviderError
from groundwork.network.channels import channel_url, why_unreachable
from megabuild.configs.config import Config
from megabuild.configs.overrides import CHANNELS
from megabuild.providers.environment import Environment, machine_platform, virtual_gpu
from megabuild.providers.provider import Provider


class CondaForgeProvider(Provider):
    """Uses the channels that the config names."""

    def provide(self) -> Environment:
        """Return the channels; ProviderError where one does not answer names the configs that need none."""
        config = self.request.config
        entries = config.variant.get(CHANNELS, ("conda-forge",))
        names = [name.strip() for entry in entries for name in entry.split(",")]
        channels = {name: channel_url(name) for name in names}
        for name, url in channels.items():
            if reason := why_unreachable(url):
                rehearsal = "--rehearse" if "torch_source" in config.variant else "--provider local"
                works = ", ".join([*without_channel(config), f"{config.name} {rehearsal}"])
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
