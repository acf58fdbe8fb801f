"""The provider of build environments from this machine's programs."""

from __future__ import annotations

from megabuild.providers import local_channel
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.provider import LocalProvider, base_python, machine_values, requirements


class MachineProvider(LocalProvider):
    """Uses this machine's programs and pip's indexes, and in a rehearsal empty packages for all others."""

    isolation = "bubblewrap"

    def environment(self, *, survey: bool) -> Environment:
        """Return the local channel."""
        request, config = self.request, self.request.config
        needs = requirements(request.planned)
        pythons = self.interpreters()
        base = base_python(config, pythons)
        needed = self.needed_pythons(pythons, base)
        channel = local_channel.make(
            request, needs, pythons, survey=survey, only=needed, any_wheel=not request.rehearsal
        )
        overrides = self.overrides({**machine_values(channel, needs), "torch_python_base": base})
        notes = self.notes(overrides)
        if channel.by_name:
            notes.append(
                f"not in the catalogue, taken from pip's indexes by name: {', '.join(channel.by_name)}"
            )
        return Environment(
            channels=(channel.path,),
            pythons=tuple(pythons),
            overrides=overrides,
            virtual_packages=virtual_gpu(config),
            notes=tuple(notes),
            stand_ins=channel.stand_ins,
            pending=self.pending(channel),
        )
