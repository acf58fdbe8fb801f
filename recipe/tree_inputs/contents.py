"""The contents of files and folders, as hashes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping

#: In place of a hash if there is no regular file, or it cannot be read.
ABSENT = "absent"
#: In place of a hash if the content is unknown; equal to no hash.
UNKNOWN = ""
_BLOCK = 1 << 20


class Contents:
    """Hashes files, each once; a link counts as the file that it leads to."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, path: str) -> str:
        """Return the sha256 of a file, or ABSENT."""
        if path not in self._known:
            self._known[path] = _hash_file(path)
        return self._known[path]

    def below(self, folder: str) -> dict[str, str]:
        """Return the hashes of all files below a folder, by path; links to folders count as folders."""
        return {path: self.of(path) for path in files_below(folder)}


def _hash_file(path: str) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
    except OSError:
        return ABSENT
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ABSENT
        digest = hashlib.sha256()
        while block := os.read(handle, _BLOCK):
            digest.update(block)
    except OSError:
        return ABSENT
    finally:
        os.close(handle)
    return digest.hexdigest()


def files_below(folder: str) -> Iterator[str]:
    """Yield the paths of all files below a folder; links to folders count as folders, each at most once."""
    for entry in entries_below(folder):
        if not entry.is_dir():
            yield entry.path


def entries_below(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield all files, folders and links below a folder; links to folders are followed, each folder once."""
    visited: set[str] = set()
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        real = os.path.realpath(here)
        if real in visited:
            continue
        visited.add(real)
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            yield entry
            if entry.is_dir():
                waiting.append(entry.path)


def follow(path: str, aliases: Mapping[str, str]) -> str:
    """Return the path to which the recorded links led."""
    place = path
    while place != os.sep:
        if place in aliases:
            return aliases[place] + path[len(place) :]
        place = os.path.dirname(place)
    return path


def digest_of(hashes: Mapping[str, str]) -> str:
    """Return one hash over paths and their hashes."""
    return digest_of_lines(f"{path}\0{content}" for path, content in sorted(hashes.items()))


def digest_of_lines(lines: Iterable[str]) -> str:
    """Return one hash over lines, in their order."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogateescape"))
        digest.update(b"\n")
    return digest.hexdigest()
