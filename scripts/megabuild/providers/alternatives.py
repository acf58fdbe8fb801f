"""Which configs can be built here whatever becomes of conda's channels and container engines."""

from __future__ import annotations

from megabuild.configs.config import Config
from megabuild.providers import local_channel


def without_channel(config: Config) -> tuple[str, ...]:
    """Return the names of the configs beside ``config`` that need no conda channel and fit this machine."""
    folder = config.path.parent
    names = [path.stem for path in sorted((*folder.glob("*_debian.yaml"), *folder.glob("*_wheel.yaml")))]
    machine = local_channel.machine_platform().replace("-", "_")
    return tuple(name for name in names if name.startswith(machine))
