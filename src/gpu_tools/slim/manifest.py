"""The list of the files that slimming replaced or removed, from which ``--undo`` restores them."""

from __future__ import annotations

import filecmp
import json
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from gpu_tools.file_lists import source_of
from gpu_tools.slim.plan import SlimPlan
from groundwork.errors import IntegrityError
from groundwork.files import sha256


@dataclass(frozen=True, kw_only=True)
class TouchedFile:
    """A file to replace by one of this size, date and content, or to remove (``size`` is None)."""

    path: str
    record: str  #: The installer's list that names it, or an empty string.
    size: int | None = None
    when: int = 0  #: Modification time of the new file, in nanoseconds.
    digest: str = ""  #: SHA-256 of the new file.

    def is_at(self, target: Path) -> bool:
        """Return whether ``target`` is missing or still the replacement.

        Compares size and date, or else the content: copies and images lose dates or truncate them.
        """
        try:
            status = target.lstat()
        except FileNotFoundError:
            return True
        except NotADirectoryError:  # a parent folder has become a file
            return False
        is_like = stat.S_ISREG(status.st_mode) and status.st_size == self.size
        return is_like and (status.st_mtime_ns == self.when or sha256(target) == self.digest)


@dataclass(frozen=True, kw_only=True)
class KeptFolder:
    """A folder's original mode."""

    path: str
    mode: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files and folders that ``undo`` restores."""

    complete: bool  #: False while slimming or undoing, and after an interruption of either.
    folders: tuple[KeptFolder, ...]
    touched: tuple[TouchedFile, ...]


def list_touched(plan: SlimPlan) -> list[TouchedFile]:
    """Return the files to replace or remove."""
    lists: dict[str, str] = {}
    for listed in plan.contents.lists:
        lists |= dict.fromkeys(listed.files, listed.path)
    touched = []
    for path in (*plan.new, *sorted(plan.gone)):
        record = lists.get(path) or lists.get(source_of(path), "")
        file = TouchedFile(path=path, record=record)
        new = plan.new.get(path)
        if new:
            status = new.lstat()
            file = replace(file, size=status.st_size, when=status.st_mtime_ns, digest=sha256(new))
        touched.append(file)
    return touched


def read_manifest(path: Path, originals: Path) -> Manifest | None:
    """Read a backup folder's manifest; None if it has neither a manifest nor ``originals``.

    Raises IntegrityError: The manifest is malformed, names a path outside the environment, or is missing.
    """
    remedy = f"move the originals back by hand: {originals} has them at the environment's own paths"
    try:
        manifest = msgspec.convert(json.loads(path.read_text()), Manifest)
    except FileNotFoundError:
        if originals.is_dir():
            raise IntegrityError(f"{path}: missing, although there are originals", remedy) from None
        return None
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise IntegrityError(f"{path}: malformed: {error}", remedy) from error
    paths = [folder.path for folder in manifest.folders]
    paths += [file.path for file in manifest.touched]
    for name in paths:
        first, *_ = os.path.normpath(name).split(os.sep)
        if os.path.isabs(name) or first == os.pardir:
            raise IntegrityError(f"{path}: path outside the environment: {name}", remedy)
    return manifest


def is_alike(original: Path, target: Path) -> bool:
    """Return whether ``target`` is the original, or has the same kind and content."""
    if original.is_symlink() and target.is_symlink():
        return os.readlink(target) == os.readlink(original)
    if original.is_symlink() or target.is_symlink():
        return False
    return target.is_file() and filecmp.cmp(original, target, shallow=False)
