"""The error classes. Each has an exit code, and each error a remedy.

Scripts rely on the exit codes (docs/json.md); the error document of ``--json`` also has the class's name.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar


class FailureKind(str, Enum):
    """The cause of a failed build, for scripts (docs/json.md)."""

    COMPILER = "compiler"
    LINKER = "linker"
    CMAKE = "cmake"
    PYTHON = "python"
    SHELL = "shell"
    OTHER = "other"
    MEMORY = "memory"
    DISK = "disk"
    KILLED = "killed"
    NETWORK = "network"
    ENVIRONMENT = "environment"  #: a solved environment could not be created
    SOLVE = "solve"
    UPSTREAM_TESTS = "upstream_tests"  #: PyTorch's own tests


@dataclass(frozen=True, kw_only=True)
class FailureDetails:
    """Details of a failed build, for scripts (docs/json.md)."""

    kind: FailureKind
    what: str = ""  #: the failed step
    package: str = ""  #: empty for staging
    phase: str = ""  #: of the build script
    file: str = ""  #: of the first error, as are the next three
    line: int | None = None
    message: str = ""
    excerpt: Sequence[str] = ()
    command: str = ""  #: the failed step's
    outputs: str = ""  #: of ninja's failed step
    tests: Sequence[str] = ()  #: those of PyTorch's own tests that failed
    log: Path | None = None
    again: Path | None = None  #: program that repeats the failed step
    enter: Path | None = None  #: program that opens a shell in the failed build's environment

    def to_dict(self) -> dict[str, object]:
        """Return the details for JSON."""
        document = {**vars(self), "kind": self.kind.value}
        document["excerpt"] = list(self.excerpt)
        document["tests"] = list(self.tests)
        for name in ("log", "again", "enter"):
            path = document[name]
            document[name] = str(path) if path else None
        return document


class MegabuildError(Exception):
    """An error the user can act on; shown without a traceback.

    `message` begins with the thing that is wrong. `remedy` begins with a verb; it is printed after "hint: ".
    """

    exit_code: ClassVar[int] = 1
    failure: FailureDetails | None = None  #: for a failed build
    #: file names of the packages that failed with it
    packages: frozenset[str] = frozenset()

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class UsageError(MegabuildError):
    """An option or argument has a wrong value, or a filter matches nothing."""

    exit_code = 2


class ConfigError(MegabuildError):
    """A config is unknown, or a config or matrix file is unreadable."""

    exit_code = 3


class PreflightError(MegabuildError):
    """A long build would fail later: a tool is missing, or disk or memory is too small."""

    exit_code = 4


class ProviderError(MegabuildError):
    """A build environment cannot be made: channel, mirror or interpreter is missing."""

    exit_code = 5


class IntegrityError(MegabuildError):
    """A file does not match its hash, its lock or its record."""

    exit_code = 6


class IsolationError(MegabuildError):
    """docker, podman or bubblewrap is missing or does not start."""

    exit_code = 4


class BuildError(MegabuildError):
    """The build engine or a build script failed or was killed; see the log."""

    exit_code = 8


class SwapRefused(MegabuildError):
    """The Python swap would recompile objects that do not depend on Python."""

    exit_code = 9


class PackageTestError(MegabuildError):
    """A package was built, but its test failed."""

    exit_code = 10


class BusyError(MegabuildError):
    """Another process holds the lock."""

    exit_code = 11


class OutOfSpaceError(MegabuildError):
    """The disk is full or too small."""

    exit_code = 12


class OutOfMemoryError(MegabuildError):
    """A compiler ran out of memory, or the kernel killed it for that reason."""

    exit_code = 13

    def __init__(self, message: str, remedy: str = "", *, fewer_jobs_help: bool = True) -> None:
        super().__init__(message, remedy)
        self.fewer_jobs_help = fewer_jobs_help  #: the machine's memory ran out, not that of one program


class VerdictError(MegabuildError):
    """An inspected package or environment is faulty, or could not be restored."""

    exit_code = 14


class AuditError(MegabuildError):
    """An audit source cannot be read: no answer, a refusal, or a malformed answer."""

    exit_code = 5


class UpstreamTestError(MegabuildError):
    """PyTorch's own tests failed after the recipe's; or packages to upload were never tested."""

    exit_code = 15


class UnknownError(MegabuildError):
    """No fault was found, but a question has no answer: there is no GPU, or a source is unreadable."""

    exit_code = 19


class DeadlineError(MegabuildError):
    """The run stopped at its ``--deadline``; finished packages and objects are kept."""

    exit_code = 28


class Interrupted(MegabuildError):
    """Ctrl-C, SIGTERM or a closed terminal stopped the run; finished packages and objects are kept."""

    exit_code = 130


#: The disk, the user's quota or the limit of a file's size is reached.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO,
     errno.EEXIST}
)  # fmt: skip
#: Errors of disks, network file systems and limits, which name no file while a file is read, and of missing locks.
_OUTSIDE = frozenset(
    {errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOLCK, errno.ENOSYS,
     errno.EOPNOTSUPP}
)  # fmt: skip
#: Errors of a lock on NFS without its lock daemon, Lustre without ``-o flock``, and some user-space file systems.
_LOCKLESS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
#: A system error in the text of a library in Rust, or of Python.
_NUMBERED = re.compile(r"(?:\(os error |\bOs \{ code: |\[Errno )(\d+)")
#: zstandard's, threads' and the loader's words; none has a class of its own.
_NO_MEMORY = re.compile("not enough memory|^can't start new thread|failed to map segment")


def of_text(text: str, path: str | None = None) -> MegabuildError | None:
    """Return the error to show for a limit that a library has met, by its message, as :func:`of_system` does."""
    if _NO_MEMORY.search(text):
        remedy = "free memory, or raise the limits (ulimit -v -u)"
        return PreflightError("not enough memory for megabuild itself", remedy)
    code = _NUMBERED.search(text)
    if code is None:
        return None
    number = int(code[1])
    return of_system(OSError(number, os.strerror(number), path))


def of_system(error: OSError) -> MegabuildError | None:
    """Return the error to show for a system error, or None if it may be a bug of megabuild."""
    if isinstance(error, shutil.Error):
        return _of_copies(error)
    subject = ""
    if error.filename:
        subject = f"{error.filename}: "
    options = "--output for builds, MEGABUILD_CACHE for the shared cache"
    other_disk = f"use another disk ({options})"
    if error.errno in FULL:
        return OutOfSpaceError(
            f"{subject}{error.strerror}",
            f"free some space, raise the limit (ulimit -f) or {other_disk}, and run again; finished work is kept",
        )
    if error.errno == errno.ENOLCK:
        remedy = f"use a folder whose file system has locks: {options}"
        return PreflightError(f"{subject or 'a lock: '}its file system has no locks", remedy)
    checks = "the disk (dmesg) and the limits of processes and files (ulimit -u -n)"
    if error.errno in _REFUSED and error.filename:
        checks = "the path and its permissions"
    elif error.errno not in _OUTSIDE:
        return None
    return PreflightError(f"{subject}{error.strerror}", f"check {checks}, or {other_disk}")


def _of_copies(error: shutil.Error) -> MegabuildError | None:
    """Return the error to show for the first file that ``shutil.copytree`` could not copy."""
    match error.args:
        case ([(_, target, reason), *_],):
            return of_text(str(reason), str(target))
        case _:
            return None


def name_lock(error: OSError, file: str) -> None:
    """Give the error of a lock its file, which the kernel does not name, and one number for all that lacks locks."""
    error.filename = error.filename or file
    if error.errno in _LOCKLESS:
        error.errno = errno.ENOLCK
        error.strerror = os.strerror(errno.ENOLCK)
