"""``state.json`` in a config's folder: replaced as a whole, read from anywhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import msgspec

from groundwork import files
from groundwork.errors import IntegrityError
from groundwork.result import Result
from groundwork.run_state import RunState

NAME = "state.json"
_FORMAT, _VERSION = "run-state", 1
_SECONDS = 1.0
#: A state with a thousand objects in flight takes a tenth of it.
_MOST_BYTES = 1 << 20
_STATES = msgspec.json.Decoder(RunState)


class _Head(msgspec.Struct):
    """What says whether the rest can be understood."""

    format: str
    format_version: int


_HEADS = msgspec.json.Decoder(_Head)


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
        document = Result(format=_FORMAT, format_version=_VERSION, document=asdict(state)).to_json()
        content = msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"
        with contextlib.suppress(OSError):  # a full disk: the run may yet pause and go on
            files.write(self._path, content, mode=0o644)  # others may look, whatever the umask


def read(folder: Path) -> RunState | None:
    """Return where the last run of a config's folder stood; None where there was none.

    Raises IntegrityError: The file is damaged, no file, or of another version of this program.
    Raises OSError: It cannot be read.
    """
    path = folder / NAME
    try:
        with files.open_regular(path) as file:
            content = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        head = _HEADS.decode(content)
        if head.format != f"megabuild/{_FORMAT}":
            raise IntegrityError(f"{path} is something else ({head.format[:80]})", "delete it")
        if head.format_version != _VERSION:
            raise IntegrityError(
                f"{path} is of another version of this program (format {head.format_version}, not {_VERSION})",
                "ask the version that runs there",
            )
        return _STATES.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise IntegrityError(f"{path} is damaged: {error}", "the next run writes it anew") from error
