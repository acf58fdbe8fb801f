"""Chooses the provider of a config: each has a folder with its class, and one line here."""

from __future__ import annotations

from groundwork.errors import ConfigError
from megabuild.configs.config import Config
from megabuild.providers.conda_forge.provider import CondaForgeProvider
from megabuild.providers.debian.provider import DebianProvider
from megabuild.providers.environment import ProviderRequest
from megabuild.providers.machine.provider import MachineProvider
from megabuild.providers.provider import Provider
from megabuild.providers.wheel.provider import WheelProvider

PROVIDERS: dict[str, type[Provider]] = {
    "conda-forge": CondaForgeProvider,
    "debian": DebianProvider,
    "local": MachineProvider,
    "wheel": WheelProvider,
}


def provider_of(config: Config) -> type[Provider]:
    """Return the class of the config's provider.

    Raises ConfigError: There is no such provider.
    """
    try:
        return PROVIDERS[config.provider]
    except KeyError:
        message = f"{config.path}: no provider {config.provider}"
        raise ConfigError(message, f"choose from {', '.join(PROVIDERS)}") from None


def choose_provider(request: ProviderRequest) -> Provider:
    """Return the provider for a run; a rehearsal has the local one, with empty stand-in packages."""
    return (MachineProvider if request.rehearsal else provider_of(request.config))(request)
