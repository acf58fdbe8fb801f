"""What a slow step reports while it goes on: sentences, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from groundwork.text import size

#: Begins a sentence that must not be missed.
WARNING = "! "


@dataclass(frozen=True, kw_only=True)
class Preparing:
    """How far one step is: it begins with nothing done, and is over with all."""

    what: str  #: ``downloading 3 wheels``
    done: int = 0
    total: int = 0  #: 0 where nobody knows
    unit: str = ""  #: ``bytes``, ``packages``

    @property
    def over(self) -> bool:
        """Whether it is done."""
        return 0 < self.total <= self.done

    def __str__(self) -> str:
        return f"{self.what} ({size(self.total)})" if self.total and self.unit == "bytes" else self.what


#: Takes what a step reports, from any thread.
Notes = Callable[["str | Preparing"], None]
