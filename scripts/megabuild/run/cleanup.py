"""What a finished run may leave behind on the disk: the packages are published, and nothing goes on from the rest."""

from __future__ import annotations

from groundwork import files
from megabuild.cleaning import size_of
from megabuild.plan.options import Options
from megabuild.run.session import locked

#: In the folders of PyTorch's task and of each extension's.
_WORK = ("out", "tmp", "finished", "tests", "tree", "tree.former")


def remove_trees(options: Options) -> int:
    """Remove the compiled tree of a config that is done, and what the engine has kept of it; returns the bytes.

    Packages, logs, records and the object cache stay. Raises BusyError: Somebody else builds it by now.
    """
    freed = 0
    with locked(options):
        for folder in (options.state, *options.state.glob("pyg/*")):
            for path in (folder / name for name in _WORK):
                if path.is_symlink() or not path.exists():
                    continue
                freed += size_of(path)
                files.remove(path)
    return freed
