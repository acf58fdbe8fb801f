"""The folders that builds write in a config's output folder: removed to free the disk, or as untrusted."""

from __future__ import annotations

from pathlib import Path

from groundwork import files
from megabuild.cleaning import size_of
from megabuild.isolation.base import Isolation

#: Subfolders that a run may leave in the state folders of a config and its extensions.
_WORK = ("out", "tmp", "finished", "tests", "tree")
#: The driver's own record of the builds that wrote them, and its content after builds on the host.
_RECORD, _ON_HOST = "isolation", b"host"


def remove_work(state: Path) -> int:
    """Remove a config's compiled tree and rattler-build's output; return the freed bytes."""
    freed = 0
    for folder in (state, *state.glob("pyg/*")):
        for path in (folder / name for name in _WORK):
            if path.exists() and not path.is_symlink():
                freed += size_of(path)
                files.remove(path)
    return freed


def separate_work(state: Path, isolation: Isolation) -> bool:
    """Remove isolated builds' work before a build on the host, which would run the programs in it; return whether.

    Work without a record counts as isolated. An isolated build may use the host's work.
    """
    record = files.read_untrusted(state / _RECORD)
    removed = False
    if isolation.is_host and record != _ON_HOST:
        removed = remove_work(state) > 0
    files.write(state / _RECORD, _ON_HOST if isolation.is_host else b"isolated")
    return removed
