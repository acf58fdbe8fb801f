"""Stops a command from outside: by SIGTERM or a closed terminal, as Ctrl-C does, and by a deadline."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from groundwork.errors import DeadlineError, UsageError

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_FORM = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m(?:in)?)?(?:{_NUMBER}s)?")
_LONGEST = 366 * 24 * 3600.0
#: Time kept before the deadline to end compilers (five seconds), publish finished packages and write the summary.
_RESERVE_SECONDS = 60.0
_RESERVE_SHARE = 0.1
#: Seconds after a signal in which others have no effect, and the time of the last one that had, by time.monotonic.
_QUIET_SECONDS = 10.0
_stopped_at = -_QUIET_SECONDS


def ignore_signals() -> None:
    """Ignore SIGTERM and SIGHUP from now on: the process ends anyway, and its exit code must be its own."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> None:
    global _stopped_at
    now = time.monotonic()
    if now - _stopped_at > _QUIET_SECONDS:
        _stopped_at = now
        raise KeyboardInterrupt(signal.Signals(number).name)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise a KeyboardInterrupt with their name; code that catches errors lets it through.

    After one, further ones have no effect for ten seconds: they would interrupt the end that the first one began.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    if signal.getsignal(signal.SIGTERM) is not _stop:  # the outermost
        global _stopped_at
        _stopped_at = -_QUIET_SECONDS
    # nohup(1) starts programs with SIGHUP ignored: keep that
    both = (signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in both if signal.getsignal(number) != signal.SIG_IGN]
    former = {number: signal.signal(number, _stop) for number in numbers}
    try:
        yield
    finally:
        for number, before in former.items():
            if signal.getsignal(number) != signal.SIG_IGN:  # ignored until the process ends
                signal.signal(number, before)


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """The time at which a run must stop."""

    text: str  #: as the user wrote it: ``5h30m``
    stop_at: float  #: in seconds of ``time.monotonic``: when to end compilers, so that the run ends in time

    @property
    def left(self) -> float:
        """Seconds until ``stop_at``; negative afterwards."""
        return self.stop_at - time.monotonic()

    def error(self, what: str) -> DeadlineError:
        """Return the error that ends a run; ``what`` completes "deadline 5h reached": ``before …``."""
        return DeadlineError(
            f"deadline {self.text} reached {what}",
            "run the same command again to resume; finished packages and objects are kept",
        )


def parse_deadline(text: str) -> Deadline:
    """Parse a duration such as ``5h30m``, counted from the start of this process. Raises UsageError."""
    whole = _seconds(text.strip().lower())
    if not 0 < whole <= _LONGEST:
        raise UsageError(
            f"--deadline: '{text}' is not a duration of up to a year", "write 5h30m, 90m or 3600s"
        )
    import psutil  # slow to import, and every command imports this module

    passed = max(0.0, time.time() - psutil.Process().create_time())
    reserve = min(_RESERVE_SECONDS, whole * _RESERVE_SHARE)
    return Deadline(text=text.strip(), stop_at=time.monotonic() + whole - reserve - passed)


def _seconds(text: str) -> float:
    """Return a duration in seconds; 0 for another text."""
    match = _FORM.fullmatch(text)
    if match is None:
        return 0.0
    hours, minutes, seconds = (float(group or 0) for group in match.groups())
    return hours * 3600 + minutes * 60 + seconds
