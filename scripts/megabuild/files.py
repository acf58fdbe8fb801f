"""Small files written in one step, and large ones read again only where something moved."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import platformdirs
import psutil

from megabuild.errors import IntegrityError, OutOfSpaceError, PreflightError, of_system

_SCRATCH = ".scratch-"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder for what configs share: ``MEGABUILD_CACHE``, or the user's cache folder."""
    named = environ.get("MEGABUILD_CACHE", "")
    return Path(named).absolute() if named else platformdirs.user_cache_path("megabuild")


def writable(folder: Path, remedy: str) -> None:
    """Make a folder that is to be written to, and try it.

    Raises
    ------
    PreflightError
        It cannot be made or written to.
    OutOfSpaceError
        There is no room.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        full = of_system(error)
        if isinstance(full, OutOfSpaceError):
            raise full from error
        raise PreflightError(f"{folder} cannot be written to: {error.strerror}", remedy) from error


def write(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the former or the new one, never half of it; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    try:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sha256(path: Path) -> str:
    """Return the sha256 of a file's content, in hex."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def unpack(tarball: Path, folder: Path) -> None:
    """Unpack a tar archive; nothing of it lands outside the folder.

    Raises
    ------
    IntegrityError
        It cannot be read.
    """
    try:
        with tarfile.open(tarball) as archive:
            # Pythons without filters (3.10 before its twelfth micro version) ignore this
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
    except (tarfile.TarError, EOFError) as error:
        raise IntegrityError(
            f"{tarball.name} cannot be unpacked: {error}", "get the archive again"
        ) from error


def modified(path: Path) -> int:
    """Return when a file was last written to, in nanoseconds."""
    return path.stat().st_mtime_ns


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Give a temporary folder below ``folder``; those of processes that were killed are removed first."""
    folder.mkdir(parents=True, exist_ok=True)
    for rest in folder.glob(f"{_SCRATCH}*"):
        owner = rest.name.removeprefix(_SCRATCH).partition("-")[0]
        if not (owner.isdecimal() and psutil.pid_exists(int(owner))):
            shutil.rmtree(rest, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{_SCRATCH}{os.getpid()}-") as name:
        yield Path(name)


def intact(path: Path, *, digest: str, size: int, when: int) -> bool:
    """Say whether a file is what it was when it was looked into; it is read only if it was written to since.

    Parameters
    ----------
    path:
        The file, which may be gone.
    digest:
        Its sha256 in hex.
    size:
        Its size in bytes.
    when:
        Its :func:`modified` at that time.
    """
    try:
        status = path.stat()
        return status.st_size == size and (status.st_mtime_ns == when or sha256(path) == digest)
    except OSError:
        return False


def verified(path: Path, digest: str) -> bool:
    """Say whether a file has a sha256; what was found is noted beside it, so that it need not be read every time."""
    note = path.with_name(f"{path.name}.checked")
    try:
        status = path.stat()
        now = json.dumps([digest, status.st_size, status.st_mtime_ns])
        if note.is_file() and note.read_bytes() == now.encode():
            return True
        if sha256(path) != digest:
            return False
    except OSError:
        return False
    write(note, now)
    return True
