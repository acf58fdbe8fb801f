"""An extension's source archive: its name, its hash, and how it is had from the indexes that pip is configured for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from megabuild import files
from megabuild.errors import IntegrityError, ProviderError
from megabuild.extensions.table import Extension, Variant, release
from megabuild.network.client import Client
from megabuild.network.index import HEADERS, Configured, configured, local_path, offered

_INDEX_SECONDS = 60.0
_LARGEST = 64 << 20  # bytes; the four have up to 0.2 MB


@dataclass(frozen=True, kw_only=True)
class Sdist:
    """A source archive.

    Parameters
    ----------
    name:
        The project on the index: ``torch_scatter``.
    sha256:
        As the matrix has it; empty for a version that the matrix does not name.
    """

    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """As upstream calls it."""
        return f"{self.name}-{self.version}.tar.gz"

    def within(self, folder: Path) -> Path | None:
        """Return where a folder has it: as on the index, or flat as pip leaves it."""
        dashed = self.file_name.replace(self.name, self.name.replace("_", "-"), 1)
        places = (f"{self.name}/{self.file_name}", self.file_name, dashed)
        return next((folder / place for place in places if (folder / place).is_file()), None)

    def check(self, archive: Path, whose: str = "") -> None:
        """Raise an IntegrityError for another file than the matrix names."""
        found = files.sha256(archive)
        if self.sha256 and found != self.sha256:
            raise IntegrityError(
                f"{archive.name}{whose} has sha256 {found[:12]}…, the matrix says {self.sha256[:12]}…",
                "get it again, and look where pip gets it from (pip config list)",
            )


def sdist_of(extension: Extension, variant: Variant) -> Sdist | None:
    """Return the archive that the matrix names, or None for an extension without one."""
    known = release(extension, variant)
    if not known.sha256:
        return None
    return Sdist(name=extension.name, version=known.version, sha256=known.sha256)


def download(wanted: Sequence[Sdist], cache: Path, where: Configured | None = None) -> Path:
    """Return a folder with archives from the indexes that pip is configured to use, fetching those it does not have.

    ``pip download`` itself would run setup.py, which wants PyTorch, only to be told the name that it asked for.

    Parameters
    ----------
    wanted:
        Which ones.
    cache:
        This program's cache folder.
    where:
        The indexes; None for those that pip says.

    Raises
    ------
    ProviderError
        No index answers, or none has such an archive; nothing half-written stays behind.
    IntegrityError
        An archive is not the one that the matrix names.
    """
    folder = cache / "sdists"
    missing = [one for one in wanted if not _is_there(folder / one.file_name, one.sha256)]
    if not missing:
        return folder
    where = where or configured()
    client = Client(seconds=_INDEX_SECONDS, certificates=where.certificates, proxy=where.proxy)
    for one in missing:
        data = _fetched(one, where, client)
        try:
            with files.scratch(folder) as empty:
                (empty / one.file_name).write_bytes(data)
                one.check(empty / one.file_name, " on pip's index")
                (empty / one.file_name).replace(folder / one.file_name)
        except OSError as error:
            raise ProviderError(
                f"cannot write to {folder}: {error.strerror}", "check its permissions and the disk"
            ) from error
    return folder


def _is_there(path: Path, sha256: str) -> bool:
    return path.is_file() and files.sha256(path) == sha256


def _fetched(wanted: Sdist, where: Configured, client: Client) -> bytes:
    found, _ = offered(wanted.name, where, lambda url: client.get(url, headers=HEADERS))
    for file in found:
        if not file.tags and file.version == Version(wanted.version) and file.name.endswith(".tar.gz"):
            local = file.url.startswith("file:")
            return local_path(file.url).read_bytes() if local else client.get(file.url, limit=_LARGEST).body
    raise ProviderError(
        f"pip's index has no {wanted.file_name}", "check pip's configuration (pip config list)"
    )
