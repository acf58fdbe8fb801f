"""Reads the records of runs below an output folder without a lock, including another user's and damaged ones.

The record of an ended run says so. Otherwise the driver's process is looked up by ID and start time, or, on another
machine, the record's age decides.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

from groundwork.errors import ConfigError, IntegrityError
from groundwork.machine import is_running
from megabuild.status import record as state_file
from megabuild.status.record import RunRecord
from megabuild.store.published import MissingTests, current_names, find_missing_tests

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
        if self.record is None:
            return None
        name = Path(self.record.log).name
        return self.folder / "logs" / name if name else None


def run_names(output: Path, wanted: Sequence[str]) -> list[str]:
    """Return the runs below an output folder that match a wanted name or pattern; without any, all with a record.

    A config's name also matches its rehearsals and other releases, which have suffixes.

    Raises ConfigError: No run matches.
    """
    runs = _runs_with_record(output)
    if not wanted:
        return runs
    meant: dict[str, None] = {}
    for word in wanted:
        names = [name for name in runs if is_meant(name, word)]
        if not names:
            remedy = "build the config first, or pass its output folder with --output"
            if runs:
                remedy = f"choose from {', '.join(runs)}"
            raise ConfigError(f"{word}: no run in {output}", remedy)
        meant |= dict.fromkeys(names)
    return list(meant)


def is_meant(name: str, word: str) -> bool:
    """Return whether a run's name matches a wanted name or pattern."""
    return name.startswith(f"{word}-") or fnmatchcase(name, word)


def _runs_with_record(output: Path) -> list[str]:
    try:
        folders = sorted(entry.name for entry in os.scandir(output))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in folders if os.path.lexists(output / name / state_file.NAME)]


def read_run_state(folder: Path) -> RunState:
    try:
        record = state_file.read(folder)
    except IntegrityError as error:
        return _unreadable(folder, f"{error.message}; {error.remedy}")
    except OSError as error:
        return _unreadable(folder, f"{folder / state_file.NAME}: {error.strerror}")
    if record is None:
        return _unreadable(folder, "the record was deleted")
    standing = _standing(record)
    if standing is Standing.DIED:
        # it may have ended since the record was read
        with suppress(IntegrityError, OSError):
            record = state_file.read(folder) or record
        standing = Standing.ENDED if record.ended else Standing.DIED
    return RunState(folder=folder, standing=standing, record=record)


def read_missing_tests(run: RunState) -> MissingTests | None:
    """Return the tests that a config's published packages have not passed; None if a record is unreadable.

    Without packages that a later build has replaced.
    """
    if run.record is None:
        return None
    channel = run.folder.parent / "packages" / run.folder.name
    try:
        return find_missing_tests(channel, current_names(channel, run.record.packages))
    except (OSError, IntegrityError):
        return None


def _unreadable(folder: Path, trouble: str) -> RunState:
    return RunState(folder=folder, standing=Standing.UNREADABLE, trouble=trouble)


def _standing(record: RunRecord) -> Standing:
    if record.ended:
        return Standing.ENDED
    if record.host == socket.gethostname():
        is_active = is_running(record.pid, record.process_began)
        return Standing.RUNNING if is_active else Standing.DIED
    is_fresh = abs(time.time() - record.updated) < _SILENT_SECONDS
    return Standing.RUNNING if is_fresh else Standing.UNKNOWN
