"""Atomic writes, locks, temporary folders, and checksums computed again only where a file has changed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import tarfile
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import filelock
import psutil

from groundwork.errors import LOCKLESS, IntegrityError, OutOfSpaceError, PreflightError, of_system
from groundwork.user_folders import cache_folder as cache_folder

_SCRATCH = ".scratch-"
#: The first date that a zip file can hold: 1980-01-01, in seconds since 1970.
OLDEST_IN_ZIP = 315532800


def writable(folder: Path, remedy: str) -> None:
    """Create a folder, and check that it can be written to; raises PreflightError, OutOfSpaceError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        full = of_system(error)
        if isinstance(full, OutOfSpaceError):
            raise full from error
        raise PreflightError(f"{folder} cannot be written to: {error.strerror}", remedy) from error


@contextlib.contextmanager
def replacing(target: Path, name: str = "") -> Iterator[Path]:
    """Give a path beside ``target``, which it replaces in the end; creates their folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(name or f".tmp-{uuid.uuid4().hex[:8]}-{target.name}")
    beside.unlink(missing_ok=True)
    try:
        yield beside
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def write(path: Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Write a file atomically, with permissions other than the umask's where ``mode`` is given; creates its folder."""
    with replacing(path, f"{path.name}.{os.getpid()}-{threading.get_ident()}.new") as beside:
        with beside.open("xb") as file:  # never through a link that somebody has put there
            file.write(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            beside.chmod(mode)


def open_regular(path: Path, *, below: Path | None = None, buffering: int = -1) -> BinaryIO:
    """Open for reading a file that somebody else may have made: links are not followed, and a pipe does not block.

    Of the folders between it and ``below`` none may be a link, either.

    Raises IntegrityError, OSError: It is a link, a pipe, a device or a folder; it cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.ExitStack() as opened:
        folder, name = None, str(path)
        if below is not None:
            *names, name = path.relative_to(below).parts
            for part, more in ((str(below), 0), *((part, os.O_NOFOLLOW) for part in names)):
                folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | more, dir_fd=folder)
                opened.callback(os.close, folder)
        try:
            descriptor = os.open(name, flags, dir_fd=folder)
        except OSError as error:
            if path.is_symlink():
                raise IntegrityError(f"{path} is a symbolic link, not a file", "delete it") from error
            raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IntegrityError(f"{path} is not a regular file", "delete it")
    return os.fdopen(descriptor, "rb", buffering)


def read_untrusted(path: Path, *, below: Path | None = None) -> bytes | None:
    """Return the content of a file that a build may have made; None where :func:`open_regular` fails."""
    try:
        with open_regular(path, below=below) as file:
            return file.read()
    except (OSError, IntegrityError):
        return None


def copy(source: Path, target: Path) -> None:
    """Copy a regular file with its date into place atomically."""
    with replacing(target) as beside:
        with open_regular(source) as old, beside.open("xb") as new:
            shutil.copyfileobj(old, new, 1 << 20)
            dated = os.fstat(old.fileno())
        os.utime(beside, ns=(dated.st_atime_ns, dated.st_mtime_ns))


def link(source: Path, target: Path) -> None:
    """Hard-link a file into place atomically; copy it where the file system cannot."""
    # the context's removal matters: where both are the same file already, a rename does nothing
    with replacing(target) as beside:
        try:
            os.link(source, beside)
        except OSError:
            shutil.copy2(source, beside)


def move(source: Path, target: Path) -> None:
    """Move a file to another folder atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy(source, target)


def remove(path: Path) -> None:
    """Remove a folder or file; renamed first, so that a kill in between leaves nothing that looks complete."""
    if path.is_dir() and not path.is_symlink():
        path = path.rename(path.with_name(f".removed-{uuid.uuid4().hex[:8]}"))
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file's content to the disk (fsync)."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sha256(path: Path) -> str:
    """Return the sha256 of a file's content, in hex."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def intact(path: Path, *, digest: str, size: int, when: int) -> bool:
    """Return whether a file is unchanged; it is hashed only if its modification time differs."""
    try:
        status = path.stat()
        return status.st_size == size and (status.st_mtime_ns == when or sha256(path) == digest)
    except OSError:
        return False


def verified(path: Path, digest: str) -> bool:
    """Return whether a file has a sha256; the result is cached beside it, so that it need not be hashed every time."""
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


def unpack(tarball: Path, folder: Path) -> None:
    """Unpack a tar archive, nothing of it outside the folder; raises IntegrityError where it cannot be read."""
    try:
        with tarfile.open(tarball) as archive:
            # Pythons without filters (3.10 before its twelfth micro version) ignore this
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
    except (tarfile.TarError, EOFError) as error:
        reason = f"{tarball.name} cannot be unpacked: {error}"
        raise IntegrityError(reason, "get the archive again") from error


class FileLock(filelock.FileLock):
    """A lock file; where its file system has no locks (NFS without its lock daemon), that is a PreflightError."""

    def acquire(self, *args: Any, **options: Any) -> filelock.AcquireReturnProxy[Any]:
        """Hold the lock, as the library does."""
        try:
            return super().acquire(*args, **options)
        except OSError as error:
            lockless = of_system(OSError(error.errno, error.strerror, self.lock_file))
            if error.errno not in LOCKLESS or lockless is None:
                raise
            raise lockless from error


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Give a temporary folder below ``folder``; those of processes that were killed are removed first."""
    folder.mkdir(parents=True, exist_ok=True)
    for rest in folder.glob(f"{_SCRATCH}*-*"):
        owner = rest.name.removeprefix(_SCRATCH).partition("-")[0]
        # a folder of somebody's may be called like that
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(rest, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{_SCRATCH}{os.getpid()}-") as name:
        yield Path(name)
