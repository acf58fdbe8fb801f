"""The engines of ``--engine``, the one list of isolations; ``choose_isolation.py`` makes the isolation of each."""

from __future__ import annotations

from enum import Enum


class Engine(str, Enum):
    """A program, or none, that isolates builds."""

    HOST = "host"
    DOCKER = "docker"
    PODMAN = "podman"
    BUBBLEWRAP = "bubblewrap"
