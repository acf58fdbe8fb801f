"""SIGTERM and a closed terminal as what Ctrl-C is.

Not as an error: whoever catches errors in order to explain them (a package that cannot be read, an environment that
cannot be solved) would explain the signal away and go on.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def by_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise a KeyboardInterrupt that names them, for as long as the context lasts."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers; whoever runs us elsewhere has handlers of his own
        return
    # nohup(1) has a closed terminal ignored, and that is how it stays
    both = (signal.SIGTERM, signal.SIGHUP)
    former = {
        number: signal.signal(number, stop) for number in both if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
