"""Source archives from the indexes that pip is configured to use: behind a firewall, the one place that has them.

``pip download`` itself would run setup.py, which wants PyTorch, only to be told the name that it asked for.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from megabuild.errors import IntegrityError, ProviderError
from megabuild.network.client import Client
from megabuild.network.index import HEADERS, Configured, configured, local_path, offered

_SECONDS = 60.0
_LARGEST = 64 << 20  # bytes; the four have up to 0.2 MB


@dataclass(frozen=True, kw_only=True)
class Sdist:
    """A source archive that a recipe wants.

    Parameters
    ----------
    name:
        The project on the index: ``torch_scatter``.
    sha256:
        As the matrix has it.
    """

    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """As upstream calls it."""
        return f"{self.name}-{self.version}.tar.gz"


def download(wanted: Sequence[Sdist], cache: Path, where: Configured | None = None) -> Path:
    """Return a folder with the archives, downloading those that it does not have yet.

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
    missing = [sdist for sdist in wanted if _sha256(folder / sdist.file_name) != sdist.sha256]
    if not missing:
        return folder
    where = where or configured()
    client = Client(seconds=_SECONDS, certificates=where.certificates, proxy=where.proxy)
    for sdist in missing:
        data = _fetched(sdist, where, client)
        found = hashlib.sha256(data).hexdigest()
        if found != sdist.sha256:
            raise IntegrityError(
                f"{sdist.file_name} on pip's index has sha256 {found[:12]}…, the matrix says {sdist.sha256[:12]}…",
                "look where pip gets it from (pip config list)",
            )
        _write(folder / sdist.file_name, data)
    return folder


def _fetched(sdist: Sdist, where: Configured, client: Client) -> bytes:
    files, _ = offered(sdist.name, where, lambda url: client.get(url, headers=HEADERS))
    for file in files:
        if not file.tags and file.version == Version(sdist.version) and file.name.endswith(".tar.gz"):
            local = file.url.startswith("file:")
            return local_path(file.url).read_bytes() if local else client.get(file.url, limit=_LARGEST).body
    raise ProviderError(
        f"pip's index has no {sdist.file_name}", "check pip's configuration (pip config list)"
    )


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".sdist-")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        raise ProviderError(f"cannot write {path}: {error.strerror}", "check its permissions and the disk") from error


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
