"""What ends a command from outside: SIGTERM and a closed terminal, as Ctrl-C does, and its deadline."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

import psutil

from groundwork.errors import DeadlineError, UsageError

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_FORM = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m(?:in)?)?(?:{_NUMBER}s)?")
_LONGEST = 366 * 24 * 3600.0
#: Ending compilers takes up to five seconds, what was just finished is published, and the summary written.
_RESERVE_SECONDS, _RESERVE_SHARE = 60.0, 0.1


@contextlib.contextmanager
def stop_on_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise a KeyboardInterrupt that names them: no error, which others would explain away."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    # nohup(1) has a closed terminal ignored, and that is how it stays
    both = (signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in both if signal.getsignal(number) != signal.SIG_IGN]
    former = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, before in former.items():
            signal.signal(number, before)


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """A moment."""

    text: str  #: as it was asked for: ``5h30m``
    stop_at: float  #: of ``time.monotonic``: when everything that goes on has to be ended, so that it is over in time

    @property
    def left(self) -> float:
        """Seconds until then; negative when it has passed."""
        return self.stop_at - time.monotonic()

    def error(self, what: str) -> DeadlineError:
        """Return the error that ends a run; ``what`` goes on after "the deadline": ``has come before …``."""
        return DeadlineError(
            f"the deadline of {self.text} {what}",
            "run the same line again to go on: finished packages and compiled objects are kept",
        )


def parse_deadline(text: str) -> Deadline:
    """Read what a user gives, counted from the start of this process."""
    match = _FORM.fullmatch(text.strip().lower())
    hours, minutes, seconds = (float(group or 0) for group in match.groups()) if match else (0.0, 0.0, 0.0)
    whole = hours * 3600 + minutes * 60 + seconds
    if not 0 < whole <= _LONGEST:
        raise UsageError(f"'{text}' is no duration of at most a year", "write it as 5h30m, 90m or 3600s")
    passed = max(0.0, time.time() - psutil.Process().create_time())
    reserve = min(_RESERVE_SECONDS, whole * _RESERVE_SHARE)
    return Deadline(text=text.strip(), stop_at=time.monotonic() + whole - reserve - passed)
