"""The record of the environments of a config's last run: ``environments.json`` in its folder, which no build writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import structs

from groundwork import files
from groundwork.errors import IntegrityError

NAME = "environments.json"
_MOST_BYTES = 64 << 20


class RecordedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package of an environment."""

    name: str
    version: str
    build: str
    sha256: str
    file_name: str
    subdir: str  #: ``linux-64`` or ``noarch``
    url: str  #: without credentials
    channel: str  #: address of its channel
    entry: Mapping[str, Any]  #: its entry in the channel's index

    @property
    def label(self) -> str:
        """Its name and version for people."""
        return f"{self.name} {self.version}"


class RecordedChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel of the environments."""

    address: str  #: without credentials
    folder: str | None  #: None: on a server
    this_machine: bool  #: whether it was made of this machine's programs


class EnvironmentRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="megabuild/environments"
):
    """The packages of all environments that one run was planned with."""

    format_version: Literal[1] = 1
    config: str  #: the run's name
    provider: str
    cross_from: str = ""  #: platform of the machine that compiled for another one; empty for its own
    planned: float  #: the time at which these packages were the newest, in seconds since 1970
    is_complete: bool  #: whether all packages of the run exist
    pythons: tuple[str, ...]  #: that the unfinished runs were asked for; empty: all of the config
    channels: tuple[RecordedChannel, ...]  #: in order of priority
    overrides: Mapping[str, tuple[str, ...]]  #: variant values that the provider's environment determined
    packages: tuple[RecordedPackage, ...]  #: of all environments together, each once


#: Made at import: msgspec resolves a class at its first use, which two threads must not do at once.
_DECODER = msgspec.json.Decoder(EnvironmentRecord)


def read(state: Path) -> EnvironmentRecord | None:
    """Return the record in a config's folder, or None if there is none.

    Raises IntegrityError: The record is damaged, unreadable, or of another version of megabuild.
    """
    path = state / NAME
    try:
        with files.open_regular(path) as file:
            return _DECODER.decode(file.read(_MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError(
            f"{path}: damaged, or of another version of megabuild: {error}",
            f"run: rm {path}; the next run then uses the newest packages",
        ) from error


def write(state: Path, record: EnvironmentRecord) -> None:
    """Replace the record in a config's folder."""
    files.write(state / NAME, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def mark(state: Path, *, is_complete: bool) -> None:
    """Set whether all packages of the recorded run exist; without a record, do nothing.

    Raises IntegrityError: As :func:`read`.
    """
    record = read(state)
    if record is not None and record.is_complete != is_complete:
        write(state, structs.replace(record, is_complete=is_complete))
