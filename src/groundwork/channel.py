"""A conda channel: on a server, or in a folder of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from groundwork import redact
from groundwork.address import is_readable
from groundwork.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A conda channel."""

    address: str  #: as it was given: a URL or a path
    #: the channel itself, or its index, whatever the spelling of its address; None: on a server
    folder: Path | None = None
    #: whether its compilers and C library are those of this machine or of a root folder, not of an old system
    this_machine: bool = False

    @classmethod
    def of_folder(cls, folder: Path, *, this_machine: bool = False) -> Channel:
        """Return the channel in a folder, which may be missing."""
        return cls(address=str(folder), folder=folder, this_machine=this_machine)

    @classmethod
    def parse(cls, address: str) -> Channel:
        """Return the channel at a URL (``file://`` for a folder) or a path.

        Raises UsageError: The URL cannot be taken apart.
        """
        if "://" in address and not is_readable(address):
            raise UsageError(
                f"{redact.text(address)}: not an address of a channel",
                "write it like https://HOST:8080/CHANNEL",
            )
        if address.startswith("file://"):
            return cls(address=address, folder=Path(unquote(urlsplit(address).path)))
        if "://" in address:
            return cls(address=address)
        return cls.of_folder(Path(address))

    @property
    def is_on_server(self) -> bool:
        """Whether its packages are on a server; the folder may have an index of some of them."""
        return "://" in self.address and not self.address.startswith("file:")

    @property
    def url(self) -> str:
        """Its address as a URL."""
        return self.folder.absolute().as_uri() if self.folder else self.address
