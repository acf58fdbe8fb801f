"""Names the file that a reader rejects. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groundwork.errors import IntegrityError, of_text

#: Modules of readers, whose exceptions share no base class.
_READERS = re.compile(r"_csv|_lzma|configparser|json|msgspec|ruamel|struct|tarfile|zipfile|zlib|zstandard")


@contextmanager
def reading(path: Path, remedy: str = "replace the file") -> Iterator[None]:
    """Convert readers' errors to IntegrityError, around code that reads this one file.

    Other errors pass: they may be a bug of megabuild, and must not be blamed on the file.

    Raises IntegrityError: A reader does not accept the file's content.
    """
    try:
        yield
    except Exception as error:
        # the digits of a number are limited, and a limit of nested values has no class of its own
        is_too_long = str(error).startswith("Exceeds the limit (4")
        is_rejected = isinstance(error, (EOFError, RecursionError, UnicodeError)) or is_too_long
        if is_rejected or _READERS.match(type(error).__module__):
            damaged = IntegrityError(f"{path}: damaged: {error or type(error).__name__}", remedy)
            raise (
                of_text(str(error)) or damaged
            ) from error  # a limit of this machine says nothing about the file
        raise
