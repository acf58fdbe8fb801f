"""What ends a command from outside: SIGTERM and a closed terminal, as Ctrl-C does, and its deadline."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

import psutil

from groundwork.errors import DeadlineError, UsageError

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_FORM = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m(?:in)?)?(?:{_NUMBER}s)?")
_LONGEST = 366 * 24 * 3600.0
#: Ending compilers takes up to five seconds, what was just finished is published, and the summary written.
_RESERVE_SECONDS, _RESERVE_SHARE = 60.0, 0.1


class _Passed(KeyboardInterrupt):
    """The deadline has come, where an interrupt is what ends everything."""


@contextlib.contextmanager
def stop_on_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise a KeyboardInterrupt that names them, for as long as the context lasts.

    Not an error: whoever catches errors in order to explain them would explain the signal away and go on.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    # nohup(1) has a closed terminal ignored, and that is how it stays
    both = (signal.SIGTERM, signal.SIGHUP)
    with _handling(stop, *(number for number in both if signal.getsignal(number) != signal.SIG_IGN)):
        yield


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals) -> Iterator[bool]:
    """Handle signals in this way where that is possible: only the main thread may set handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    former = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield True
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

    @contextlib.contextmanager
    def ends(self, what: str) -> Iterator[None]:
        """Interrupt what goes on in the context when the deadline comes, as Ctrl-C would.

        Raises DeadlineError: It has come.
        """
        if self.left <= 0:
            raise self.error(f"has come before {what}")

        def passed(number: int, frame: FrameType | None) -> None:
            raise _Passed

        with _handling(passed, signal.SIGALRM) as handled:
            signal.setitimer(signal.ITIMER_REAL, self.left if handled else 0)
            try:
                yield
            except _Passed:
                raise self.error(f"has come while {what}") from None
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)


def parse_deadline(text: str) -> Deadline:
    """Read what a user gives, counted from the start of this process.

    Raises UsageError: It is no duration.
    """
    match = _FORM.fullmatch(text.strip().lower())
    hours, minutes, seconds = (float(group or 0) for group in match.groups()) if match else (0.0, 0.0, 0.0)
    whole = hours * 3600 + minutes * 60 + seconds
    if not 0 < whole <= _LONGEST:
        raise UsageError(f"'{text}' is no duration of at most a year", "write it as 5h30m, 90m or 3600s")
    passed = max(0.0, time.time() - psutil.Process().create_time())
    reserve = min(_RESERVE_SECONDS, whole * _RESERVE_SHARE)
    return Deadline(text=text.strip(), stop_at=time.monotonic() + whole - reserve - passed)
