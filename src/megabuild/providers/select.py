"""The class of each provider, in a folder of its own; chooses the provider of a run."""

from __future__ import annotations

from megabuild.configs.config import Config
from megabuild.configs.provider_name import ProviderName
from megabuild.providers.conda_forge.provider import CondaForgeProvider
from megabuild.providers.debian.cross import CrossDebianProvider
from megabuild.providers.debian.provider import DebianProvider
from megabuild.providers.environment import ProviderRequest
from megabuild.providers.machine.provider import MachineProvider
from megabuild.providers.provider import Provider
from megabuild.providers.wheel.provider import WheelProvider

PROVIDERS: dict[ProviderName, type[Provider]] = {
    ProviderName.CONDA_FORGE: CondaForgeProvider,
    ProviderName.DEBIAN: DebianProvider,
    ProviderName.LOCAL: MachineProvider,
    ProviderName.WHEEL: WheelProvider,
}


def provider_of(config: Config) -> type[Provider]:
    """Return the class of the config's provider."""
    return PROVIDERS[config.provider]


def choose_provider(request: ProviderRequest) -> Provider:
    """Return the provider for a run; a rehearsal has the local one, with empty stand-in packages.

    A rehearsal that cross-compiles has Debian's cross compilers and Pythons.
    """
    is_debian = request.rehearsal or request.config.provider is ProviderName.DEBIAN
    if is_debian and request.config.platforms.is_cross:
        return CrossDebianProvider(request)
    if request.rehearsal:
        return MachineProvider(request)
    return provider_of(request.config)(request)
