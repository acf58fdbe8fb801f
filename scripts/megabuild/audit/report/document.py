"""A report: the tables of one or more packages, made on one day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from megabuild.audit.rows import Audit


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that one run found.

    Parameters
    ----------
    made:
        When, ISO 8601 in UTC.
    audits:
        One per package.
    """

    made: str
    audits: tuple[Audit, ...]

    @property
    def day(self) -> date:
        """The day on which it was made."""
        return date.fromisoformat(self.made[:10])
