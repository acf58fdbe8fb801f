"""The files of an environment or an unpacked package, and the packages that own them."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gpu_tools.file_lists import FileList, find_lists, read_list, source_of
from gpu_tools.site_packages import find_site_packages
from groundwork.errors import IntegrityError

#: The folder of an environment in which slim keeps the original files.
BACKUP = ".megabuild-slim"
#: First bytes of libraries and programs.
ELF = b"\x7fELF"
#: A conda base environment contains the package cache and all other environments.
_OTHERS = frozenset({"pkgs", "envs"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Contents:
    """An environment or an unpacked package."""

    root: Path
    name: str
    kind: str  #: ``environment``, ``wheel`` or ``package``.
    every: Mapping[str, os.stat_result]  #: All files and symbolic links, by path.
    lists: tuple[FileList, ...]  #: Files in none of these lists are never changed.

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Package names by file path; byte code belongs to the package of its source."""
        owners = {path: listed.owner for listed in self.lists for path in listed.files if path in self.every}
        for path in self.every:
            if path not in owners and (source := source_of(path)) in owners:
                owners[path] = owners[source]
        return owners

    @cached_property
    def links(self) -> Mapping[str, str]:
        """Targets of the packages' symbolic links, also of whole packages, as paths in the environment, by path."""
        return {
            path: os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(self.root / path)))
            for path in self.every
            if self.is_link(path) and (path in self.owners or "-packages/" in path)
        }

    @cached_property
    def outside(self) -> Mapping[str, str]:
        """Targets of links (files or site-packages folders) that lead outside the environment, e.g. to uv's cache."""
        own = os.path.realpath(self.root)
        folders = (os.path.relpath(site.folder, self.root) for site in find_site_packages(self.root))
        targets = {path: os.path.realpath(self.root / path) for path in (*self.links, *folders)}
        return {path: to for path, to in targets.items() if not f"{to}/".startswith(f"{own}/")}

    @cached_property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(self.size_of, self.every))

    def is_link(self, path: str) -> bool:
        return stat.S_ISLNK(self.every[path].st_mode)

    def size_of(self, path: str) -> int:
        """Return a file's size in bytes; 0 for links."""
        return 0 if self.is_link(path) else self.every[path].st_size

    def read(self, path: str) -> bytes:
        """Return a file's content; empty for a dangling link."""
        file = self.root / path
        return file.read_bytes() if file.is_file() else b""

    def begins_with(self, path: str, magic: bytes) -> bool:
        """Return whether a path is a regular file that begins with ``magic``."""
        if self.is_link(path):
            return False
        with (self.root / path).open("rb") as stream:
            return stream.read(len(magic)) == magic


def scan(root: Path, *, name: str, kind: str = "environment", remarks: list[str] | None = None) -> Contents:
    """List a folder's files, without following links or entering other file systems.

    `remarks`: gets a sentence for each unreadable folder and file list.

    Raises IntegrityError: A package's file list is malformed, and there are no ``remarks``.
    """

    def note_fault(error: Exception) -> None:
        if remarks is not None:
            remarks.append(f"not read: {error}")

    device = root.stat().st_dev
    left_out = {BACKUP, *(_OTHERS if (root / "conda-meta").is_dir() else ())}
    every = {}
    for folder, folders, names in os.walk(root, onerror=note_fault):
        folders[:] = [
            name
            for name in folders
            if not (folder == str(root) and name in left_out)
            and os.lstat(os.path.join(folder, name)).st_dev == device
        ]
        for path in (os.path.join(folder, name) for name in (*folders, *names)):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                every[os.path.relpath(path, root)] = status
    lists = []
    for file in find_lists(root):
        try:
            lists.append(read_list(root, file))
        except (IntegrityError, OSError, ValueError) as error:
            if remarks is None:
                raise
            note_fault(error)
    return Contents(root=root, name=name, kind=kind, every=dict(sorted(every.items())), lists=tuple(lists))
