"""The files of an environment or an unpacked package, and the packages that own them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gpu_tools.file_lists import FileList, find_lists, read_list, source_of
from gpu_tools.site_packages import find_site_packages
from gpu_tools.subject_kind import SubjectKind
from groundwork.errors import IntegrityError

#: The folder of an environment in which slim keeps the original files.
BACKUP = ".megabuild-slim"


@dataclass(frozen=True, kw_only=True, eq=False)
class Contents:
    """An environment or an unpacked package."""

    root: Path
    name: str
    kind: SubjectKind
    every: Mapping[str, os.stat_result]  #: All files and symbolic links, by path.
    lists: tuple[FileList, ...]  #: Files in none of these lists are never changed.

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Package names by file path; byte code belongs to the package of its source."""
        owners: dict[str, str] = {}
        for listed in self.lists:
            for path in listed.files:
                if path in self.every:
                    owners[path] = listed.owner
        for path in self.every:
            source = source_of(path)
            if path not in owners and source in owners:
                owners[path] = owners[source]
        return owners

    @cached_property
    def packages(self) -> frozenset[str]:
        """Names of the packages that own files."""
        return frozenset(self.owners.values())

    @cached_property
    def links(self) -> Mapping[str, str]:
        """Targets of the packages' symbolic links, also of whole packages, as paths in the environment, by path."""
        links = {}
        for path in self.every:
            if self.is_link(path) and (path in self.owners or "-packages/" in path):
                target = os.path.join(os.path.dirname(path), os.readlink(self.root / path))
                links[path] = os.path.normpath(target)
        return links

    @cached_property
    def outside(self) -> Mapping[str, str]:
        """Targets of links (files or site-packages folders) that lead outside the environment, e.g. to uv's cache."""
        own = os.path.realpath(self.root)
        paths = list(self.links)
        for site in find_site_packages(self.root):
            paths.append(os.path.relpath(site.folder, self.root))
        outside = {}
        for path in paths:
            target = os.path.realpath(self.root / path)
            if not f"{target}/".startswith(f"{own}/"):
                outside[path] = target
        return outside

    @cached_property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(self.size_of, self.every))

    def is_link(self, path: str) -> bool:
        return stat.S_ISLNK(self.every[path].st_mode)

    def size_of(self, path: str) -> int:
        """Return a file's size in bytes; 0 for links."""
        if self.is_link(path):
            return 0
        return self.every[path].st_size

    def read(self, path: str) -> bytes:
        """Return a file's content; empty for a dangling link."""
        file = self.root / path
        if not file.is_file():
            return b""
        return file.read_bytes()

    def begins_with(self, path: str, magic: bytes) -> bool:
        """Return whether a path is a regular file that begins with ``magic``."""
        if self.is_link(path):
            return False
        with (self.root / path).open("rb") as stream:
            return stream.read(len(magic)) == magic


def scan(
    root: Path,
    *,
    name: str,
    kind: SubjectKind = SubjectKind.ENVIRONMENT,
    remarks: list[str] | None = None,
) -> Contents:
    """List a folder's files, without following links or entering other file systems.

    `remarks`: gets a sentence for each unreadable folder and file list.

    Raises IntegrityError: A package's file list is malformed, and there are no ``remarks``.
    """

    def note_fault(error: Exception) -> None:
        if remarks is not None:
            remarks.append(f"not read: {error}")

    every = {}
    for path in _walk(root, note_fault):
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


def _walk(root: Path, note_fault: Callable[[OSError], None]) -> Iterator[str]:
    """Yield the paths of all files and folders of the environment itself, on its own file system."""
    device = root.stat().st_dev
    left_out = [BACKUP]
    if (root / "conda-meta").is_dir():  # a base environment has the cache and all other environments
        left_out += ["pkgs", "envs"]
    skipped = {os.path.join(root, name) for name in left_out}
    for folder, folders, names in os.walk(root, onerror=note_fault):
        entered = []
        for name in folders:
            path = os.path.join(folder, name)
            if path not in skipped and os.lstat(path).st_dev == device:
                entered.append(name)
                yield path
        folders[:] = entered
        for name in names:
            yield os.path.join(folder, name)
