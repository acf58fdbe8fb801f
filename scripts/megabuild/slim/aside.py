"""The originals of what was slimmed in place: kept in the environment until they are put back or forgotten.

Their folder has the environment's own paths below ``originals`` and a manifest, written before anything is touched, of
all that is to be replaced or removed. What happened of it is told by the files themselves: an original that is there
was replaced or removed. A library is linked into the folder first and then replaced by renaming, so that at any moment
there is one at its place, whole; programs that run keep the file they have opened.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from megabuild.errors import IntegrityError, PreflightError
from megabuild.files import sync, write
from megabuild.sizes.installed import source_of
from megabuild.slim.listing import ASIDE
from megabuild.slim.savings import Plan


@dataclass(frozen=True, kw_only=True)
class _Touched:
    """A file that is replaced, by one of this size and date, or removed (no size); and the list that names it."""

    path: str
    record: str
    size: int | None = None
    when: int = 0


@dataclass(frozen=True, kw_only=True)
class _Folder:
    path: str
    mode: int
    when: int


@dataclass(frozen=True, kw_only=True)
class _Manifest:
    state: str  # begun, applying, applied, forgotten
    folders: tuple[_Folder, ...]
    touched: tuple[_Touched, ...] = ()

    def write(self, path: Path) -> None:
        write(path, json.dumps({"version": 1, **asdict(self)}))
        sync(path)


class Aside:
    """The folder with the originals of an environment; whoever changes anything holds it: ``apply.held``.

    Raises
    ------
    IntegrityError
        Its manifest cannot be read.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / ASIDE
        self._originals = self._folder / "originals"
        self._path = self._folder / "manifest.json"
        #: for new files
        self.new = self._folder / "new"
        self._manifest = self._read()

    @property
    def applied(self) -> bool:
        """Whether there is something to put back."""
        return self._manifest is not None and self._manifest.state in ("applying", "applied")

    def originals(self) -> dict[str, Path]:
        """Return the originals by path, save those whose place or package was changed by others since."""
        if self._manifest is None or not self.applied:
            return {}
        touched = self._manifest.touched
        by_path = {one.path: one for one in touched}
        # installed again or removed since: what belongs to it is not ours any more
        others = {
            record
            for record in {one.record for one in touched} - {""}
            if not os.path.lexists(self._root / record)
            or (record in by_path and not self._ours(by_path[record]))
        }
        return {
            one.path: self._originals / one.path
            for one in touched
            if one.record not in others and os.path.lexists(self._originals / one.path) and self._ours(one)
        }

    def put_back(self) -> list[str]:
        """Put every original back, with modes and dates of folders; the manifest stays.

        Returns
        -------
        Paths of what was left because others changed it since.
        """
        if self._manifest is None:
            return []
        mine = self.originals()
        if self._manifest.state == "applied":
            self._manifest = replace(self._manifest, state="applying")
            with contextlib.suppress(OSError):  # a full disk must not keep anybody from going back
                self._manifest.write(self._path)
        left = [
            one.path
            for one in self._manifest.touched
            if one.path not in mine and os.path.lexists(self._originals / one.path)
        ]
        modes = {one.path: one.mode for one in self._manifest.folders}
        for path, original in mine.items():
            self._make_folders(Path(path).parent, modes)
            os.replace(original, self._root / path)
            original.unlink(missing_ok=True)  # two links to one file: renaming leaves both
        self._restore_folders()
        shutil.rmtree(self._originals, ignore_errors=True)
        return left

    def commit(self, plan: Plan) -> None:
        """Replace and remove what a plan says; should that fail, everything is put back.

        Raises
        ------
        PreflightError
            The file system has no hard links.
        """
        if self._manifest is None:
            raise ValueError("not held")
        lists = {path: record.path for record in plan.contents.records for path in record.files}
        touched = []
        for path in (*plan.new, *sorted(plan.gone)):
            new = plan.new[path].lstat() if path in plan.new else None
            record = lists.get(path) or lists.get(source_of(path), "")
            if new is None:
                touched.append(_Touched(path=path, record=record))
            else:
                touched.append(_Touched(path=path, record=record, size=new.st_size, when=new.st_mtime_ns))
        self._manifest = _Manifest(
            state="applying", folders=self._folders_of(touched), touched=tuple(touched)
        )
        self._manifest.write(self._path)
        try:
            for path, file in plan.new.items():
                self._replace(path, file)
            for path in sorted(plan.gone):
                os.replace(self._root / path, self._original(path))
            self._remove_empty({os.path.dirname(path) for path in plan.gone})
        except BaseException:
            self.put_back()
            self.dissolve()
            raise
        self._manifest = replace(self._manifest, state="applied")
        self._manifest.write(self._path)
        shutil.rmtree(self.new, ignore_errors=True)

    def dissolve(self) -> None:
        """Take note that nothing is left to put back."""
        if self._manifest is not None:
            self._manifest = replace(self._manifest, state="begun", touched=())

    def forget(self) -> None:
        """Delete the originals.

        Raises
        ------
        PreflightError
            The last slimming was cut short.
        """
        if not self.applied:
            return
        if self._manifest is not None and self._manifest.state == "applying":
            raise PreflightError(
                f"the last slimming of {self._root} was cut short",
                "end it with --apply, or go back with --undo",
            )
        # from here on nothing can be put back, however far the deleting comes
        self._manifest = _Manifest(state="forgotten", folders=())
        self._manifest.write(self._path)

    def remove(self) -> None:
        """Delete the folder, and leave the environment's own date as it was."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path != self._path:
                    path.unlink()
            self._path.unlink(missing_ok=True)
            self._folder.rmdir()
        self._restore_folders(only_root=True)

    def begin(self) -> None:
        """Clear what is left over, and note the date of the environment's folder."""
        shutil.rmtree(self.new, ignore_errors=True)
        if self._manifest is None or self._manifest.state == "forgotten":
            shutil.rmtree(self._originals, ignore_errors=True)
            self._manifest = _Manifest(state="begun", folders=(self._folder_of("."),))
            self._manifest.write(self._path)

    def _replace(self, path: str, file: Path) -> None:
        original = self._original(path)
        try:
            os.link(self._root / path, original, follow_symlinks=False)
        except PermissionError as error:
            raise PreflightError(
                f"{path}: the original cannot be linked: {error.strerror}", "use --output DIR"
            ) from error
        os.replace(file, self._root / path)

    def _original(self, path: str) -> Path:
        original = self._originals / path
        original.parent.mkdir(parents=True, exist_ok=True)
        return original

    def _ours(self, one: _Touched) -> bool:
        """Say whether a place is as it was left; what was not touched yet, or is back already, counts as well."""
        original = self._originals / one.path
        try:
            status, there = original.lstat(), os.lstat(self._root / one.path)
        except FileNotFoundError:
            return True
        if one.size is None:
            return source_of(one.path) != ""  # Python makes it again
        return (there.st_size, there.st_mtime_ns) == (one.size, one.when) or os.path.samestat(there, status)

    def _folders_of(self, touched: list[_Touched]) -> tuple[_Folder, ...]:
        assert self._manifest is not None
        known = {one.path: one for one in self._manifest.folders}
        paths = {str(parent) for one in touched for parent in Path(one.path).parents} - known.keys()
        return (*known.values(), *map(self._folder_of, sorted(paths)))

    def _folder_of(self, path: str) -> _Folder:
        status = (self._root / path).stat()
        return _Folder(path=path, mode=stat.S_IMODE(status.st_mode), when=status.st_mtime_ns)

    def _make_folders(self, folder: Path, modes: Mapping[str, int]) -> None:
        missing = []
        while not (self._root / folder).is_dir():
            missing.append(folder)
            folder = folder.parent
        for one in reversed(missing):
            made, above = self._root / one, (self._root / one).parent.stat()
            made.mkdir()
            if os.geteuid() == 0:  # in somebody's environment
                os.chown(made, above.st_uid, above.st_gid)
            made.chmod(modes.get(str(one), 0o755))

    def _restore_folders(self, *, only_root: bool = False) -> None:
        for one in self._manifest.folders if self._manifest else ():
            folder = self._root / one.path
            if (one.path == "." or not only_root) and folder.is_dir():
                os.utime(folder, ns=(folder.stat().st_atime_ns, one.when))

    def _remove_empty(self, folders: set[str]) -> None:
        for folder in sorted(folders, key=len, reverse=True):
            while folder:
                try:
                    (self._root / folder).rmdir()
                except OSError:  # something is left in it
                    break
                folder = os.path.dirname(folder)

    def _read(self) -> _Manifest | None:
        try:
            document = json.loads(self._path.read_text())
            found = _Manifest(
                state=document["state"],
                folders=tuple(_Folder(**one) for one in document["folders"]),
                touched=tuple(_Touched(**one) for one in document["touched"]),
            )
            named = [*(one.path for one in found.folders), *(one.path for one in found.touched)]
            if any(os.path.normpath(path).startswith(("/", "..")) for path in named):
                raise ValueError("it names a place outside of the environment")
            return found
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError) as error:
            raise IntegrityError(
                f"{self._path} cannot be read: {error}",
                f"the originals lie in {self._originals}, under their own paths: move them back",
            ) from error
