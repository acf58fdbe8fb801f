"""Which wheels the indexes have, and what is in a wheel: read from its end, so that it costs some 100 kB."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import msgspec
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement

from megabuild import files
from megabuild.errors import ProviderError
from megabuild.network.client import Client, NetworkError, Patience
from megabuild.network.core_metadata import BROKEN, Directory, inside, of_file
from megabuild.network.index import HEADERS, Configured, File, configured, local_path, offered

_PATIENCE = Patience(connect=5.0, read=20.0, total=60.0)
_HOURS = Patience(read=60.0, total=7200.0)
#: For a single index, which a firewall may hide.
_HASTE = Patience(connect=4.0, read=20.0, total=20.0)
REMEDY = "Check the network and pip's configuration (pip config list), or use a cache filled before (MEGABUILD_CACHE)."


@dataclass(frozen=True, kw_only=True)
class Content:
    """What is known of a wheel without having it."""

    #: sha256, and bytes
    sha256: str
    size: int
    metadata: str  #: its METADATA
    #: bytes of all files in it, unpacked; of two of one name the later one, as it is installed
    members: Mapping[str, int]


class Offers:
    """What the indexes have: every page and every wheel is looked at once.

    Parameters
    ----------
    more:
        Addresses of simple indexes, and folders with wheels, asked after those that pip is configured with.
    index:
        The only one to ask, or None.
    environ:
        Environment variables, where pip's configuration may stand.
    """

    def __init__(self, more: Sequence[str], index: str | None, environ: Mapping[str, str]) -> None:
        known = _known(tuple(sorted(environ.items())))
        given = [index] if index else [*known.indexes, *more]
        folders = tuple(one for one in given if "://" not in one)
        self._where = Configured(
            indexes=tuple(one.rstrip("/") for one in given if "://" in one),
            links=folders if index else (*known.links, *folders),
        )
        client = partial(Client, certificates=known.certificates, proxy=known.proxy)
        self._client, self._for_files = (
            client(patience=_HASTE if index else _PATIENCE),
            client(patience=_HOURS),
        )
        self._guard, self._locks = threading.Lock(), dict[str, threading.Lock]()
        self._pages: dict[str, tuple[File, ...] | NetworkError] = {}
        self._seen: dict[str, Content] = {}
        #: why some of the indexes said nothing
        self.troubles: dict[str, None] = {}

    def files(self, project: str) -> tuple[File, ...]:
        """Return the wheels of a project; raises NetworkError where no index has it."""
        with self._alone(project):
            if project not in self._pages:
                self._pages[project] = self._asked(project)
        answer = self._pages[project]
        if isinstance(answer, NetworkError):
            raise answer
        return answer

    @property
    def fetched(self) -> int:
        """How many bytes came over the network."""
        return self._client.fetched + self._for_files.fetched

    def content(self, file: File, folder: Path | None) -> Content:
        """Look into a wheel, or into the note of what was seen there before.

        Parameters
        ----------
        file:
            The wheel.
        folder:
            Where notes are kept. None: nowhere; then no wheel is fetched whole, and hashes are not asked for.

        Raises
        ------
        ProviderError
            It cannot be read, or nobody says what its hash is.
        """
        with self._alone(file.name):
            note = noted(folder, file.sha256) if folder and file.sha256 else self._seen.get(file.url)
            if note is not None:
                return note
            try:
                seen = self._look(file, folder)
            except (*BROKEN, OSError) as error:
                raise ProviderError(f"{file.name} is no wheel, or a broken one: {error}", REMEDY) from error
            if folder:
                files.write(_note(folder, seen.sha256), msgspec.json.encode(seen).decode())
            self._seen[file.url] = seen
            return seen

    def _alone(self, what: str) -> threading.Lock:
        """Return the lock under which something is looked at: several Pythons want the same at the same time."""
        with self._guard:
            return self._locks.setdefault(what, threading.Lock())

    def _asked(self, project: str) -> tuple[File, ...] | NetworkError:
        try:
            found, troubles = offered(
                project, self._where, lambda url: self._client.get(url, headers=HEADERS)
            )
        except NetworkError as error:
            return error
        self.troubles |= dict.fromkeys(troubles)
        return tuple(one for one in found if one.tags)

    def _look(self, file: File, folder: Path | None) -> Content:
        if file.url.startswith("file:"):
            return _of_file(local_path(file.url), file.sha256)
        if not file.sha256 and folder:
            raise ProviderError(
                f"the index does not say what the hash of {file.name} is", "Use an index that gives hashes."
            )
        try:
            return _content(inside(self._client, file), file.sha256)
        except NetworkError as error:
            if error.status not in (200, 416, 501) or folder is None:
                raise
            # that server gives whole files only
            with files.scratch(folder) as temporary:
                self._for_files.save(file.url, temporary / file.name)
                return _of_file(temporary / file.name, file.sha256)


_MAKING = threading.Lock()


@cache
def _known(environ: tuple[tuple[str, str], ...]) -> Configured:
    return configured(dict(environ))  # pip takes seconds to say so


@cache
def _offers(more: tuple[str, ...], index: str | None, environ: tuple[tuple[str, str], ...]) -> Offers:
    return Offers(more, index, dict(environ))


def offers(more: Sequence[str] = (), index: str | None = None) -> Offers:
    """Return what the indexes of this process's environment have; the same object for the same question."""
    with _MAKING:  # several Pythons ask at the same time
        return _offers(tuple(more), index, tuple(sorted(os.environ.items())))


def noted(folder: Path, sha256: str) -> Content | None:
    """Return what was seen of a wheel before, or None."""
    try:
        return msgspec.json.decode(_note(folder, sha256).read_bytes(), type=Content)
    except (OSError, msgspec.MsgspecError):
        return None


def required(content: Content) -> list[Requirement]:
    """Return the requirements that a wheel's metadata names, those that nobody understands left out."""
    found = []
    for line in parse_email(content.metadata)[0].get("requires_dist", []):
        try:
            found.append(Requirement(line))
        except InvalidRequirement:
            continue
    return found


def requires_python(content: Content) -> str:
    """Return which Pythons a wheel's metadata say it is for: ``>=3.10``; empty for all."""
    return parse_email(content.metadata)[0].get("requires_python", "")


def _of_file(path: Path, sha256: str) -> Content:
    found = files.sha256(path)
    if sha256 not in ("", found):
        raise ValueError(f"its sha256 is {found}, and the index says {sha256}")
    return _content(of_file(path), found)


def _content(seen: Directory, sha256: str) -> Content:
    return Content(
        sha256=sha256,
        size=seen.length,
        metadata=seen.content.decode(errors="replace"),
        members={one.filename: one.file_size for one in seen.members if not one.is_dir()},
    )


def _note(folder: Path, sha256: str) -> Path:
    return folder / "contents" / f"{sha256}.json"
