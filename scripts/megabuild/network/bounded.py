"""An action that is given up after some time, whatever it hangs in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def within(seconds: float, action: Callable[[], Answer]) -> Answer:
    """Return what an action returns, or raise what it raises, within some seconds.

    For what no timeout of a library reaches, such as a name server that never answers. The action goes on in a daemon
    thread when it is given up, so it must do no harm by ending late.

    Raises
    ------
    TimeoutError
        The time is over.
    """
    answers: list[Answer] = []
    problems: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(action())
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(max(seconds, 0.0))
    if problems:
        raise problems[0]
    if not answers:
        raise TimeoutError(f"no end after {seconds:.0f} s")
    return answers[0]
