"""What a remote wheel contains: read from its end, which takes some 100 kB, and cached."""

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

_TIMEOUTS = Timeouts(connect=5.0, read=20.0, total=60.0)
_DOWNLOAD_TIMEOUTS = Timeouts(read=60.0, total=7200.0)


@dataclass(frozen=True, kw_only=True)
class Content:
    """A wheel's metadata and members, known without downloading it."""

    #: sha256, and bytes
    sha256: str
    size: int
    metadata: str  #: its METADATA
    #: bytes of all files in it, unpacked; of two of one name the later one, as it is installed
    members: Mapping[str, int]


_CONTENTS = msgspec.json.Decoder(Content)


class Contents:
    """What the wheels of some indexes contain.

    Cached in a folder; where that is None there is no cache, and no wheel is downloaded as a whole.
    """

    def __init__(self, where: Configured, folder: Path | None) -> None:
        self._client, self._for_files = where.client(_TIMEOUTS), where.client(_DOWNLOAD_TIMEOUTS)
        self._folder = folder

    @property
    def fetched(self) -> int:
        """Bytes downloaded so far."""
        return self._client.fetched + self._for_files.fetched

    def of(self, file: File) -> Content:
        """Return a wheel's content, from the cache where it is there; raises ProviderError."""
        if self._folder and (note := noted(self._folder, file.sha256)):
            return note
        try:
            seen = self._read(file)
        except (*BROKEN, OSError) as error:
            raise ProviderError(
                f"{file.name} is not a wheel, or a broken one: {error}",
                "Look where pip gets it from (pip config list).",
            ) from error
        if self._folder:
            files.write(_note_file(self._folder, seen.sha256), msgspec.json.encode(seen))
        return seen

    def _read(self, file: File) -> Content:
        if file.url.startswith("file:"):
            return _of_file(local_path(file.url), file.sha256)
        try:
            return _content(inside(self._client, file), file.sha256)
        except NetworkError as error:
            if error.status not in (200, 416, 501) or self._folder is None:
                raise
            # that server has no range requests
            with files.scratch(self._folder) as temporary:
                self._for_files.save(file.url, temporary / file.name)
                return _of_file(temporary / file.name, file.sha256)


def noted(folder: Path, sha256: str) -> Content | None:
    """Return a wheel's cached content, or None."""
    try:
        return _CONTENTS.decode(_note_file(folder, sha256).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def required(content: Content) -> list[Requirement]:
    """Return the requirements in a wheel's metadata, malformed ones left out."""
    requirements = []
    for line in parse_email(content.metadata)[0].get("requires_dist", []):
        try:
            requirements.append(Requirement(line))
        except InvalidRequirement:
            continue
    return requirements


def requires_python(content: Content) -> str:
    """Return Requires-Python of a wheel's metadata: ``>=3.10``; empty for all."""
    return parse_email(content.metadata)[0].get("requires_python", "")


def _of_file(path: Path, sha256: str) -> Content:
    digest = files.sha256(path)
    if sha256 not in ("", digest):
        raise ValueError(f"its sha256 is {digest}, and the index says {sha256}")
    return _content(of_file(path), digest)


def _content(seen: Directory, sha256: str) -> Content:
    return Content(
        sha256=sha256,
        size=seen.length,
        metadata=seen.content.decode(errors="replace"),
        members={info.filename: info.file_size for info in seen.members if not info.is_dir()},
    )


def _note_file(folder: Path, sha256: str) -> Path:
    return folder / "contents" / f"{sha256}.json"
