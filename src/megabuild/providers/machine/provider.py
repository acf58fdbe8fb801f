"""The provider of build environments from this machine's programs."""

from __future__ import annotations

from megabuild.isolation.engine import Engine
from megabuild.providers import local_channel
from megabuild.providers.environment import Environment
from megabuild.providers.provider import LocalProvider, base_python, requirements


class MachineProvider(LocalProvider):
    """Uses this machine's programs and pip's indexes, and in a rehearsal empty packages for all others."""

    engines = (Engine.BUBBLEWRAP,)

    def environment(self, *, survey: bool) -> Environment:
        """Return the local channel."""
        request = self.request
        needs = requirements(request.planned)
        pythons = self.interpreters()
        base = base_python(request.config, pythons)
        needed = self.needed_pythons(pythons, base)
        channel = local_channel.make(
            request, needs, pythons, survey=survey, only=needed, any_wheel=not request.rehearsal
        )
        return self.of_channel(channel, pythons, {"torch_python_base": base})
