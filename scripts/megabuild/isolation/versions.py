"""Comparing the version that an engine reports with the oldest one that does what we ask of it."""

from __future__ import annotations

import re

from megabuild.errors import IsolationError


def require_version(program: str, version: str, oldest: str) -> None:
    """Refuse an engine that is too old.

    Parameters
    ----------
    program:
        Name for the message.
    version:
        What it says of itself; anything after the dotted numbers is ignored.
    oldest:
        First version that will do, dotted numbers.

    Raises
    ------
    IsolationError
        Too old, or a version that cannot be read.
    """
    if _numbers(version) < _numbers(oldest):
        raise IsolationError(
            f"{program} {version or '(version unknown)'} is too old: {oldest} or newer is needed",
            f"install a newer {program}, or choose another engine with --engine",
        )


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()
