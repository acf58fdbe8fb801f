"""What is in a wheel that is not here: read from its end, so that it costs some 100 kB, and noted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement

from groundwork import files
from groundwork.errors import ProviderError
from groundwork.network.client import NetworkError, Timeouts
from groundwork.network.core_metadata import BROKEN, Directory, inside, of_file
from groundwork.network.index import Configured, File, local_path

_PATIENCE = Timeouts(connect=5.0, read=20.0, total=60.0)
_HOURS = Timeouts(read=60.0, total=7200.0)


@dataclass(frozen=True, kw_only=True)
class Content:
    """What is known of a wheel without having it."""

    #: sha256, and bytes
    sha256: str
    size: int
    metadata: str  #: its METADATA
    #: bytes of all files in it, unpacked; of two of one name the later one, as it is installed
    members: Mapping[str, int]


class Contents:
    """What is in the wheels of some indexes.

    Notes are kept in a folder. Where that is None there are none, and no wheel is fetched whole.
    """

    def __init__(self, where: Configured, folder: Path | None) -> None:
        self._client, self._for_files = where.client(_PATIENCE), where.client(_HOURS)
        self._folder = folder

    @property
    def fetched(self) -> int:
        """How many bytes came over the network."""
        return self._client.fetched + self._for_files.fetched

    def of(self, file: File) -> Content:
        """Look into a wheel, or into the note of what was seen there before; raises ProviderError."""
        if self._folder and (note := noted(self._folder, file.sha256)):
            return note
        try:
            seen = self._look(file)
        except (*BROKEN, OSError) as error:
            raise ProviderError(
                f"{file.name} is no wheel, or a broken one: {error}",
                "Look where pip gets it from (pip config list).",
            ) from error
        if self._folder:
            files.write(_note(self._folder, seen.sha256), msgspec.json.encode(seen).decode())
        return seen

    def _look(self, file: File) -> Content:
        if file.url.startswith("file:"):
            return _of_file(local_path(file.url), file.sha256)
        try:
            return _content(inside(self._client, file), file.sha256)
        except NetworkError as error:
            if error.status not in (200, 416, 501) or self._folder is None:
                raise
            # that server gives whole files only
            with files.scratch(self._folder) as temporary:
                self._for_files.save(file.url, temporary / file.name)
                return _of_file(temporary / file.name, file.sha256)


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
