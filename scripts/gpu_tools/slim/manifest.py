"""What a slimming in place replaces and removes, and what lies in these places since.

The manifest is written before anything is touched. A replacement is known by size and date where it was never copied,
else by its content: copies, archives and images lose dates, or cut them to seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from gpu_tools.sizes.installed import source_of
from groundwork.errors import IntegrityError
from groundwork.files import sha256, sync, write

#: 1 had no digests: what was copied since cannot be told from what others wrote, and is left alone.
_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class Touched:
    """A file that is replaced, by one of this size, date and content, or removed (no size)."""

    path: str
    record: str  #: the installer's list that names it, or an empty string
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


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder as it was: mode and date."""

    path: str
    mode: int
    when: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What is to be put back one day."""

    state: str  # begun, applying, applied, forgotten
    folders: tuple[Folder, ...]
    touched: tuple[Touched, ...] = ()

    def write(self, path: Path) -> None:
        """Write it, and wait until it is on the disk."""
        write(path, json.dumps({"version": _VERSION, **asdict(self)}))
        sync(path)

    @classmethod
    def read(cls, path: Path, originals: Path) -> Manifest | None:
        """Return a manifest, or None where there is none.

        Raises IntegrityError: It cannot be read, or there are originals without one.
        """
        way_out = f"the originals lie in {originals}, under their own paths: move them back"
        try:
            document = json.loads(path.read_text())
            if document["version"] not in range(1, _VERSION + 1):
                raise ValueError("a later version of this program wrote it")
            found = cls(
                state=document["state"],
                folders=tuple(Folder(**one) for one in document["folders"]),
                touched=tuple(Touched(**one) for one in document["touched"]),
            )
            for named in [*(one.path for one in found.folders), *(one.path for one in found.touched)]:
                if os.path.isabs(named) or os.path.normpath(named).split(os.sep)[0] == os.pardir:
                    raise ValueError("it names a place outside of the environment")
            return found
        except FileNotFoundError:
            if next(files_below(originals), None):
                raise IntegrityError(f"{path} is not there, but originals are", way_out) from None
            return None
        except (ValueError, LookupError, TypeError) as error:
            raise IntegrityError(f"{path} cannot be read: {error}", way_out) from error


def files_below(folder: Path) -> Iterator[Path]:
    """Give the files and links in a folder and all below it; none where there is no such folder."""
    for at, folders, names in os.walk(folder):
        links = (name for name in folders if os.path.islink(os.path.join(at, name)))
        yield from (Path(at, name) for name in (*names, *links))


def digest(path: Path) -> str:
    """Return what tells a file's content; of an installer's list, whatever its lines end in."""
    if _is_list(path):
        return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
    return sha256(path)


def is_replacement(one: Touched, place: Path) -> bool:
    """Say whether a place holds what the original was replaced by, or nothing."""
    try:
        there = place.lstat()
    except FileNotFoundError:
        return True
    except NotADirectoryError:  # a file in place of a folder
        return False
    if one.size is None or not stat.S_ISREG(there.st_mode):
        return False
    if (there.st_size, there.st_mtime_ns) == (one.size, one.when):
        return True
    return one.digest != "" and (there.st_size == one.size or _is_list(place)) and digest(place) == one.digest


def is_original(original: Path, place: Path) -> bool:
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
    return (there.st_size == status.st_size or _is_list(place)) and digest(place) == digest(original)


def _is_list(path: Path) -> bool:
    return path.name == "RECORD" or path.suffix == ".json"
