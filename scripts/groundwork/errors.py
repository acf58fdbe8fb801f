"""The error classes: each error has a remedy, and an exit code by what a script would do about it.

Exit codes are part of the command line's contract; a document of ``--json`` has the class as well.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import ClassVar


class MegabuildError(Exception):
    """Something the user can act on; shown without a traceback.

    `remedy`: what the user can do about it; empty where nothing helps.
    """

    exit_code: ClassVar[int] = 1
    #: for scripts: what failed and where, as docs/json.md has it; None where there is no more than the message
    failure: Mapping[str, object] | None = None

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class UsageError(MegabuildError):
    """An argument that does not fit: an option, a filter that matches nothing."""

    exit_code = 2


class ConfigError(MegabuildError):
    """An unknown config, or a config or matrix file that cannot be read."""

    exit_code = 3


class PreflightError(MegabuildError):
    """Something a long build would run into later: a missing tool, too little disk or memory."""

    exit_code = 4


class ProviderError(MegabuildError):
    """A build environment cannot be made: no channel, no mirror, no interpreter."""

    exit_code = 5


class IntegrityError(MegabuildError):
    """A file does not match its hash, its lock or its record."""

    exit_code = 6


class IsolationError(MegabuildError):
    """docker, podman or bubblewrap is missing or refused to start."""

    exit_code = 4


class BuildError(MegabuildError):
    """The engine or a build script failed or was killed; see the log."""

    exit_code = 8


class SwapRefused(MegabuildError):
    """The Python swap would have rebuilt something outside the Python side."""

    exit_code = 9


class PackageTestError(MegabuildError):
    """A package was built, but its own test failed."""

    exit_code = 10


class BusyError(MegabuildError):
    """Another run holds the lock of this config."""

    exit_code = 11


class OutOfSpaceError(MegabuildError):
    """The disk is full, or would be."""

    exit_code = 12


class OutOfMemoryError(MegabuildError):
    """A compiler got no memory, or was killed for want of it."""

    exit_code = 13


class VerdictError(MegabuildError):
    """What was looked at is not what it should be, or could not be put back as it was."""

    exit_code = 14


class AuditError(MegabuildError):
    """A source of the audit cannot be read: no answer, a refusal, or an answer that makes no sense."""

    exit_code = 5


class UnknownError(MegabuildError):
    """No fault was found, but the question cannot be answered: there is no GPU, or a source cannot be read."""

    exit_code = 19


class DeadlineError(MegabuildError):
    """``--deadline`` came before everything was done; what is finished is kept."""

    exit_code = 28


class Interrupted(MegabuildError):
    """Ctrl-C, SIGTERM or a closed terminal; everything finished is kept."""

    exit_code = 130


#: What NFS without its lock daemon, and file systems in user space, answer to flock(2).
LOCKLESS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
#: A full disk, or all that a user may have of it.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
)


def of_system(error: OSError) -> MegabuildError | None:
    """Return a system's refusal as an error that the user can act on, or None where it may be a fault of ours."""
    where = f"{error.filename}: " if error.filename else ""
    places = "choose other places: --output for packages and work, MEGABUILD_CACHE for what configs share"
    if error.errno in FULL:
        return OutOfSpaceError(
            f"{where}the disk is full, or has no room for further files",
            f"free some space, or {places}; run again: what is finished is kept",
        )
    if error.errno in LOCKLESS:
        return PreflightError(f"{where}its file system has no locks ({error.strerror})", places)
    if error.errno in _REFUSED and error.filename:
        return PreflightError(f"{where}{error.strerror}", f"check its permissions, or {places}")
    return None
