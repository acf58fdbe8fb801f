"""Read the records of runs below an output folder, without a lock: also another user's, also damaged ones.

A record says itself that its run has ended. Otherwise the driver's process is looked for, by its id and its start; on
another machine only the age of the record tells.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from groundwork import files
from groundwork.errors import ConfigError, IntegrityError
from groundwork.machine import is_running
from groundwork.text import plain
from megabuild.status import record as state_file
from megabuild.status.record import RunRecord

#: A run writes every second, except while packages of gigabytes are checked.
_SILENT_SECONDS = 300.0
_TAIL_BYTES, _LONGEST_LINE = 16 << 10, 300


@dataclass(frozen=True, kw_only=True)
class LastRun:
    """The last run of a config's folder, as far as it is known."""

    name: str
    folder: Path
    standing: (
        str  #: ``running``, ``ended``, ``died``, ``unknown`` (silent, on another machine), or ``unreadable``
    )
    record: RunRecord | None = None
    trouble: str = ""  #: why it is unreadable
    last_line: str = ""  #: of the log of a run that died
    lost: int = 0  #: published packages whose files are gone

    @property
    def log(self) -> Path | None:
        """Its log, where it lies now."""
        name = Path(self.record.log).name if self.record is not None else ""
        return self.folder / "logs" / name if name else None


def run_names(output: Path, wanted: Sequence[str]) -> list[str]:
    """Return the runs below an output folder that are meant; without names, all that have left a record.

    A name means that config's runs, with the suffixes of rehearsals and other releases; patterns are possible.

    Raises ConfigError: There is no such run.
    """
    try:
        entries = sorted(entry.name for entry in os.scandir(output))
    except (FileNotFoundError, NotADirectoryError):
        entries = []
    known = [name for name in entries if os.path.lexists(output / name / state_file.NAME)]
    names: dict[str, None] = {}
    for word in wanted:
        meant = [
            name for name in known if name == word or name.startswith(f"{word}-") or fnmatchcase(name, word)
        ]
        if not meant:
            raise ConfigError(
                f"no run of {word} has left a state below {output}",
                f"runs there: {', '.join(known)}"
                if known
                else "build something first, or name its folder with -o",
            )
        names |= dict.fromkeys(meant)
    return list(names) if wanted else known


def read_last_run(folder: Path) -> LastRun:
    """Return the last run of a folder."""
    name, trouble, record = folder.name, "it is gone", None
    try:
        record = state_file.read(folder)
    except IntegrityError as error:
        trouble = f"{error.message}; {error.remedy}"
    except OSError as error:
        trouble = f"{folder / state_file.NAME}: {error.strerror}"
    if record is None:
        return LastRun(name=name, folder=folder, standing="unreadable", trouble=trouble)
    standing = _standing(record)
    if standing == "died":  # unless it has ended between the look at the file and that at the process
        with contextlib.suppress(OSError, IntegrityError):
            record = state_file.read(folder) or record
        standing = "ended" if record.ended else "died"
    run = LastRun(name=name, folder=folder, standing=standing, record=record, lost=_lost(record, folder))
    if standing != "died":
        return run
    return LastRun(name=name, folder=folder, standing=standing, record=record, last_line=_last_line(run.log))


def _standing(record: RunRecord) -> str:
    if record.ended:
        return "ended"
    if record.host == socket.gethostname():
        return "running" if is_running(record.pid, record.process_began) else "died"
    return "running" if abs(time.time() - record.updated) < _SILENT_SECONDS else "unknown"


def _lost(record: RunRecord, folder: Path) -> int:
    paths = (folder.parent / name for name in record.files.values())
    return sum(not os.path.lexists(path) for path in paths) if record.ended else 0


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
