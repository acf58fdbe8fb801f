"""Puts intervals into lanes, so that no two of a lane overlap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Interval(Protocol):
    """Has a beginning and an end, in seconds since 1970."""

    @property
    def began(self) -> float: ...

    @property
    def ended(self) -> float: ...


Item = TypeVar("Item", bound=Interval)


def put_in_lanes(items: Sequence[Item]) -> list[list[Item]]:
    """Return as few lanes as possible; items, sorted by their beginnings, take the first lane that is free."""
    lanes: list[list[Item]] = []
    free: list[int] = []
    busy: list[tuple[float, int]] = []  # end of its last item, lane
    for item in items:
        while busy and busy[0][0] <= item.began:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane = len(lanes)
            lanes.append([])
        lanes[lane].append(item)
        heapq.heappush(busy, (item.ended, lane))
    return lanes
