"""The object cache of a run: whether it has objects, and whether it is still the one that a former run filled."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from groundwork import files
from groundwork.errors import IntegrityError
from megabuild.isolation.base import Isolation
from megabuild.plan.options import NO_OBJECT_CACHE, Options, object_cache_program

#: In the cache's folder, with which it goes: its identity. Builds can write it, so only estimates depend on it.
_MARK = ".megabuild-cache"
_BYTES = 16
#: Files that ccache keeps after ``ccache --clear``.
_WITHOUT_OBJECTS = {_MARK, "stats", "CACHEDIR.TAG", ".cleaned", "ccache.conf"}


def has_object_cache(options: Options, isolation: Isolation) -> bool:
    """Return whether an isolation's object cache exists, and is used.

    Each run makes its folder. Of ccache's, one without objects is of a machine without ccache, or of a run that has
    just begun after the objects were deleted; other programs keep theirs elsewhere.
    """
    launcher = object_cache_program()
    folder = options.objects_folder(isolation)
    if launcher == NO_OBJECT_CACHE:
        return False
    if Path(launcher).name.startswith("ccache"):
        with suppress(OSError):  # another user's, or missing
            return _has_objects(folder)
    return folder.is_dir()


def _has_objects(folder: Path) -> bool:
    """Return whether ccache's folder has a file besides those without objects.

    Raises OSError: A folder in it cannot be read.
    """

    def fail(error: OSError) -> None:
        raise error

    return any(not _WITHOUT_OBJECTS.issuperset(names) for _, _, names in os.walk(folder, onerror=fail))


def read_identity(options: Options, isolation: Isolation) -> str:
    """Return the identity of an isolation's object cache; empty if the cache has none, or is not used.

    A cache that was deleted, and filled by other configs since, has another one.
    """
    if object_cache_program() == NO_OBJECT_CACHE:
        return ""
    try:
        with files.open_regular(options.objects_folder(isolation) / _MARK) as file:
            return file.read(2 * _BYTES).decode("ascii")
    except (OSError, IntegrityError, UnicodeDecodeError):
        return ""


def identify(options: Options, isolation: Isolation) -> str:
    """Return the identity of an isolation's object cache, and give it one if it has none.

    Empty if the cache is not used, or cannot be marked: then plans expect no objects in it.
    """
    identity = read_identity(options, isolation)
    if identity or object_cache_program() == NO_OBJECT_CACHE:
        return identity
    with suppress(OSError):
        files.write(options.objects_folder(isolation) / _MARK, secrets.token_hex(_BYTES), mode=0o644)
    return read_identity(options, isolation)
