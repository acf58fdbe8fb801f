"""Where the runs below an output folder stand, read without a lock and without a word: also another user's.

A state says itself that its run has ended. Of any other one the driver's process is looked for: by its id, when it
began, and since which start of this machine. On another machine only the time of the last word tells.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from groundwork import files
from groundwork.errors import ConfigError, IntegrityError
from groundwork.resources import processes
from groundwork.run_state import RunState
from groundwork.wording import plain
from megabuild.state import state_file
from megabuild.state.following import boot

#: A run writes every second, but for minutes of checking packages of gigabytes.
_SILENT_SECONDS = 300.0
_TAIL_BYTES = 16 << 10
_LONGEST_LINE = 300


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is known of the last run of a config's folder."""

    name: str
    folder: Path
    #: ``running``, ``ended``, ``died``, ``unknown`` (on another machine, and silent), or ``unreadable``
    standing: str
    state: RunState | None = None
    trouble: str = ""  #: why it is unreadable, with what to do
    last_line: str = ""  #: of the log of a run that died

    @property
    def log(self) -> Path | None:
        """Its log, where it lies now."""
        name = Path(self.state.log).name if self.state is not None else ""
        return self.folder / "logs" / name if name else None


def names(output: Path, wanted: Sequence[str]) -> list[str]:
    """Return the runs below an output folder that are meant; without names, all that have a state.

    A name means that config's runs, with whatever was added for a rehearsal or another release; patterns are possible.

    Raises ConfigError: There is no such run.
    """
    try:
        states = {
            entry.name for entry in os.scandir(output) if os.path.lexists(Path(entry.path, state_file.NAME))
        }
    except (FileNotFoundError, NotADirectoryError):
        states = set()
    there = sorted(states)
    found: dict[str, None] = {}
    for word in wanted:
        meant = [
            name for name in there if name == word or name.startswith(f"{word}-") or fnmatchcase(name, word)
        ]
        if not meant:
            known = f"those that did: {', '.join(there)}" if there else "none has"
            raise ConfigError(f"no run of {word} has left a state below {output}", known)
        found |= dict.fromkeys(meant)
    return list(found) if wanted else there


def look(folder: Path) -> Found:
    """Say where the last run of a folder stands."""
    try:
        state = state_file.read(folder)
    except IntegrityError as error:
        return Found(
            name=folder.name, folder=folder, standing="unreadable", trouble=f"{error.message}; {error.remedy}"
        )
    except OSError as error:
        trouble = f"{folder / state_file.NAME}: {error.strerror}"
        return Found(name=folder.name, folder=folder, standing="unreadable", trouble=trouble)
    if state is None:
        return Found(name=folder.name, folder=folder, standing="unreadable", trouble="it has gone meanwhile")
    found = Found(name=folder.name, folder=folder, standing=_standing(state), state=state)
    if found.standing != "died":
        return found
    again = _read_again(state, folder)
    if again.ended:  # between the look at the file and that at the process
        return Found(name=folder.name, folder=folder, standing="ended", state=again)
    return Found(
        name=folder.name, folder=folder, standing="died", state=state, last_line=_last_line(found.log)
    )


def _read_again(state: RunState, folder: Path) -> RunState:
    """Return what the file says now, or ``state`` where it cannot be read any more."""
    try:
        return state_file.read(folder) or state
    except (OSError, IntegrityError):
        return state


def _standing(state: RunState) -> str:
    if state.ended:
        return "ended"
    if state.host == socket.gethostname():
        if state.boot and state.boot != boot():
            return "died"  # with the machine
        return "running" if processes.is_running(state.pid, state.process_began) else "died"
    return "running" if abs(time.time() - state.updated) < _SILENT_SECONDS else "unknown"


def _last_line(log: Path | None) -> str:
    """Return what a log ends with, without its time."""
    if log is None:
        return ""
    try:
        with files.open_regular(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode(errors="replace").splitlines()
    except (OSError, IntegrityError):
        return ""
    words = next((line for line in reversed(lines) if line.strip()), "").split(maxsplit=1)
    return plain(words[-1])[:_LONGEST_LINE] if words else ""
