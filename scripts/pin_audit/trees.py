"""Upstream's files: at a tag, straight from its repository, or in a folder of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from groundwork.errors import AuditError
from pin_audit.addresses import Address
from pin_audit.facts import AuditTarget
from pin_audit.git import Clone, Clones
from pin_audit.services import Services

_FILES = ("100644", "100755", "100664")  # git's modes of regular files; 100664: by old versions of git


class GitTree:
    """A commit's files: folders come at once, files when they are asked for. Submodules go through the same clones."""

    def __init__(self, clones: Clones, clone: Clone) -> None:
        self.clones, self.clone = clones, clone
        self.commit = clone.top()

    @cached_property
    def entries(self) -> Mapping[str, tuple[str, str]]:
        """Mode and hash of everything, by path."""
        return self.clone.listing(self.commit)

    @cached_property
    def _files(self) -> Mapping[str, str]:
        return {path: item for path, (mode, item) in self.entries.items() if mode in _FILES}

    def names(self) -> Sequence[str]:
        """Return the paths of all regular files, sorted."""
        return sorted(self._files)

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those files that exist; one request for all of them."""
        hashes = {path: self._files[path] for path in paths if path in self._files}
        found = self.clone.read(list(hashes.values()))
        return {path: found[item] for path, item in hashes.items()}

    def url(self, path: str, line: int | None = None) -> str:
        """Return an address of a file for a person to open, or an empty string."""
        return self.clone.address.page(self.commit, path, line)


class LocalTree:
    """A folder's files, such as an unpacked source archive; raises AuditError if it does not exist.

    Links are not followed: a folder from elsewhere must not make other files of this machine appear.
    """

    commit = ""  #: a folder's files need not be those of a commit

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise AuditError(f"{folder} is not a folder", "name one with upstream's files: --tree FOLDER")
        self._folder = folder.absolute()

    def names(self) -> Sequence[str]:
        found = []
        for top, folders, files in os.walk(self._folder):
            folders[:] = [name for name in folders if name != ".git"]
            places = (Path(top, name) for name in files if name != ".git")
            found += [
                place.relative_to(self._folder).as_posix()
                for place in places
                if place.is_file() and not place.is_symlink()
            ]
        return sorted(found)

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        found = {}
        for path in set(self.names()).intersection(paths):  # no links, nothing that climbs out of the folder
            place = self._folder / path
            try:
                found[path] = place.read_bytes()
            except OSError as error:
                raise AuditError(f"cannot read {place}: {error.strerror}", "check its permissions") from error
        return found

    def url(self, path: str, line: int | None = None) -> str:
        return ""


Tree = GitTree | LocalTree


def open_tree(target: AuditTarget, services: Services) -> GitTree:
    """Open the target's repository at its tag; raises AuditError on failure, or if the tag does not exist."""
    if not target.repository or not target.tag:
        lacking = "the recipe names no upstream repository with a tag"
        raise AuditError(lacking, "name them: --upstream URL --ref TAG")
    clones = Clones(services)
    return GitTree(clones, clones.reach(Address.parse(target.repository), target.tag))
