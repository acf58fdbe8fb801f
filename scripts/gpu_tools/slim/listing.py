"""What lies in an environment or an unpacked package, whose it is, and where the original of a slimmed file lies."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from gpu_tools.site_packages import find_site_packages
from gpu_tools.sizes.installed import source_of
from gpu_tools.slim.records import FileList, metadata_path, read_lists, read_requirements

#: Libraries and programs begin with it.
ELF = b"\x7fELF"
#: The folder in an environment with the originals of what was slimmed.
BACKUP = ".megabuild-slim"
#: Told of what is being done, for people.
Note = Callable[[str], None]
#: A base environment has conda's cache and all others inside.
_OTHERS = frozenset({"pkgs", "envs"})


@dataclass(frozen=True, kw_only=True)
class ListedFile:
    """A file or symbolic link: where its original lies, and its status."""

    source: Path
    status: os.stat_result

    @property
    def size(self) -> int:
        """Its bytes; links take no room."""
        return self.status.st_size if stat.S_ISREG(self.status.st_mode) else 0

    def read(self) -> bytes:
        """Return its content; a link that leads nowhere has none."""
        return b"" if self.is_link and not self.source.is_file() else self.source.read_bytes()

    def begins_with(self, magic: bytes) -> bool:
        """Say whether it is a file whose content begins with some bytes."""
        if self.is_link:
            return False
        with self.source.open("rb") as stream:
            return stream.read(len(magic)) == magic

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.status.st_mode)


@dataclass(frozen=True, kw_only=True, eq=False)
class Contents:
    """An environment, or a package that was unpacked."""

    root: Path
    name: str
    kind: str  #: ``environment``, ``wheel`` or ``package``.
    every: Mapping[str, ListedFile]  #: All files and links by their path.
    records: tuple[FileList, ...]  #: The installers' lists; files of none of them are not touched.

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Packages' names by the paths of their files; byte code belongs to its source's."""
        owners = {
            path: record.owner for record in self.records for path in record.files if path in self.every
        }
        for path in self.every:
            if path not in owners and (source := source_of(path)) in owners:
                owners[path] = owners[source]
        return owners

    @cached_property
    def links(self) -> Mapping[str, str]:
        """Symbolic links of packages, and what they point to, as a path in the environment."""
        return {
            path: os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(self.every[path].source)))
            for path in self.owners
            if self.every[path].is_link
        }

    @cached_property
    def outside(self) -> Mapping[str, str]:
        """Links of packages, and folders of packages that are links, to places outside: uv's cache, for one."""
        own = os.path.realpath(self.root)
        outside = {}
        folders = (os.path.relpath(site.folder, self.root) for site in find_site_packages(self.root))
        for path in (*self.links, *folders):
            to = os.path.realpath(self.every[path].source if path in self.every else self.root / path)
            if not f"{to}/".startswith(f"{own}/"):
                outside[path] = to
        return outside

    @cached_property
    def requires(self) -> Mapping[str, set[str]]:
        """By package: the names of those that it requires, with whatever extra."""
        names: dict[str, set[str]] = {}
        for record in self.records:
            metadata = self.every.get(metadata_path(record.path))
            names.setdefault(record.owner, set()).update(
                read_requirements(metadata.source) if metadata and metadata.source.is_file() else ()
            )
        return names

    @cached_property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.every.values())


def scan(
    root: Path, *, name: str, kind: str, originals: Mapping[str, Path], follow: bool = False
) -> Contents:
    """Look around in a folder. Links are not followed, and other file systems not entered.

    ``originals`` of what was slimmed before come by their path in the environment. ``follow``: packages' files that are
    links to places outside count as the files there.
    """
    every = {path: root / path for path in _walk(root)} | dict(originals)
    entries: dict[str, ListedFile] = {}
    for path, source in sorted(every.items()):
        status = source.lstat()
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            entries[path] = ListedFile(source=source, status=status)

    def original(path: str) -> Path:
        return entries[path].source if path in entries else root / path

    contents = Contents(
        root=root, name=name, kind=kind, every=entries, records=tuple(read_lists(root, original))
    )
    files = {path: Path(to) for path, to in contents.outside.items() if follow and os.path.isfile(to)}
    followed = {path: ListedFile(source=to, status=to.stat()) for path, to in files.items()}
    return replace(contents, every={**entries, **followed}) if followed else contents


def _walk(root: Path) -> Iterator[str]:
    device, conda = root.stat().st_dev, (root / "conda-meta").is_dir()
    for folder, folders, names in os.walk(root):
        top = folder == str(root)
        folders[:] = [
            name
            for name in folders
            if not (top and (name == BACKUP or (conda and name in _OTHERS)))
            and os.lstat(os.path.join(folder, name)).st_dev == device
        ]
        before = "" if top else f"{os.path.relpath(folder, root)}/"
        yield from (before + name for name in names)
