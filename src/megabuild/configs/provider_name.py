"""The providers of build environments, the one list; ``providers/select.py`` has the class of each."""

from __future__ import annotations

from enum import Enum


class ProviderName(str, Enum):
    """A source of build environments, as the rows of the matrix, configs and ``--provider`` name it."""

    CONDA_FORGE = "conda-forge"
    DEBIAN = "debian"
    WHEEL = "wheel"
    LOCAL = "local"  #: without rows in the matrix: only ``--provider`` requests it

    def __str__(self) -> str:
        return self.value
