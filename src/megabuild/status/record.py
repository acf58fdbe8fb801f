"""The record of a run, ``state.json``: replaced as a whole, and read by any process.

Points in time are seconds since 1970, so that other processes can use them.
"""

from __future__ import annotations

import contextlib
from enum import Enum
from pathlib import Path
from typing import Literal

import msgspec

from groundwork import files
from groundwork.errors import IntegrityError

NAME = "state.json"
_MOST_BYTES = 1 << 20


class Activity(msgspec.Struct, kw_only=True):
    """Work in progress: a phase of a build, the test of a package, a download."""

    task: str  #: ``pytorch``, ``pytorch_scatter-py312``, ``packing wheels``
    what: str  #: ``libtorch: compile``, ``testing pytorch 2.13.0 py3.12``
    since: float
    done: int = 0  #: number of finished steps of ninja, or of ``unit``; 0 of 0 if nothing is counted
    total: int = 0
    unit: str = ""  #: ``bytes`` or ``packages``; empty for ninja's steps
    expected: float = 0.0  #: seconds from its beginning to its end, by the plan's table; 0 if unknown


class PackageState(str, Enum):
    """State of a planned package."""

    WAITING = "waiting"
    THERE = "there"  #: published before the run
    BUILT = "built"  #: not tested yet
    TESTING = "testing"
    TESTED = "tested"  #: a dependency is not published yet
    PUBLISHED = "published"
    FAILED = "failed"


class RunStatus(str, Enum):
    """The stage of a run, or its end."""

    PREPARING = "preparing"
    CHECKING = "checking"
    BUILDING = "building"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_end(self) -> bool:
        """Whether the run has ended by itself, without being killed."""
        return self in (RunStatus.DONE, RunStatus.FAILED, RunStatus.INTERRUPTED)


class RunRecord(msgspec.Struct, kw_only=True, tag_field="format", tag="megabuild/run-state"):
    format_version: Literal[4] = 4
    config: str  #: the run's name
    status: RunStatus = RunStatus.CHECKING
    began: float = 0.0
    updated: float = 0.0
    log: str = ""
    activities: list[Activity] = []  #: in the order in which they began
    packages: dict[str, PackageState] = {}  #: by file name, which is a package's identity
    only_tests_left: bool = False  #: all packages are made; their tests are running
    seconds_left: float | None = None  #: counted from ``updated``
    #: bytes: used by the run's processes, of the machine, free on the output's disk; 0 if unknown
    memory: int = 0
    memory_most: int = 0
    disk_free: int = 0
    #: the driver's process ID, its start in seconds since 1970, and its machine
    pid: int = 0
    process_began: float = 0.0
    host: str = ""
    error: str = ""  #: the error that ended the run
    exit_code: int | None = None  #: None while the run lasts

    @property
    def ended(self) -> bool:
        """Whether the run ended by itself, without being killed."""
        return self.status.is_end


#: Made at import: msgspec resolves a class at its first use, which two threads must not do at once.
_DECODER = msgspec.json.Decoder(RunRecord)


def write(folder: Path, record: RunRecord) -> None:
    """Replace a run's record; a write error, such as a full disk, does not stop the run."""
    content = msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"
    with contextlib.suppress(OSError):
        files.write(folder / NAME, content, mode=0o644)  # readable by other users, whatever the umask


def read(folder: Path) -> RunRecord | None:
    """Return the record of a folder's last run, or None if there was no run.

    Raises IntegrityError: The record is damaged, not a regular file, or of another version of megabuild.
    Raises OSError: The record cannot be read.
    """
    path = folder / NAME
    try:
        with files.open_regular(path) as file:
            return _DECODER.decode(file.read(_MOST_BYTES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError(
            f"{path}: damaged, or of another version of megabuild: {error}",
            "run the build again to replace it",
        ) from error
