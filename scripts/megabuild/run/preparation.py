"""Before a build: what its plan left to be downloaded, packed or unpacked."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from groundwork.progress import Notes
from megabuild.plan.plan import Plan

#: Makes the environment of a plan, and returns the plan with it; takes what is told on the way, from any thread.
Prepare = Callable[[Notes], Plan]
_SECONDS = 1.0


@contextlib.contextmanager
def ticking(tick: Callable[[], None], seconds: float = _SECONDS) -> Iterator[None]:
    """Have something called now and then, in a thread, while this one is busy or waits."""
    over = threading.Event()

    def go() -> None:
        while not over.wait(seconds):
            with contextlib.suppress(OSError):  # a full disk ends the run where it stops it
                tick()

    thread = threading.Thread(target=go, name="ticking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
