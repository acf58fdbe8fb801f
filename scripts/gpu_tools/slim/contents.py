"""What an environment or an unpacked package holds, and the lists of files that installers keep.

These are RECORD of a wheel, conda-meta of an environment, and paths.json of a conda package.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from gpu_tools.site_packages import find_metadata, find_site_packages
from gpu_tools.sizes.installed import source_of
from groundwork.errors import IntegrityError
from groundwork.files import sha256
from groundwork.wheel_file import recorded

#: Libraries and programs begin with it.
ELF = b"\x7fELF"
#: The folder in an environment with the originals of what was slimmed.
BACKUP = ".megabuild-slim"
#: Told of what is being done, for people.
Note = Callable[[str], None]
#: A base environment has conda's cache and all others inside.
_OTHERS = frozenset({"pkgs", "envs"})
#: What a conda package says of its own files; not linked into environments.
_PATHS = "info/paths.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class FileList:
    """An installer's list of a package's files."""

    path: str  #: Of the list itself, in the environment or package.
    owner: str  #: The package's name in canonical form.
    files: tuple[str, ...]  #: In the environment or package.
    requires: frozenset[str]  #: Names of the packages that it requires, with whatever extra.


@dataclass(frozen=True, kw_only=True, eq=False)
class Contents:
    """An environment, or a package that was unpacked."""

    root: Path
    name: str
    kind: str  #: ``environment``, ``wheel`` or ``package``.
    every: Mapping[str, os.stat_result]  #: All files and symbolic links by their path.
    lists: tuple[FileList, ...]  #: Files of none of them are not touched.

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Packages' names by the paths of their files; byte code belongs to its source's."""
        owners = {path: listed.owner for listed in self.lists for path in listed.files if path in self.every}
        for path in self.every:
            if path not in owners and (source := source_of(path)) in owners:
                owners[path] = owners[source]
        return owners

    @cached_property
    def links(self) -> Mapping[str, str]:
        """Symbolic links of packages, and what they point to, as a path in the environment."""
        return {
            path: os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(self.root / path)))
            for path in self.owners
            if self.is_link(path)
        }

    @cached_property
    def outside(self) -> Mapping[str, str]:
        """Links of packages, and folders of packages that are links, to places outside: uv's cache, for one."""
        own = os.path.realpath(self.root)
        folders = (os.path.relpath(site.folder, self.root) for site in find_site_packages(self.root))
        targets = {path: os.path.realpath(self.root / path) for path in (*self.links, *folders)}
        return {path: to for path, to in targets.items() if not f"{to}/".startswith(f"{own}/")}

    @cached_property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(self.size_of, self.every))

    def is_link(self, path: str) -> bool:
        """Say whether a path is a symbolic link."""
        return stat.S_ISLNK(self.every[path].st_mode)

    def size_of(self, path: str) -> int:
        """Return a file's bytes; links take no room."""
        return 0 if self.is_link(path) else self.every[path].st_size

    def read(self, path: str) -> bytes:
        """Return a file's content; a link that leads nowhere has none."""
        file = self.root / path
        return file.read_bytes() if file.is_file() else b""

    def begins_with(self, path: str, magic: bytes) -> bool:
        """Say whether a path is a file whose content begins with some bytes."""
        if self.is_link(path):
            return False
        with (self.root / path).open("rb") as stream:
            return stream.read(len(magic)) == magic


def scan(root: Path, *, name: str, kind: str = "environment") -> Contents:
    """Look around in a folder. Links are not followed, and other file systems not entered.

    Raises IntegrityError: A package's list of files cannot be read.
    """
    every = {}
    for path in sorted(_walk(root)):
        status = os.lstat(root / path)
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            every[path] = status
    return Contents(root=root, name=name, kind=kind, every=every, lists=tuple(_read_lists(root)))


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


def _read_lists(root: Path) -> Iterator[FileList]:
    """Return the lists of an environment or of an unpacked package; those of a wheel first."""
    # the second is where conda's packages for every Python have theirs
    for folder in (root, root / "site-packages", *(site.folder for site in find_site_packages(root))):
        for information in find_metadata(folder):
            if not (record := information / "RECORD").is_file():
                continue
            path, metadata = record.relative_to(root).as_posix(), information / "METADATA"
            inside = (_inside(path, row[0]) for row in _rows(record) if row)
            text = metadata.read_text("utf-8", errors="replace") if metadata.is_file() else ""
            head = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
            yield FileList(
                path=path,
                owner=canonicalize_name(information.name.partition("-")[0]),
                files=tuple(name for name in inside if name),
                requires=_names(spec for key, _, spec in head if key == "Requires-Dist"),
            )
    for file in (*sorted((root / "conda-meta").glob("*.json")), root / _PATHS):
        if not file.is_file():
            continue
        path, document = file.relative_to(root).as_posix(), _read_json(file)
        about = _read_json(root / "info" / "index.json") if path == _PATHS else document
        try:
            files = [entry["_path"] for entry in document["paths"]] if path == _PATHS else document["files"]
            owner = canonicalize_name(str(about["name"]))
            requires = _names(map(str, about.get("depends") or ()))
            yield FileList(path=path, owner=owner, files=tuple(map(str, files)), requires=requires)
        except (LookupError, TypeError) as error:
            raise _unreadable(file, error) from error


def _names(requirements: Iterator[str]) -> frozenset[str]:
    names = (_NAME.match(text.strip()) for text in requirements)
    return frozenset(canonicalize_name(name[0]) for name in names if name)


def correct_list(file: Path, path: str, gone: Collection[str], changed: Mapping[str, Path]) -> str | None:
    """Return a list without what is gone, with the hashes and sizes of what changed; None where it stays as it is.

    ``changed`` has new files by their path; lists among them are those that come before this one.
    """
    if not path.endswith(".json"):
        return _correct_record(file, path, gone, changed)
    document = _read_json(file)
    before = json.dumps(document)
    details = document if path == _PATHS else document.get("paths_data") or {}
    for holder, key in ((details, "paths"), (document, "files")):
        if key in holder:
            holder[key] = [
                entry
                for entry in holder[key]
                if (entry["_path"] if isinstance(entry, dict) else entry) not in gone
            ]
    for entry in details.get("paths", ()):
        if new := changed.get(entry["_path"]):
            entry |= {"size_in_bytes": new.stat().st_size, "sha256": sha256(new)}
            if "sha256_in_prefix" in entry:
                entry["sha256_in_prefix"] = entry["sha256"]
    return None if json.dumps(document) == before else json.dumps(document, indent=2)


def _correct_record(file: Path, path: str, gone: Collection[str], changed: Mapping[str, Path]) -> str | None:
    before = _rows(file)
    rows = [row for row in before if not (row and _inside(path, row[0]) in gone)]
    for index, row in enumerate(rows):
        new = changed.get(_inside(path, row[0])) if len(row) == 3 and row[1] else None
        if new:
            rows[index] = [row[0], recorded(bytes.fromhex(sha256(new))), str(new.stat().st_size)]
    if rows == before:
        return None
    written = io.StringIO()
    with file.open("rb") as stream:
        ending = "\r\n" if stream.readline().endswith(b"\r\n") else "\n"
    csv.writer(written, lineterminator=ending).writerows(rows)
    return written.getvalue()


def _rows(file: Path) -> list[list[str]]:
    try:
        # as pip reads and writes it; a name may hold any byte
        with file.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            return list(csv.reader(stream))
    except csv.Error as error:
        raise _unreadable(file, error) from error


def _inside(record: str, listed: str) -> str:
    """Return a RECORD's entry as a path in the environment; empty where it lies outside."""
    site = os.path.dirname(os.path.dirname(record))
    path = os.path.normpath(os.path.join(site, listed))
    return "" if os.path.isabs(path) or path.startswith("../") else path


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> IntegrityError:
    return IntegrityError(
        f"{file} cannot be read: {error or type(error).__name__}", "install its package again"
    )
