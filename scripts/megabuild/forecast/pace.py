"""Calibration: what finished work took against what was expected of it, the latest counting most."""

from __future__ import annotations

import math

#: Expected seconds after which something counts for a third, as a share of all that is expected; at least so many.
_MEMORY, _LEAST_SECONDS = 0.15, 30.0
#: What was expected counts as much as so much finished work.
_TRUST = 0.3
#: An object that took less than this share of what is usual was not compiled.
_HIT = 0.15


class Pace:
    """Seconds that work takes for each that was expected."""

    def __init__(self, total: float) -> None:
        self._memory = max(_LEAST_SECONDS, _MEMORY * total)
        self._took = self._expected = _TRUST * self._memory

    def add(self, took: float, expected: float) -> None:
        """Something was finished."""
        if expected <= 0:
            return
        kept = math.exp(-expected / self._memory)
        self._took, self._expected = self._took * kept + took, self._expected * kept + expected

    @property
    def factor(self) -> float:
        """What to multiply expectations with."""
        return self._took / self._expected


class Hits:
    """The share of objects that the object cache has, the last twenty counting most."""

    def __init__(self, *, likely: bool) -> None:
        self._share = 0.95 if likely else 0.0
        self._seconds = 0.2
        self._quick = False

    def was_one(self, took: float, usual: float) -> bool:
        """Return whether an object came from the cache, by what it took; where none of it is usual, nobody can say.

        They come one after another: what a single one took may be a wrong guess.
        """
        if usual < 1.0:
            return False
        quick, before = took < _HIT * usual, self._quick
        self._quick, hit = quick, quick and before
        self._share += (hit - self._share) / 20
        if hit:
            self._seconds += (took - self._seconds) / 20
        return hit

    def expected(self, usual: float) -> float:
        """Return the seconds that an object takes, be it there or not."""
        return self._share * min(self._seconds, usual) + (1 - self._share) * usual
