"""Read the records of runs below an output folder, without a lock: also another user's, also damaged ones.

A record says itself that its run has ended. Otherwise the driver's process is looked for, by its id and its start; on
another machine only the age of the record tells.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from groundwork.errors import ConfigError, IntegrityError
from groundwork.machine import is_running
from megabuild.status import record as state_file
from megabuild.status.record import RunRecord

#: A run writes every second, except while packages of gigabytes are checked.
_SILENT_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class LastRun:
    """The last run of a config's folder, as far as it is known."""

    name: str
    folder: Path
    #: ``running``, ``ended``, ``died``, ``unknown`` (silent, on another machine), or ``unreadable``
    standing: str
    record: RunRecord | None = None
    trouble: str = ""  #: why it is unreadable

    @property
    def log(self) -> Path | None:
        """Its log: below its folder, wherever that is now."""
        name = Path(self.record.log).name if self.record is not None else ""
        return self.folder / "logs" / name if name else None


def run_names(output: Path, wanted: Sequence[str]) -> list[str]:
    """Return the runs below an output folder that are meant; without names, all that have left a record.

    A name means that config's runs, with the suffixes of rehearsals and other releases; patterns are possible.

    Raises ConfigError: There is no such run.
    """
    try:
        folders = sorted(entry.name for entry in os.scandir(output))
    except (FileNotFoundError, NotADirectoryError):
        folders = []
    runs = [name for name in folders if os.path.lexists(output / name / state_file.NAME)]
    meant: dict[str, None] = {}
    for word in wanted:
        names = [name for name in runs if name.startswith(f"{word}-") or fnmatchcase(name, word)]
        if not names:
            there = (
                f"runs there: {', '.join(runs)}" if runs else "build something, or name its folder with -o"
            )
            raise ConfigError(f"no run of {word} has left a state below {output}", there)
        meant |= dict.fromkeys(names)
    return list(meant) if wanted else runs


def read_last_run(folder: Path) -> LastRun:
    """Return the last run of a folder."""
    record, trouble = None, "it is gone"
    try:
        record = state_file.read(folder)
        if record is not None and (standing := _standing(record)) == "died":
            # unless it has ended between the look at the file and that at the process
            record = state_file.read(folder) or record
            standing = "ended" if record.ended else "died"
    except IntegrityError as error:
        trouble = f"{error.message}; {error.remedy}"
    except OSError as error:
        trouble = f"{folder / state_file.NAME}: {error.strerror}"
    if record is None:
        return LastRun(name=folder.name, folder=folder, standing="unreadable", trouble=trouble)
    return LastRun(name=folder.name, folder=folder, standing=standing, record=record)


def _standing(record: RunRecord) -> str:
    if record.ended:
        return "ended"
    if record.host == socket.gethostname():
        return "running" if is_running(record.pid, record.process_began) else "died"
    return "running" if abs(time.time() - record.updated) < _SILENT_SECONDS else "unknown"
