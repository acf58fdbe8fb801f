"""Replace a file so that nobody ever sees half of it, and keep what it was at first.

Standard library only, CPython >= 3.10.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def keep_original(path: Path) -> None:
    """Copy PATH to PATH.orig, unless that exists already: it then holds the state before the very first change."""
    original = path.with_name(path.name + ".orig")
    if path.exists() and not original.exists():
        write_atomically(original, path.read_bytes())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash at any moment, sees the old content or the new, never a part."""
    path = path.resolve()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, path.stat().st_mode & 0o7777 if path.exists() else 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
