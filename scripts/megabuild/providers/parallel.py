"""Do a few things at once, and stop beginning new ones when one has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(function: Callable[[Item], Result], items: Iterable[Item], at_once: int) -> Iterator[Result]:
    """Yield `function(item)` for all items in their order, working on up to `at_once` of them.

    The first failure is raised as soon as its turn comes; what has not begun by then never does.
    """
    pool = ThreadPoolExecutor(at_once)
    try:
        futures = [pool.submit(function, item) for item in items]
        for future in futures:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
