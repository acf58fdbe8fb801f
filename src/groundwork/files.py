"""Atomic writes, locks, temporary folders, and checksums that are computed again only for changed files."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import filelock
import msgspec
import psutil
from filelock import Timeout

from groundwork.errors import BusyError, IntegrityError, OutOfSpaceError, PreflightError, name_lock, of_system

Record = TypeVar("Record")
_SCRATCH = ".scratch-"
_STALE_SECONDS = 60.0
_UNFINISHED = re.compile(r"\.(\d{1,10})-\d+\.new$")
_REMOVED = re.compile(r"\.removed-[0-9a-f]{8}-?(?P<name>.*)", re.DOTALL)
_LONGEST = 200  # bytes of a former name, so that the new one has at most 255
#: The earliest date in a zip file, 1980-01-01, in seconds since 1970.
OLDEST_IN_ZIP = 315532800


def writable(folder: Path, remedy: str) -> None:
    """Create a folder and check that it is writable; raises PreflightError, OutOfSpaceError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        full = of_system(error)
        if isinstance(full, OutOfSpaceError):
            raise full from error
        raise PreflightError(f"{folder} cannot be written to: {error.strerror}", remedy) from error


def existing_part(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    while not os.path.lexists(folder):
        folder = folder.parent
    return folder


def _is_gone(pid: str) -> bool:
    """Return whether a word of a file's name is the id of a process that has ended; other words are none."""
    return pid.isdecimal() and not psutil.pid_exists(int(pid))


def check_creatable(folder: Path, remedy: str) -> None:
    """Check that a folder is writable or can be created, without creating it; raises PreflightError."""
    existing = existing_part(folder)
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise PreflightError(f"{folder} cannot be written to: {existing} is not writable", remedy)


class FileLock(filelock.FileLock):
    """A lock on a file, which the kernel frees when its process ends."""

    def acquire(self, *arguments: Any, **options: Any) -> filelock.AcquireReturnProxy[Any]:
        """Take the lock; raises Timeout, and OSError with the file's name, which the kernel does not give."""
        try:
            return super().acquire(*arguments, **options)
        except Timeout:
            raise
        except OSError as error:
            name_lock(error, self.lock_file)
            raise


@contextlib.contextmanager
def replacing(target: Path, name: str = "") -> Iterator[Path]:
    """Yield a temporary path in the folder of ``target``, created if missing; at the end it replaces ``target``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not name:
        _remove_stale(target)
        name = f".tmp-{os.getpid()}-{uuid.uuid4().hex[:8]}-{target.name}"
    temporary = target.with_name(name)
    temporary.unlink(missing_ok=True)
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_stale(target: Path) -> None:
    """Remove temporary files of killed processes that were to replace ``target``: they may have gigabytes."""
    for leftover in target.parent.glob(f".tmp-*-{glob.escape(target.name)}"):
        owner = leftover.name.split("-")[1]
        with contextlib.suppress(OSError):
            # processes of other hosts are unknown here, but change their files
            age = time.time() - leftover.lstat().st_ctime
            if age > _STALE_SECONDS and _is_gone(owner):
                leftover.unlink()


def write(path: Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Write a file atomically, and create its folder; ``mode`` overrides the umask's permissions."""
    if isinstance(content, str):
        content = content.encode()
    with replacing(path, f"{path.name}.{os.getpid()}-{threading.get_ident()}.new") as temporary:
        with temporary.open("xb") as file:  # fails on a link that another program has made
            file.write(content)
        if mode is not None:
            temporary.chmod(mode)


def remove_unfinished(folder: Path, *, age: float = 0.0) -> None:
    """Remove temporary files of :func:`write` in a folder, whose processes were killed.

    ``age``: seconds since the last change, for a folder that other hosts share, whose processes are unknown here.
    """
    for path in folder.glob("*.new"):
        match = _UNFINISHED.search(path.name)
        if match is None or not _is_gone(match[1]):
            continue
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime >= age:
                path.unlink()


def open_regular(path: Path, *, below: Path | None = None, buffering: int = -1) -> BinaryIO:
    """Open an untrusted file for reading: links are not followed, and a pipe does not block.

    No folder between ``below`` and the file may be a link, either.

    Raises IntegrityError for a link, pipe, device or folder; OSError for an unreadable file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.ExitStack() as opened:
        folder = None
        name = str(path)
        if below is not None:
            *names, name = path.relative_to(below).parts
            folder = _open_folder(below, names, opened)
        try:
            descriptor = os.open(name, flags, dir_fd=folder)
        except OSError as error:
            if path.is_symlink():
                raise IntegrityError(
                    f"{path} is a symbolic link, not a file", "delete it, or replace it by a file"
                ) from error
            raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IntegrityError(f"{path} is not a regular file", "delete it, or replace it by a file")
    return os.fdopen(descriptor, "rb", buffering)


def _open_folder(below: Path, names: Iterable[str], opened: contextlib.ExitStack) -> int:
    """Open a folder by the names that lead to it, none of which may be a link; ``opened`` closes it."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    folder = os.open(below, flags)
    opened.callback(os.close, folder)
    for name in names:
        folder = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
        opened.callback(os.close, folder)
    return folder


def read_text(path: Path, *, most: int = 64 << 20, errors: str = "strict") -> str:
    """Return a foreign file's text; raises OSError also for a pipe, a device, and more than ``most`` bytes."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        raise OSError(errno.ENXIO, f"not a file of at most {most:,} bytes", str(path))
    return path.read_text(encoding="utf-8", errors=errors)


def read_record(path: Path, decoder: msgspec.json.Decoder[Record]) -> Record | None:
    """Return the content of a JSON file; None if it is missing, unreadable or of another type."""
    try:
        return decoder.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_untrusted(path: Path, *, below: Path | None = None) -> bytes | None:
    """Return the content of a file that a build may have made; None if :func:`open_regular` fails."""
    try:
        with open_regular(path, below=below) as file:
            return file.read()
    except (OSError, IntegrityError):
        return None


def replace_link(link: Path, target: str) -> None:
    """Make or replace a symbolic link atomically; raises OSError with its name, as the system's has the target's."""
    with scratch(link.parent) as folder:
        new = folder / link.name
        try:
            new.symlink_to(target)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(link)) from error
        os.replace(new, link)


def copy(source: Path, target: Path) -> None:
    """Copy a regular file and its date atomically."""
    with replacing(target) as temporary:
        with open_regular(source) as old, temporary.open("xb") as new:
            shutil.copyfileobj(old, new, 1 << 20)
            dated = os.fstat(old.fileno())
        os.utime(temporary, ns=(dated.st_atime_ns, dated.st_mtime_ns))


def link(source: Path, target: Path) -> None:
    """Hard-link a file atomically; copy it if the file system has no hard links."""
    # rename(2) does nothing if both are already the same file; ``replacing`` then deletes the temporary name
    with replacing(target) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copy2(source, temporary)


def move(source: Path, target: Path) -> None:
    """Move a file to another folder atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy(source, target)
        source.unlink()


def remove(path: Path) -> Path | None:
    """Remove a folder or file. A folder is renamed first: if killed halfway, it does not look complete.

    The new name ends with the former one, by which :func:`former_name` recognizes the rest of a killed removal.
    Returns that rest, if this user may not remove all files in it; else None.
    """
    if path.is_dir() and not path.is_symlink():
        if former_name(path.name) is None:
            name = os.fsdecode(os.fsencode(path.name)[:_LONGEST])
            path = path.rename(path.with_name(f".removed-{uuid.uuid4().hex[:8]}-{name}"))
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return path if os.path.lexists(path) else None


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk through a folder as ``os.walk`` does; a missing one has nothing.

    Raises OSError: A folder cannot be read: it would be taken for an empty one.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    return os.walk(folder, onerror=refuse)


def everything_below(folder: Path) -> Iterator[Path]:
    """Yield all files, folders and links below a folder; raises OSError as :func:`walk`."""
    for here, folders, names in walk(folder):
        for name in (*folders, *names):
            yield Path(here, name)


def below(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted, and links but for those to folders; raises OSError as :func:`walk`."""
    found: list[Path] = []
    for here, _, names in walk(folder):
        found += map(Path(here).joinpath, names)
    return sorted(found)


def former_name(name: str) -> str | None:
    """Return the former name of a folder that :func:`remove` was removing, maybe cut or empty; None of another one."""
    match = _REMOVED.fullmatch(name)
    if match is None:
        return None
    return match["name"]


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
    """Return whether a file is unchanged; hash it only if its modification time differs."""
    try:
        status = path.stat()
        if status.st_size != size:
            return False
        return status.st_mtime_ns == when or sha256(path) == digest
    except OSError:
        return False


def verified(path: Path, digest: str) -> bool:
    """Return whether a file has this sha256; the answer is cached in the file ``NAME.checked``."""
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
    sync(path)  # after a power cut, the note would vouch for a file of zeros with the same size and date
    write(note, now)
    return True


@contextlib.contextmanager
def sole_user(lock_file: Path, busy: str) -> Iterator[None]:
    """Hold a lock; raises BusyError with the message ``busy`` if another process holds it."""
    lock = FileLock(lock_file, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise BusyError(busy, "wait for it") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder in ``folder``; first remove the temporary folders of processes that were killed."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(f"{_SCRATCH}*-*"):
        owner = leftover.name.removeprefix(_SCRATCH).partition("-")[0]
        if _is_gone(owner):
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{_SCRATCH}{os.getpid()}-") as name:
        yield Path(name)
