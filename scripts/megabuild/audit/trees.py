"""Upstream's files: at a tag, straight from its repository, or in a folder of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from megabuild.audit.addresses import page, parse
from megabuild.audit.facts import Target
from megabuild.audit.gitclones import Clone, Clones, is_file
from megabuild.audit.request import Services
from megabuild.errors import AuditError

_LARGEST = 16 << 20  # bytes of one file


class GitTree:
    """A commit's files; implements `megabuild.audit.facts.Tree`. Folders come at once, files when they are asked for.

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

    def names(self) -> Sequence[str]:
        """Return the paths of all regular files, sorted."""
        return sorted(path for path, (mode, _) in self.entries.items() if is_file(mode))

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those files that exist and have at most 16 MB; one request for all of them.

        Raises
        ------
        AuditError
            The server does not answer, or refuses.
        """
        hashes = {
            path: self.entries[path][1] for path in paths if is_file(self.entries.get(path, ("", ""))[0])
        }
        found = self.clone.read(list(hashes.values()))
        return {path: found[item] for path, item in hashes.items() if item in found}

    def url(self, path: str, line: int | None = None) -> str:
        """Return a file's page on hosts that have one, or an empty string."""
        return page(self.clone.address, self.commit, path, line)


class LocalTree:
    """A folder's files, such as an unpacked source archive; implements `megabuild.audit.facts.Tree`.

    Links are not followed: a folder from elsewhere must not make other files of this machine appear.

    Parameters
    ----------
    folder:
        Its top.

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
        """Return the paths of all regular files, sorted, without git's own."""
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
        """Return the contents of those files that exist and have at most 16 MB.

        Raises
        ------
        AuditError
            One of them cannot be read.
        """
        here = set(self.names())  # which leaves out links and what climbs out of the folder
        found = {}
        for path in here.intersection(paths):
            place = self._folder / path
            try:
                if place.stat().st_size <= _LARGEST:
                    found[path] = place.read_bytes()
            except OSError as error:
                raise AuditError(f"cannot read {place}: {error.strerror}", "check its permissions") from error
        return found

    def url(self, path: str, line: int | None = None) -> str:
        """Return an empty string: nobody else can open a folder of this machine."""
        return ""


def open_tree(target: Target, services: Services) -> GitTree:
    """Open the target's repository at its tag.

    Parameters
    ----------
    target:
        Its ``repository`` is any address that git takes, a folder of this machine or a mirror included; its ``tag``
        may be a commit.

    Raises
    ------
    AuditError
        The address must not be used, there is no such tag, or the server does not answer.
    """
    clones = Clones(services)
    return GitTree(clones, clones.reach(parse(target.repository), target.tag))
