"""Select the provider: the config's, or for a rehearsal one with empty stand-in packages."""

from __future__ import annotations

from megabuild.configs.config import Config
from megabuild.providers import local_channel
from megabuild.providers.conda_forge import CondaForgeProvider
from megabuild.providers.debian import foreign
from megabuild.providers.debian_provider import DebianProvider
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.provider import (
    LocalProvider,
    ProviderRequest,
    base_python,
    machine_values,
    requirements,
)
from megabuild.providers.wheel_provider import WheelProvider


def provide(request: ProviderRequest) -> Environment:
    """Return the environment for a run, making or fetching what is missing.

    Raises ProviderError: With what to do about it.
    """
    config = request.config
    target = foreign.of(config.platform) if config.provider == "debian" else None
    if (request.rehearsal and target is None) or config.provider == "local":
        return MachineProvider(request).provide()
    if config.provider == "debian":
        return DebianProvider(request, target).provide()
    return (CondaForgeProvider if config.provider == "conda-forge" else WheelProvider)(request).provide()


class MachineProvider(LocalProvider):
    """Uses what this machine and pip's indexes have, and in a rehearsal empty packages for the rest."""

    def provide(self) -> Environment:
        """Return the local channel."""
        request, config = self.request, self.request.config
        needs = requirements(request.planned)
        found = self.interpreters()
        base = base_python(config, found)
        made = local_channel.make(
            needs,
            platform=config.platform,
            interpreters=found,
            cache=request.cache,
            stand_ins=request.rehearsal,
            report=request.report,
            pythons=self.needed_pythons(found, base),
            plan=request.plan,
            any_wheel=not request.rehearsal,
            remedy=_remedy(config),
        )
        overrides = self.overrides({**machine_values(made, needs), "torch_python_base": base})
        notes = self.notes(overrides)
        if made.by_name:
            notes.append(f"wheels of pip's indexes, by their names alone: {', '.join(made.by_name)}")
        return Environment(
            channels=(made.path,),
            pythons=tuple(made.interpreters),
            overrides=overrides,
            virtual_packages=virtual_gpu(config),
            **self.to_prepare(made),
            notes=tuple(notes),
            stand_ins=made.stand_ins,
        )


def _remedy(config: Config) -> str:
    """Return what to do where packages are missing; a recipe that has no model cannot be rehearsed."""
    elsewhere = "build it with a conda channel: leave out --provider, CONDA_CHANNEL_ALIAS names a mirror"
    return f"{elsewhere}; or --rehearse, with empty ones" if "torch_source" in config.variant else elsewhere
