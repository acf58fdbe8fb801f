"""``state.json`` in a config's folder: replaced as a whole, read from anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from groundwork import files
from groundwork.run_state import RunState

NAME = "state.json"
_SECONDS = 1.0


class StateFile:
    """Writes where a run stands, at once where something has happened, and once a second at most while it goes on."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = folder / NAME
        self._clock = clock
        self._next = 0.0

    @property
    def due(self) -> bool:
        """Whether it is time to write again."""
        return self._clock() >= self._next

    def write(self, state: RunState) -> None:
        """Replace the file."""
        self._next = self._clock() + _SECONDS
        files.write(self._path, msgspec.json.format(msgspec.json.encode(state), indent=1).decode() + "\n")


def read(folder: Path) -> RunState | None:
    """Return where the last run of a config's folder stood; None where there was none, or the file is damaged."""
    try:
        return msgspec.json.decode((folder / NAME).read_bytes(), type=RunState)
    except (OSError, msgspec.MsgspecError):
        return None
