"""Reads the records of runs below an output folder without a lock, including another user's and damaged ones.

The record of an ended run says so. Otherwise the driver's process is looked up by ID and start time, or, on another
machine, the record's age decides.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

from groundwork.errors import ConfigError, IntegrityError
from groundwork.machine import is_running
from megabuild.status import record as state_file
from megabuild.status.record import RunRecord

#: A run writes its record every second, except while it checks packages of gigabytes.
_SILENT_SECONDS = 300.0


class Standing(str, Enum):
    """Whether a run is in progress."""

    RUNNING = "running"
    ENDED = "ended"
    DIED = "died"
    UNKNOWN = "unknown"  #: silent, on another machine
    UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The last run in a config's folder."""

    folder: Path
    standing: Standing
    record: RunRecord | None = None
    trouble: str = ""  #: why the record is unreadable

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def log(self) -> Path | None:
        """Its log, in the run's folder, which may have been moved."""
        name = Path(self.record.log).name if self.record is not None else ""
        return self.folder / "logs" / name if name else None


def run_names(output: Path, wanted: Sequence[str]) -> list[str]:
    """Return the runs below an output folder that match a wanted name or pattern; without any, all with a record.

    A config's name also matches its rehearsals and other releases, which have suffixes.

    Raises ConfigError: No run matches.
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
            remedy = "build the config first, or pass its output folder with --output"
            remedy = f"choose from {', '.join(runs)}" if runs else remedy
            raise ConfigError(f"{word}: no run in {output}", remedy)
        meant |= dict.fromkeys(names)
    return list(meant) if wanted else runs


def read_run_state(folder: Path) -> RunState:
    record, trouble = None, "the record was deleted"
    try:
        record = state_file.read(folder)
        if record is not None and (standing := _standing(record)) is Standing.DIED:
            # it may have ended since the record was read
            record = state_file.read(folder) or record
            standing = Standing.ENDED if record.ended else Standing.DIED
    except IntegrityError as error:
        trouble = f"{error.message}; {error.remedy}"
    except OSError as error:
        trouble = f"{folder / state_file.NAME}: {error.strerror}"
    if record is None:
        return RunState(folder=folder, standing=Standing.UNREADABLE, trouble=trouble)
    return RunState(folder=folder, standing=standing, record=record)


def _standing(record: RunRecord) -> Standing:
    if record.ended:
        return Standing.ENDED
    if record.host == socket.gethostname():
        return Standing.RUNNING if is_running(record.pid, record.process_began) else Standing.DIED
    is_fresh = abs(time.time() - record.updated) < _SILENT_SECONDS
    return Standing.RUNNING if is_fresh else Standing.UNKNOWN
