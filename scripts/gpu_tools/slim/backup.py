"""The originals of what was slimmed in place: kept in the environment until they are put back or forgotten.

Their folder has the environment's own paths below ``originals`` and a manifest, written before anything is touched, of
all that is to be replaced or removed. What happened of it is told by the files themselves: an original that is there
was replaced or removed. A library is linked into the folder first and then replaced by renaming, so that at any moment
there is one at its place, whole; programs that run keep the file they have opened.

An original whose place others have changed since stays in the folder: only ``forget`` deletes it.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from filelock import Timeout

from gpu_tools.sizes.installed import source_of
from gpu_tools.slim.listing import BACKUP
from gpu_tools.slim.manifest import Folder, Manifest, Touched, is_alike
from gpu_tools.slim.savings import SlimPlan
from groundwork.errors import BusyError, PreflightError
from groundwork.files import FileLock, sha256


@contextmanager
def hold_backup(root: Path) -> Iterator[Backup]:
    """Hold an environment's folder of originals, which is made if there is none, and removed if nothing came of it.

    Raises BusyError: Another process is slimming this environment.
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
    _give_to_owner(folder / "lock", root)
    with lock:
        lock.release()  # counted: the context holds it once more
        backup = Backup(root)
        shutil.rmtree(backup.new, ignore_errors=True)
        try:
            yield backup
        finally:
            if not backup.applied:
                backup.remove()


class Backup:
    """The folder with the originals of an environment; whoever changes anything holds it.

    Raises IntegrityError: Its manifest cannot be read.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._real_root = root, root.resolve()
        self._folder = root / BACKUP
        self._originals = self._folder / "originals"
        self._path = self._folder / "manifest.json"
        self.new = self._folder / "new"  #: For new files.
        self._manifest = Manifest.read(self._path, self._originals)

    @property
    def applied(self) -> bool:
        """Whether there is something to put back."""
        return self._manifest is not None

    @property
    def size(self) -> int:
        """Bytes of the originals."""
        files = (path.lstat() for path in self._originals.rglob("*"))
        return sum(status.st_size for status in files if not stat.S_ISDIR(status.st_mode))

    def originals(self) -> dict[str, Path]:
        """Return the originals that can be put back, by path."""
        return {file.path: self._originals / file.path for file in self._sort()[0]}

    def left(self) -> tuple[Touched, ...]:
        """Return what cannot be put back: its place or package was changed by others since, or its original is gone."""
        return self._sort()[1]

    def put_back(self) -> tuple[Touched, ...]:
        """Put the originals back, with modes and dates of folders; return what was left, which stays as it is."""
        if self._manifest is None:
            return ()
        mine, left = self._sort()
        self._note(replace(self._manifest, state="applying"))
        for file in mine:
            original = self._originals / file.path
            self._make_folders(Path(file.path).parent)
            os.replace(original, self._root / file.path)
            original.unlink(missing_ok=True)  # two links to one file: renaming leaves both
        for folder in self._manifest.folders:
            if (place := self._root / folder.path).is_dir():
                os.utime(place, ns=(place.stat().st_atime_ns, folder.when))
        self._note(replace(self._manifest, state="applied", touched=left))
        if not left:
            self._manifest = None
        return left

    def commit(self, plan: SlimPlan) -> None:
        """Replace and remove what a plan says; should that fail, everything is put back.

        Raises PreflightError: The file system has no hard links.
        """
        lists = {path: record.path for record in plan.contents.records for path in record.files}
        touched = []
        for path in (*plan.new, *sorted(plan.gone)):
            entry = Touched(path=path, record=lists.get(path) or lists.get(source_of(path), ""))
            if path in plan.new:
                status = plan.new[path].lstat()
                content = sha256(plan.new[path])
                entry = replace(entry, size=status.st_size, when=status.st_mtime_ns, digest=content)
            touched.append(entry)
        parents = {str(parent) for entry in touched for parent in Path(entry.path).parents}
        folders = []
        for path in sorted(parents):
            status = (self._root / path).stat()
            folders.append(Folder(path=path, mode=stat.S_IMODE(status.st_mode), when=status.st_mtime_ns))
        applying = Manifest(state="applying", folders=tuple(folders), touched=tuple(touched))
        self._write(applying)
        try:
            for path, new in plan.new.items():
                os.link(self._root / path, self._original(path), follow_symlinks=False)
                os.replace(new, self._root / path)
            for path in sorted(plan.gone):
                os.replace(self._root / path, self._original(path))
            self._remove_empty({os.path.dirname(path) for path in plan.gone})
        except PermissionError as error:
            self.put_back()
            raise PreflightError(
                f"an original cannot be linked or moved: {error.strerror} ({error.filename})",
                "use --output DIR",
            ) from error
        except BaseException:
            self.put_back()
            raise
        self._write(replace(applying, state="applied"))
        shutil.rmtree(self.new, ignore_errors=True)

    def forget(self) -> None:
        """Delete the originals.

        Raises PreflightError: The last slimming was cut short.
        """
        if self._manifest is not None and self._manifest.state == "applying":
            raise PreflightError(
                f"the last slimming of {self._root} was cut short",
                "end it with --apply, or go back with --undo",
            )
        self._originals.rename(
            self.new
        )  # from here on nothing can be put back, however far the deleting comes
        self._manifest = None

    def remove(self) -> None:
        """Delete the folder, in which nothing is to be put back."""
        for folder in (self.new, self._originals):
            shutil.rmtree(folder, ignore_errors=True)
        for path in (*self._folder.glob(f"{self._path.name}.*.new"), self._folder / "lock", self._path):
            path.unlink(missing_ok=True)
        with suppress(OSError), _keep_date(self._root):  # something is left in it
            self._folder.rmdir()

    def _sort(self) -> tuple[tuple[Touched, ...], tuple[Touched, ...]]:
        """Return what can be put back, and what cannot; what is back already, or comes again, is neither."""
        touched = self._manifest.touched if self._manifest else ()
        by_path = {file.path: file for file in touched}
        # of packages that were installed again or removed since, all is left alone
        others = {
            record
            for record in {file.record for file in touched} - {""}
            if not os.path.lexists(self._root / record)
            or (record in by_path and not self._is_ours(by_path[record]))
        }
        mine: list[Touched] = []
        left: list[Touched] = []
        for file in touched:
            is_others = file.record in others
            if os.path.lexists(self._originals / file.path):
                (left if is_others or not self._is_ours(file) else mine).append(file)
            elif not (is_others or file.comes_again) and file.is_at(self._root / file.path, by_date=False):
                left.append(file)  # its original is gone
        return tuple(mine), tuple(left)

    def _write(self, manifest: Manifest) -> None:
        manifest.write(self._path)
        _give_to_owner(self._path, self._root)
        self._manifest = manifest

    def _note(self, manifest: Manifest) -> None:
        """Write the manifest if that is possible: a full disk must not keep anybody from going back."""
        self._manifest = manifest
        with suppress(OSError):
            self._write(manifest)

    def _original(self, path: str) -> Path:
        original = self._originals / path
        self._make_folders(original.parent.relative_to(self._root))
        return original

    def _is_ours(self, file: Touched) -> bool:
        """Say whether a place is as it was left; what was not touched yet, or is back already, counts as well."""
        original, place = self._originals / file.path, self._root / file.path
        if not os.path.lexists(original):
            return True
        if place.parent.resolve() != self._real_root / Path(file.path).parent:
            return False  # by a link it may be anybody's
        return file.is_at(place, by_date=True) or file.comes_again or is_alike(original, place)

    def _make_folders(self, folder: Path) -> None:
        modes = {folder.path: folder.mode for folder in self._manifest.folders} if self._manifest else {}
        missing = []
        while not (self._root / folder).is_dir():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            made = self._root / folder
            made.mkdir()
            _give_to_owner(made, made.parent)
            made.chmod(modes.get(str(folder), 0o755))

    def _remove_empty(self, folders: set[str]) -> None:
        for folder in sorted(folders, key=len, reverse=True):
            while folder:
                try:
                    (self._root / folder).rmdir()
                except OSError:  # something is left in it
                    break
                folder = os.path.dirname(folder)


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
