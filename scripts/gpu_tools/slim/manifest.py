"""What a slimming in place replaces and removes, and whether its places are as it left them.

The manifest is written before anything is touched. A replacement is known by size and date where it was never copied,
else by its content: copies, archives and images lose dates, or cut them to seconds.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from gpu_tools.sizes.installed import source_of
from groundwork.errors import IntegrityError
from groundwork.files import sha256, sync, write

_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class Touched:
    """A file that is replaced, by one of this size, date and content, or removed (no size)."""

    path: str
    record: str  #: The installer's list that names it, or an empty string.
    size: int | None = None
    when: int = 0
    digest: str = ""

    @property
    def package(self) -> str:
        """Name and version of its package, as its list is called: ``numpy-2.4.6``."""
        record = PurePosixPath(self.record or self.path)
        return record.parent.name.removesuffix(".dist-info") if record.name == "RECORD" else record.stem

    @property
    def comes_again(self) -> bool:
        """Whether it is byte code that was removed: Python writes it again."""
        return self.size is None and source_of(self.path) != ""

    def is_at(self, place: Path, *, by_date: bool) -> bool:
        """Say whether a place holds what replaced the original, or nothing; ``by_date``: date and size suffice."""
        try:
            there = place.lstat()
        except FileNotFoundError:
            return True
        except NotADirectoryError:  # a file in place of a folder
            return False
        if there.st_size != self.size or not stat.S_ISREG(there.st_mode):
            return False
        return (by_date and there.st_mtime_ns == self.when) or sha256(place) == self.digest


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder as it was: mode and date."""

    path: str
    mode: int
    when: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What is to be put back one day."""

    state: Literal["applying", "applied"]
    folders: tuple[Folder, ...]
    touched: tuple[Touched, ...]
    version: int = _VERSION

    def write(self, path: Path) -> None:
        """Write it, and wait until it is on the disk."""
        write(path, json.dumps(asdict(self)))  # msgspec encodes no names that are not UTF-8
        sync(path)

    @classmethod
    def read(cls, path: Path, originals: Path) -> Manifest | None:
        """Return a manifest, or None where there is none.

        Raises IntegrityError: It cannot be read, or there are originals without one.
        """
        way_out = f"the originals lie in {originals}, under their own paths: move them back"
        try:
            manifest = msgspec.convert(json.loads(path.read_text()), cls)
        except FileNotFoundError:
            if originals.is_dir():
                raise IntegrityError(f"{path} is not there, but originals are", way_out) from None
            return None
        except (ValueError, msgspec.MsgspecError) as error:
            raise IntegrityError(f"{path} cannot be read: {error}", way_out) from error
        paths = [*(entry.path for entry in manifest.folders), *(entry.path for entry in manifest.touched)]
        if manifest.version != _VERSION or any(
            os.path.isabs(named) or os.path.normpath(named).split(os.sep)[0] == os.pardir for named in paths
        ):
            raise IntegrityError(f"{path} is of another version, or names places outside", way_out)
        return manifest


def is_alike(original: Path, place: Path) -> bool:
    """Say whether a place holds the original, or its like."""
    try:
        there, status = place.lstat(), original.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if os.path.samestat(there, status):
        return True
    if stat.S_IFMT(there.st_mode) != stat.S_IFMT(status.st_mode):
        return False
    if stat.S_ISLNK(there.st_mode):
        return os.readlink(place) == os.readlink(original)
    return there.st_size == status.st_size and sha256(place) == sha256(original)
