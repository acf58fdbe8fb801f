"""The folders that builds write in a config's output folder: removed to free the disk, or as untrusted."""

from __future__ import annotations

from pathlib import Path

from groundwork import files
from megabuild.cleaning import size_of
from megabuild.isolation.base import Isolation
from megabuild.plan import work_record

#: Subfolders that a run may leave in the state folders of a config and its extensions.
_WORK = ("out", "tmp", "finished", "tests", "tree")


def remove_work(state: Path) -> int:
    """Remove a config's compiled tree and rattler-build's output; return the freed bytes."""
    freed = 0
    for folder in (state, *state.glob("pyg/*")):
        for path in (folder / name for name in _WORK):
            if path.exists() and not path.is_symlink():
                freed += size_of(path)
                if rest := files.remove(path):
                    freed -= size_of(rest)
    return freed


def separate_work(state: Path, isolation: Isolation) -> bool:
    """Remove isolated builds' work before a build on the host, which would run the programs in it; return whether."""
    removed = False
    if work_record.is_foreign(state, isolation):
        removed = remove_work(state) > 0
    work_record.write_record(state, isolation)
    return removed
