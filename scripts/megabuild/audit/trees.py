"""Upstream's files: at a tag, straight from its repository, or in a folder of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from megabuild.audit.addresses import page, parse
from megabuild.audit.clones import Clone, Clones
from megabuild.audit.facts import Target
from megabuild.audit.services import Services
from megabuild.errors import AuditError

_FILES = ("100644", "100755", "100664")  # git's modes of regular files; 100664: by old versions of git


class GitTree:
    """A commit's files; a `Tree`. Folders come at once, files when they are asked for.

    Parameters
    ----------
    clones:
        Those of this run; the submodules' go through them as well.
    clone:
        The one with the commit and its folders.
    """

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
        return page(self.clone.address, self.commit, path, line)


class LocalTree:
    """A folder's files, such as an unpacked source archive; a `Tree`.

    Links are not followed: a folder from elsewhere must not make other files of this machine appear.

    Raises
    ------
    AuditError
        There is no such folder.
    """

    commit = ""  #: a folder's files need not be those of a commit

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise AuditError(f"{folder} is no folder", "name one with upstream's files: --tree FOLDER")
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


def open_tree(target: Target, services: Services) -> GitTree:
    """Open the target's repository at its tag.

    Raises
    ------
    AuditError
        The address must not be used, there is no such tag, or the server does not answer.
    """
    clones = Clones(services)
    return GitTree(clones, clones.reach(parse(target.repository), target.tag))
