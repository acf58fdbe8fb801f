"""Names the file that a reader rejects. Standard library only."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groundwork.errors import IntegrityError, MegabuildError, of_system, of_text

#: Modules of readers, whose exceptions share no base class.
_READERS = re.compile(r"_csv|_lzma|configparser|json|msgspec|ruamel|struct|tarfile|zipfile|zlib|zstandard")
#: Errors of names that no file system can have next to each other, such as a file and a file below it.
_OF_NAMES = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG})


@contextmanager
def reading(path: Path, remedy: str = "replace the file") -> Iterator[None]:
    """Convert readers' errors to IntegrityError, around code that reads this one file.

    Other errors pass: they may be a bug of megabuild, and must not be blamed on the file.

    Raises IntegrityError: A reader does not accept the file's content.
    """
    try:
        yield
    except Exception as error:
        if not _is_rejection(error):
            raise
        raise _explained(error, f"{path}: damaged", remedy) from error


@contextmanager
def reading_archive(path: Path) -> Iterator[None]:
    """Convert errors of any class to IntegrityError, around code that only unpacks or repacks this one archive.

    rattler raises a plain ``OSError`` for a cut file, and an archive may lack any file that the code reads.

    Raises IntegrityError: The archive is damaged, or lacks a file.
    """
    try:
        yield
    except (MemoryError, MegabuildError):
        raise
    except Exception as error:
        if _is_of_system(error):
            raise
        raise _explained(error, f"{path}: damaged archive", "download or build it again") from error


def _is_rejection(error: Exception) -> bool:
    if isinstance(error, (EOFError, RecursionError, UnicodeError)):
        return True
    # the digits of a number are limited, and a limit of nested values has no class of its own
    if str(error).startswith("Exceeds the limit (4"):
        return True
    return bool(_READERS.match(type(error).__module__))


def _is_of_system(error: Exception) -> bool:
    """Return whether an error is about permissions, disk or memory, which says nothing about an archive."""
    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError) or error.errno in _OF_NAMES:
        return False
    return bool(error.filename or of_system(error))


def _explained(error: Exception, headline: str, remedy: str) -> MegabuildError:
    limit = of_text(str(error))  # a limit of this machine says nothing about the file
    if limit is not None:
        return limit
    reason = str(error)
    if isinstance(error, OSError) and error.errno in _OF_NAMES and error.filename:
        # without the folder, which is a temporary one
        reason = f"{error.strerror}: {Path(os.fsdecode(error.filename)).name}"
    return IntegrityError(f"{headline}: {reason or type(error).__name__}", remedy)
