"""The history of a run, ``history.json``: its ended phases, and samples of CPU and memory.

The file is replaced as a whole, and has a few hundred kilobytes at most. Points in time are seconds since 1970.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from groundwork import files
from groundwork.errors import IntegrityError

NAME = "history.json"
_MOST_BYTES = 4 << 20


#: Points in time and lengths, numbers of cores, and bytes; numbers beyond these limits are damage.
Seconds = Annotated[float, Meta(ge=0, le=1e11)]
Cores = Annotated[float, Meta(ge=0, le=1e6)]
Bytes = Annotated[int, Meta(ge=0)]


class Span(msgspec.Struct, kw_only=True, frozen=True):
    """A phase of a task that has ended."""

    task: str  #: as in the status: ``pytorch``, ``pytorch_scatter-py312``
    what: str  #: ``libtorch: compile``
    began: Seconds
    ended: Seconds


class Sample(msgspec.Struct, kw_only=True, frozen=True):
    """The use of the machine since the sample before."""

    at: Seconds  #: its end
    seconds: Seconds  #: its length
    cores: Cores  #: average number of cores that the run's processes used
    other_cores: Cores = 0.0  #: average number of cores that other programs used; 0 if unknown
    memory: Bytes = 0  #: the most bytes of the run's processes


class History(msgspec.Struct, kw_only=True, tag_field="format", tag="megabuild/run-history"):
    format_version: Literal[1] = 1
    began: Seconds  #: as in the run's record, whose history this is
    cores: Annotated[int, Meta(ge=1, le=1_000_000)]  #: number of cores that the run may use
    memory: Bytes  #: bytes that the run may use
    spans: list[Span] = []  #: in the order in which they ended
    spans_left_out: int = 0  #: number of further phases, beyond the limit
    samples: list[Sample] = []


#: Made at import: msgspec resolves a class at its first use, which two threads must not do at once.
_DECODER = msgspec.json.Decoder(History)


def write(folder: Path, history: History) -> None:
    """Replace a run's history; a write error, such as a full disk, does not stop the run."""
    with contextlib.suppress(OSError):
        files.write(
            folder / NAME, msgspec.json.encode(history), mode=0o644
        )  # for other users, like the record


def read(folder: Path, began: float) -> History | None:
    """Return the history of the run that began at this time; None if it is missing, unreadable, or of another run."""
    try:
        with files.open_regular(folder / NAME) as file:
            history = _DECODER.decode(file.read(_MOST_BYTES + 1))
    except (OSError, IntegrityError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if history.began != began:
        return None
    return history
