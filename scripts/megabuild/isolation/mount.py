"""One folder or file that a build may see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from megabuild.errors import IsolationError


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder or file of the host and the place where the build sees it.

    Parameters
    ----------
    source:
        Path on the host; must exist when the build starts.
    target:
        Absolute path inside the isolation; the host isolation ignores it.
    writable:
        Whether the build may write there. What it writes belongs to the calling user.
    """

    source: Path
    target: str
    writable: bool = False


def require_sources(mounts: Iterable[Mount]) -> None:
    """Check that every mount has a source and an absolute target.

    docker would otherwise name the daemon's view of the problem, bubblewrap an errno.

    Raises
    ------
    IsolationError
        Naming the first mount that cannot work.
    """
    for mount in mounts:
        if not mount.target.startswith("/"):
            raise IsolationError(f"mount target {mount.target!r} is not an absolute path")
        if not mount.source.exists():
            raise IsolationError(
                f"{mount.source} does not exist, so it cannot be shown to the build as {mount.target}",
                "run the build again: folders that went missing are made anew",
            )
