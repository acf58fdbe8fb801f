"""The provider of build environments from conda channels."""

from __future__ import annotations

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
    has_native_pytorch = True
    cpu_figures = Figures(
        tree=12,
        package=0.5,
        per_python=0.2,
        memory=2.5,
        hours=15,
        python_hours=1.6,
        tests_hours=1.0,
        one_python_tests_hours=1.5,
        basis="reported for conda-forge's three-core runners",
    )
    cuda_figures = Figures(
        tree=30,
        package=2.0,
        per_python=0.2,
        memory=5.3,
        hours=56,
        python_hours=2.6,
        tests_hours=1.0,
        one_python_tests_hours=1.5,
        basis="reported for conda-forge's builds, assuming eight cores",
    )

    def provide(self) -> Environment:
        """Return the config's channels.

        Raises ChannelError: A channel does not answer.
        """
        config = self.request.config
        names = ",".join(config.variant.get(CHANNELS, ("conda-forge",))).split(",")
        urls = {name.strip(): channel_url(name.strip()) for name in names}
        channels = separate_logins(map(Channel.parse, urls.values()))
        for name, url in urls.items():
            reason = why_channel_unreachable(url)
            if reason:
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
