"""Replace a file atomically, and keep its first version.

Standard library only, CPython >= 3.10.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def keep_original(path: Path) -> None:
    """Copy PATH to PATH.orig, unless PATH.orig exists: it has the content before the first change."""
    original = path.with_name(path.name + ".orig")
    if path.exists() and not original.exists():
        write_atomically(original, path.read_bytes())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers, also after a crash, see the old content or the new, never a part."""
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
