"""The statuses of rows; `audit --help` lists them, so this module imports the standard library only."""

from __future__ import annotations

from enum import Enum


class Status(str, Enum):
    """A row's status, the gravest first."""

    CONFLICT = "conflict"
    OLDER = "recipe older"
    NEWER = "recipe newer"
    MISSING = "pin missing"
    UNKNOWN = "unknown"
    UNPINNED = "upstream unpinned"
    IN_STEP = "in step"

    @property
    def gravity(self) -> int:
        """The status's rank; 0 is the gravest."""
        return list(Status).index(self)

    @property
    def settled(self) -> bool:
        """Whether rows with this status need no decision."""
        return self in (Status.IN_STEP, Status.UNPINNED)


#: Statuses by their name on the command line: ``recipe-older``.
STATUSES = {status.value.replace(" ", "-"): status for status in Status}
