"""The engines of ``--engine``, the one list of isolations; ``choose_isolation.py`` makes the isolation of each."""

from __future__ import annotations

from enum import Enum

#: The word of ``--engine`` for the engine that fits the provider.
AUTO = "auto"


class Engine(str, Enum):
    """A program, or none, that isolates builds."""

    HOST = "host"
    DOCKER = "docker"
    PODMAN = "podman"
    BUBBLEWRAP = "bubblewrap"


def parse_engine(word: str) -> Engine | None:
    """Return the engine that ``--engine`` names; None for the one that fits the provider."""
    if word == AUTO:
        return None
    return Engine(word)
