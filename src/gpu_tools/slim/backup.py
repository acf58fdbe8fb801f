"""Keeps the original files of an environment slimmed in place, until ``--undo`` restores or ``--forget`` deletes them.

``.megabuild-slim`` has the originals at the environment's own paths below ``originals``, and a manifest of all files to
replace or remove, written before the first change. An original in the folder means: this file was replaced or removed.
A library is hard-linked into the folder, then replaced by renaming, so its path always has a complete file; running
programs keep the file they opened. If a replacement was changed later, its original stays until ``forget``.

``forget`` renames ``originals`` to ``forgotten``, then deletes the manifest and that folder. While ``forgotten``
exists, the manifest is void: the next use of the backup folder completes the deletion.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_tools.contents import BACKUP
from gpu_tools.file_lists import source_of
from gpu_tools.slim.manifest import (
    KeptFolder,
    Manifest,
    TouchedFile,
    is_alike,
    list_touched,
    read_manifest,
)
from gpu_tools.slim.plan import SlimPlan
from groundwork.errors import IntegrityError, PreflightError
from groundwork.files import sole_user, sync, write


@dataclass(frozen=True, kw_only=True)
class Restored:
    """The result of restoring an environment."""

    count: int = 0  #: number of restored files
    left: tuple[TouchedFile, ...] = ()  #: files not restored: changed since, or without an original
    #: lists of packages that were upgraded or removed: their originals were deleted
    gone: tuple[str, ...] = ()


@contextmanager
def hold_backup(root: Path) -> Iterator[Backup]:
    """Lock an environment's backup folder; create it if needed, and delete it if it has no manifest at the end.

    Raises BusyError: Another process is slimming this environment.
    Raises IntegrityError: The manifest is malformed or missing, or a link is in the place of the folder.
    """
    folder = root / BACKUP
    with suppress(FileExistsError):  # another process may make it at the same time
        folder.mkdir()
        _give_to_owner(folder, root)
    if folder.is_symlink() or not folder.is_dir():
        raise IntegrityError(
            f"{folder}: not a folder: slimming keeps the originals in a folder of this name", "move it away"
        )
    with sole_user(folder / "lock", f"{root}: another process is slimming it"):
        _give_to_owner(folder / "lock", root)
        backup = Backup(root)
        shutil.rmtree(backup.new, ignore_errors=True)
        backup.finish_forgetting()
        try:
            yield backup
        finally:
            backup.close()


def is_half_forgotten(root: Path) -> bool:
    """Return whether the deletion of an environment's originals was interrupted."""
    return _forgotten(root).is_dir()


def _forgotten(root: Path) -> Path:
    return root / BACKUP / "forgotten"


class Backup:
    """An environment's backup folder; :func:`hold_backup` must hold its lock during changes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real_root = root.resolve()
        self._folder = root / BACKUP
        self._originals = self._folder / "originals"
        self._path = self._folder / "manifest.json"
        self.new = self._folder / "new"  #: Folder for new files before they replace the originals.
        self._forgotten = _forgotten(root)
        self._freed = 0  # bytes of originals that an earlier, interrupted process was to delete
        self._manifest = None
        if not is_half_forgotten(root):
            self._manifest = read_manifest(self._path, self._originals)

    def put_back(self) -> Restored:
        """Restore the originals and the folders' modes.

        The originals of a package that was upgraded or removed are deleted: no installed version has these files.
        """
        if self._manifest is None:
            return Restored()
        folders = self._manifest.folders
        touched = self._manifest.touched
        gone: set[str] = set()
        outdated: list[TouchedFile] = []
        current: list[TouchedFile] = []
        for file in touched:
            if file.record and not os.path.lexists(self._root / file.record):
                gone.add(file.record)
                outdated.append(file)
            else:
                current.append(file)
        restorable, left = self._sort(current)
        # must=False: undo has to work on a full disk
        self._write(folders, touched, complete=False, must=False)
        for file in outdated:
            (self._originals / file.path).unlink(missing_ok=True)
        for file in restorable:
            original = self._originals / file.path
            self._make_folders(Path(file.path).parent)
            os.replace(original, self._root / file.path)
            original.unlink(missing_ok=True)  # rename does nothing if both are links to one file
        self._write(folders, left, complete=True, must=False)
        if not left:
            self._manifest = None
        return Restored(count=len(restorable), left=tuple(left), gone=tuple(sorted(gone)))

    def commit(self, plan: SlimPlan) -> None:
        """Replace and remove the plan's files; after a failure, :meth:`put_back` restores them.

        Raises PreflightError: The file system has no hard links.
        """
        touched = list_touched(plan)
        folders = self._list_folders(touched)
        self._write(folders, touched, complete=False)
        try:
            self._replace_and_remove(plan)
        except PermissionError as error:
            raise PreflightError(
                f"{error.filename}: cannot link or move the original: {error.strerror}",
                "copy the environment to a file system with hard links, then slim the copy",
            ) from error
        self._write(folders, touched, complete=True)
        shutil.rmtree(self.new, ignore_errors=True)

    def _list_folders(self, touched: Iterable[TouchedFile]) -> list[KeptFolder]:
        parents: set[str] = set()
        for file in touched:
            parents.update(map(str, Path(file.path).parents))
        folders = []
        for path in sorted(parents):
            status = (self._root / path).stat()
            folders.append(KeptFolder(path=path, mode=stat.S_IMODE(status.st_mode)))
        return folders

    def _replace_and_remove(self, plan: SlimPlan) -> None:
        for path, new in plan.new.items():
            os.link(self._root / path, self._original(path), follow_symlinks=False)
            os.replace(new, self._root / path)
        for path in sorted(plan.gone):
            os.replace(self._root / path, self._original(path))
        for folder in set(map(os.path.dirname, plan.gone)):
            while folder:
                with suppress(OSError):  # not empty
                    (self._root / folder).rmdir()
                folder = os.path.dirname(folder)

    def forget(self) -> int:
        """Delete the originals; return their bytes.

        Raises PreflightError: The last slimming was interrupted.
        """
        if self._manifest is not None and not self._manifest.complete:
            raise PreflightError(
                f"{self._root}: the last slimming was interrupted",
                "finish it with --apply, or restore the originals with --undo",
            )
        self._freed += _size(self._originals)
        with suppress(FileNotFoundError):  # a user deleted the originals
            self._originals.rename(self._forgotten)
        self._manifest = None
        return self._freed

    def finish_forgetting(self) -> None:
        """Complete the deletion of originals that an interrupted process began.

        Raises OSError: A file cannot be deleted.
        """
        if is_half_forgotten(self._root):
            self._freed = _size(self._forgotten)
            self._path.unlink(missing_ok=True)
            shutil.rmtree(self._forgotten)

    def close(self) -> None:
        """Delete the backup folder if it has no originals to restore."""
        if self._manifest is not None:
            return
        for folder in (self.new, self._originals):
            shutil.rmtree(folder, ignore_errors=True)
        # the manifest goes before the forgotten originals: without both, it would look like one of missing originals
        for path in (*self._folder.glob(f"{self._path.name}.*.new"), self._path):
            path.unlink(missing_ok=True)
        shutil.rmtree(self._forgotten, ignore_errors=True)
        (self._folder / "lock").unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self._folder.rmdir()

    def _sort(self, touched: Sequence[TouchedFile]) -> tuple[list[TouchedFile], list[TouchedFile]]:
        """Return the files that can be restored, and those that cannot; files restored earlier are in neither list."""
        by_path = {file.path: file for file in touched}
        # a changed list means that the package was reinstalled: leave its files alone
        records = {file.record for file in touched} & by_path.keys()
        reinstalled = {record for record in records if not self._is_ours(by_path[record])}
        restorable: list[TouchedFile] = []
        left: list[TouchedFile] = []
        for file in touched:
            is_reinstalled = file.record in reinstalled
            if os.path.lexists(self._originals / file.path):
                if is_reinstalled or not self._is_ours(file):
                    left.append(file)
                else:
                    restorable.append(file)
            elif not is_reinstalled and file.is_at(self._root / file.path):
                left.append(file)  # slimmed, but without an original
        return restorable, left

    def _is_ours(self, file: TouchedFile) -> bool:
        """Return whether a path is as slimming left it; also true for files not yet changed or already restored."""
        original = self._originals / file.path
        target = self._root / file.path
        if not os.path.lexists(original):
            return True
        if target.parent.resolve() != self._real_root / Path(file.path).parent:
            return False  # a link leads outside the environment
        # Python writes removed byte code again
        rewritten = file.size is None and bool(source_of(file.path)) and target.is_file()
        return rewritten or file.is_at(target) or is_alike(original, target)

    def _write(
        self,
        folders: Sequence[KeptFolder],
        touched: Sequence[TouchedFile],
        *,
        complete: bool,
        must: bool = True,
    ) -> None:
        """Write the manifest and sync it to disk; with ``must=False``, ignore write errors."""
        manifest = Manifest(complete=complete, folders=tuple(folders), touched=tuple(touched))
        try:
            # not msgspec: it cannot encode file names that are not UTF-8
            write(self._path, json.dumps(asdict(manifest)))
            sync(self._path)
            _give_to_owner(self._path, self._root)
        except OSError:
            if must:
                raise
        self._manifest = manifest

    def _original(self, path: str) -> Path:
        original = self._originals / path
        self._make_folders(original.parent.relative_to(self._root))
        return original

    def _make_folders(self, folder: Path) -> None:
        modes: dict[str, int] = {}
        if self._manifest is not None:
            modes = {kept.path: kept.mode for kept in self._manifest.folders}
        missing = [path for path in (folder, *folder.parents) if not (self._root / path).is_dir()]
        for path in reversed(missing):
            new = self._root / path
            new.mkdir()
            _give_to_owner(new, new.parent)
            new.chmod(modes.get(str(path), 0o755))


def _size(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    octets = 0
    for path in folder.rglob("*"):
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            octets += status.st_size
    return octets


def _give_to_owner(path: Path, like: Path) -> None:
    """If run by root, give ``path`` the owner of ``like``: the environment may belong to another user."""
    if os.geteuid() == 0:
        status = like.stat()
        os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)
