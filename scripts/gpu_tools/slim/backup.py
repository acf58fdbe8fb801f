"""The originals of what was slimmed in place: kept in the environment until they are put back or forgotten.

Their folder has the environment's own paths below ``originals`` and a manifest, written before anything is touched, of
all that is to be replaced or removed. What happened of it is told by the files themselves: an original that is there
was replaced or removed. A library is linked into the folder first and then replaced by renaming, so that at any moment
there is one at its place, whole; programs that run keep the file they have opened.

An original whose place others have changed since stays in the folder: only ``forget`` deletes it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec
from filelock import Timeout

from gpu_tools.file_lists import source_of
from gpu_tools.slim.contents import BACKUP
from gpu_tools.slim.plan import SlimPlan
from groundwork.errors import BusyError, IntegrityError, PreflightError
from groundwork.files import FileLock, sha256, sync, write


@dataclass(frozen=True, kw_only=True)
class TouchedFile:
    """A file that is replaced, by one of this size, date and content, or removed (no size)."""

    path: str
    record: str  #: The installer's list that names it, or an empty string.
    size: int | None = None
    when: int = 0
    digest: str = ""

    def is_at(self, target: Path) -> bool:
        """Say whether a place holds what replaced the original, or nothing.

        A replacement is known by size and date, or by its content: copies and images lose dates, or cut them.
        """
        try:
            status = target.lstat()
        except FileNotFoundError:
            return True
        except NotADirectoryError:  # a file in target of a folder
            return False
        if status.st_size != self.size or not stat.S_ISREG(status.st_mode):
            return False
        return status.st_mtime_ns == self.when or sha256(target) == self.digest


@dataclass(frozen=True, kw_only=True)
class KeptFolder:
    """A folder as it was: mode and date."""

    path: str
    mode: int
    when: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What is to be put back one day."""

    complete: bool  #: Neither a slimming nor its undoing is under way, or was cut short.
    folders: tuple[KeptFolder, ...]
    touched: tuple[TouchedFile, ...]


@contextmanager
def hold_backup(root: Path) -> Iterator[Backup]:
    """Hold an environment's folder of originals, which is made if there is none, and removed if nothing came of it.

    Raises BusyError: Another process is slimming this environment.
    Raises IntegrityError: Its manifest cannot be read.
    """
    folder = root / BACKUP
    if not folder.is_dir():
        with _keep_date(root):
            folder.mkdir()
        _give_to_owner(folder, root)
    lock = FileLock(folder / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"another process is slimming {root}", "wait for it") from None
    try:
        _give_to_owner(folder / "lock", root)
        backup = Backup(root)
        shutil.rmtree(backup.new, ignore_errors=True)
        try:
            yield backup
        finally:
            if not backup.applied:
                backup.remove()
    finally:
        lock.release()


class Backup:
    """The folder with the originals of an environment; whoever changes anything holds it."""

    def __init__(self, root: Path) -> None:
        self._root, self._real_root = root, root.resolve()
        self._folder = root / BACKUP
        self._originals = self._folder / "originals"
        self._path = self._folder / "manifest.json"
        self.new = self._folder / "new"  #: For new files.
        self._manifest = self._read()

    @property
    def applied(self) -> bool:
        """Whether there is something to put back."""
        return self._manifest is not None

    @property
    def size(self) -> int:
        """Bytes of the originals."""
        files = (path.lstat() for path in self._originals.rglob("*"))
        return sum(status.st_size for status in files if not stat.S_ISDIR(status.st_mode))

    def put_back(self) -> tuple[int, tuple[TouchedFile, ...]]:
        """Put the originals back, with modes and dates of folders; return how many, and what was left as it is.

        That is what others have changed since, or what lost its original.
        """
        if self._manifest is None:
            return 0, ()
        mine, left = self._sort(self._manifest.touched)
        self._write(replace(self._manifest, complete=False), must=False)
        for file in mine:
            original = self._originals / file.path
            self._make_folders(Path(file.path).parent)
            os.replace(original, self._root / file.path)
            original.unlink(missing_ok=True)  # two links to one file: renaming leaves both
        for folder in self._manifest.folders:
            if (path := self._root / folder.path).is_dir():
                os.utime(path, ns=(path.stat().st_atime_ns, folder.when))
        # a full disk must not keep anybody from going back
        self._write(replace(self._manifest, complete=True, touched=tuple(left)), must=False)
        if not left:
            self._manifest = None
        return len(mine), tuple(left)

    def commit(self, plan: SlimPlan) -> None:
        """Replace and remove what a plan says; should that fail, everything is put back.

        Raises PreflightError: The file system has no hard links.
        """
        lists = {path: listed.path for listed in plan.contents.lists for path in listed.files}
        touched = []
        for path in (*plan.new, *sorted(plan.gone)):
            file = TouchedFile(path=path, record=lists.get(path) or lists.get(source_of(path), ""))
            if new := plan.new.get(path):
                status = new.lstat()
                file = replace(file, size=status.st_size, when=status.st_mtime_ns, digest=sha256(new))
            touched.append(file)
        folders = []
        for path in sorted({str(parent) for file in touched for parent in Path(file.path).parents}):
            status = (self._root / path).stat()
            folders.append(KeptFolder(path=path, mode=stat.S_IMODE(status.st_mode), when=status.st_mtime_ns))
        manifest = Manifest(complete=False, folders=tuple(folders), touched=tuple(touched))
        self._write(manifest)
        try:
            for path, new in plan.new.items():
                os.link(self._root / path, self._original(path), follow_symlinks=False)
                os.replace(new, self._root / path)
            for path in sorted(plan.gone):
                os.replace(self._root / path, self._original(path))
            for path in {os.path.dirname(path) for path in plan.gone}:
                while path:
                    with suppress(OSError):  # something is left in it
                        (self._root / path).rmdir()
                    path = os.path.dirname(path)
        except PermissionError as error:
            self.put_back()
            raise PreflightError(
                f"an original cannot be linked or moved: {error.strerror} ({error.filename})",
                "copy the environment to a file system with hard links, and slim the copy",
            ) from error
        except BaseException:
            self.put_back()
            raise
        self._write(replace(manifest, complete=True))
        shutil.rmtree(self.new, ignore_errors=True)

    def forget(self) -> None:
        """Delete the originals.

        Raises PreflightError: The last slimming was cut short.
        """
        if self._manifest is not None and not self._manifest.complete:
            raise PreflightError(
                f"the last slimming of {self._root} was cut short",
                "end it with --apply, or go back with --undo",
            )
        # from here on nothing can be put back, however far the deleting comes
        self._originals.rename(self.new)
        self._manifest = None

    def remove(self) -> None:
        """Delete the folder, in which nothing is to be put back."""
        for folder in (self.new, self._originals):
            shutil.rmtree(folder, ignore_errors=True)
        for path in (*self._folder.glob(f"{self._path.name}.*.new"), self._folder / "lock", self._path):
            path.unlink(missing_ok=True)
        with suppress(OSError), _keep_date(self._root):  # something is left in it
            self._folder.rmdir()

    def _sort(self, touched: tuple[TouchedFile, ...]) -> tuple[list[TouchedFile], list[TouchedFile]]:
        """Return what can be put back, and what cannot; what is back already is neither."""
        by_path = {file.path: file for file in touched}
        # of packages that were installed again or removed since, all is left alone
        others = {
            record
            for record in {file.record for file in touched} - {""}
            if not os.path.lexists(self._root / record)
            or (record in by_path and not self._is_ours(by_path[record]))
        }
        mine: list[TouchedFile] = []
        left: list[TouchedFile] = []
        for file in touched:
            if os.path.lexists(self._originals / file.path):
                (left if file.record in others or not self._is_ours(file) else mine).append(file)
            elif file.record not in others and file.is_at(self._root / file.path):
                left.append(file)  # its original is gone
        return mine, left

    def _is_ours(self, file: TouchedFile) -> bool:
        """Say whether a place is as it was left; what was not touched yet, or is back already, counts as well."""
        original, target = self._originals / file.path, self._root / file.path
        if not os.path.lexists(original):
            return True
        if target.parent.resolve() != self._real_root / Path(file.path).parent:
            return False  # by a link it may be anybody's
        return file.is_at(target) or _is_alike(original, target)

    def _read(self) -> Manifest | None:
        remedy = f"the originals lie in {self._originals}, under their own paths: move them back"
        try:
            manifest = msgspec.convert(json.loads(self._path.read_text()), Manifest)
        except FileNotFoundError:
            if self._originals.is_dir():
                raise IntegrityError(f"{self._path} is not there, but originals are", remedy) from None
            return None
        except (ValueError, msgspec.MsgspecError) as error:
            raise IntegrityError(f"{self._path} cannot be read: {error}", remedy) from error
        for path in (
            *(folder.path for folder in manifest.folders),
            *(file.path for file in manifest.touched),
        ):
            if os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] == os.pardir:
                raise IntegrityError(f"{self._path} names a target outside: {path}", remedy)
        return manifest

    def _write(self, manifest: Manifest, *, must: bool = True) -> None:
        """Write the manifest, and wait until it is on the disk."""
        self._manifest = manifest
        try:
            write(self._path, json.dumps(asdict(manifest)))  # msgspec encodes no names that are not UTF-8
            sync(self._path)
            _give_to_owner(self._path, self._root)
        except OSError:
            if must:
                raise

    def _original(self, path: str) -> Path:
        original = self._originals / path
        self._make_folders(original.parent.relative_to(self._root))
        return original

    def _make_folders(self, folder: Path) -> None:
        modes = {folder.path: folder.mode for folder in self._manifest.folders} if self._manifest else {}
        missing = [path for path in (folder, *folder.parents) if not (self._root / path).is_dir()]
        for path in reversed(missing):
            new = self._root / path
            new.mkdir()
            _give_to_owner(new, new.parent)
            new.chmod(modes.get(str(path), 0o755))


def _is_alike(original: Path, target: Path) -> bool:
    """Say whether a place holds the original, or its like."""
    try:
        before, now = original.lstat(), target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if os.path.samestat(before, now) or stat.S_IFMT(before.st_mode) != stat.S_IFMT(now.st_mode):
        return os.path.samestat(before, now)
    if stat.S_ISLNK(before.st_mode):
        return os.readlink(target) == os.readlink(original)
    return before.st_size == now.st_size and sha256(target) == sha256(original)


@contextmanager
def _keep_date(folder: Path) -> Iterator[None]:
    before = folder.stat()
    yield
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def _give_to_owner(path: Path, like: Path) -> None:
    """Give what root made in somebody's environment to the owner of another path."""
    if os.geteuid() == 0:
        status = like.stat()
        os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)
