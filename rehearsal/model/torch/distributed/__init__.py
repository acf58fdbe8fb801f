"""Several processes, or their beginnings."""

from __future__ import annotations

from torch import _C


def is_available() -> bool:
    """Say whether this build has it."""
    return hasattr(_C, "_c10d_init")


class HashStore:
    """Keys and values shared by the threads of this process."""

    def __init__(self) -> None:
        self._store = _C._c10d_init()

    def set(self, key: str, value: str) -> None:
        """Set a value, and wake who waits for it."""
        _C._c10d_set(self._store, key, value)

    def add(self, key: str, value: int) -> int:
        """Add to a number, which is 0 at first; give the sum."""
        return _C._c10d_add(self._store, key, value)

    def get(self, key: str, timeout: float = 10.0) -> str:
        """Wait for a value, for so many seconds at most.

        Raises
        ------
        RuntimeError
            If there is none by then.
        """
        return _C._c10d_get(self._store, key, timeout)
