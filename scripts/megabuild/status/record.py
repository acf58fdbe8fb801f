"""The record of a run: what ``state.json`` keeps. It is replaced as a whole, and read from anywhere.

Points in time are seconds since 1970, so that they mean the same to another process.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

import msgspec

from groundwork import files
from groundwork.errors import IntegrityError

NAME = "state.json"
_MOST_BYTES = 1 << 20


class Activity(msgspec.Struct, kw_only=True):
    """One thing in progress: a phase of a build, the test of a package, a download."""

    task: str  #: ``pytorch``, ``pytorch_scatter-py312``, ``packing wheels``
    what: str  #: ``libtorch: compile``, ``testing pytorch 2.13.0 py3.12``
    since: float
    done: int = 0  #: ninja's steps, or what else is counted; 0 of 0 where nothing is
    total: int = 0
    unit: str = ""  #: of these: ``bytes``, ``packages``; nothing for steps


class RunRecord(msgspec.Struct, kw_only=True, tag_field="format", tag="megabuild/run-state"):
    """The status of one run."""

    format_version: Literal[2] = 2
    config: str  #: the run's name
    #: ``preparing``, ``checking``, ``building``; then ``done``, ``failed`` or ``interrupted``
    status: str = "checking"
    began: float = 0.0
    updated: float = 0.0
    log: str = ""
    activities: list[Activity] = []  #: in the order in which they began
    #: by label, such as ``pytorch 2.13.0 py3.12``: ``waiting``, ``there`` (before the run began), ``built`` (its test
    #: comes), ``testing``, ``tested`` (what it needs is not published yet), ``published`` or ``failed``
    packages: dict[str, str] = {}
    seconds_left: float | None = None  #: from ``updated`` on
    share: float = 0.0  #: of the expected duration that has passed, 0 to 1
    #: bytes: used by the run's processes, of the machine, free on the output's disk; 0 where nobody knows
    memory: int = 0
    memory_most: int = 0
    disk_free: int = 0
    #: the driver: its process, when that began (seconds since 1970), its machine
    pid: int = 0
    process_began: float = 0.0
    host: str = ""
    error: str = ""  #: what ended it
    exit_code: int | None = None  #: None while it runs

    @property
    def ended(self) -> bool:
        """Whether the run came to an end of its own, and was not killed."""
        return self.status in ("done", "failed", "interrupted")


#: Made at import: msgspec resolves a class at its first use, which two threads must not do at once.
_DECODER = msgspec.json.Decoder(RunRecord)


def write(folder: Path, record: RunRecord) -> None:
    """Replace the file of a run; a full disk costs the file and not the run."""
    content = msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"
    with contextlib.suppress(OSError):
        files.write(folder / NAME, content, mode=0o644)  # others may look, whatever the umask


def read(folder: Path) -> RunRecord | None:
    """Return the record of a folder's last run; None where there was none.

    Raises IntegrityError: The file is damaged, no file, or of another version of this program.
    Raises OSError: It cannot be read.
    """
    path = folder / NAME
    try:
        with files.open_regular(path) as file:
            return _DECODER.decode(file.read(_MOST_BYTES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError(
            f"{path} is damaged, or of another version of megabuild: {error}", "the next run replaces it"
        ) from error


def has_ended_well(folder: Path) -> bool:
    """Return whether the last run in a folder did all that it was to do, by a record that can be read."""
    try:
        last = read(folder)
    except (IntegrityError, OSError):
        return False
    return last is not None and last.status == "done"
