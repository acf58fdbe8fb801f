"""What the audit's options may be given, for checking and for tab completion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import click
from click.shell_completion import CompletionItem

from megabuild.audit.case import Status
from megabuild.audit.gather import SOURCES
from megabuild.audit.targets import packages
from megabuild.errors import UsageError

#: A status as it is typed: ``recipe-older``.
STATUSES = {status.value.replace(" ", "-"): status for status in Status}


def package_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the packages that begin with what was typed."""
    return _items((package.name for package in packages()), incomplete)


def source_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the sources that begin with what was typed."""
    return _items(SOURCES, incomplete)


def status_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the statuses that complete the last one of a list."""
    head, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{head}{comma}{name}") for name in STATUSES if name.startswith(last)]


def chosen_sources(only: Sequence[str], skipped: Sequence[str]) -> tuple[str, ...]:
    """Return the sources to ask.

    Parameters
    ----------
    only:
        Names or globs; empty: all.
    skipped:
        Names or globs of those to leave out.

    Raises
    ------
    UsageError
        A name fits none, or none is left.
    """
    for pattern in (*only, *skipped):
        if not any(fnmatchcase(name, pattern) for name in SOURCES):
            raise UsageError(f"'{pattern}' is no source of the audit", f"they are: {', '.join(SOURCES)}")
    left = tuple(
        name
        for name in SOURCES
        if (not only or any(fnmatchcase(name, pattern) for pattern in only))
        and not any(fnmatchcase(name, pattern) for pattern in skipped)
    )
    if not left:
        raise UsageError("every source is left out", "skip fewer")
    return left


def statuses(text: str) -> tuple[Status, ...]:
    """Return the statuses of a list with commas between them: ``conflict,recipe-older``.

    Raises
    ------
    UsageError
        One of them is none.
    """
    found = []
    for word in (part.strip().lower().replace(" ", "-").replace("_", "-") for part in text.split(",")):
        if word not in STATUSES:
            raise UsageError(f"'{word}' is no status", f"they are: {', '.join(STATUSES)}")
        found.append(STATUSES[word])
    return tuple(found)


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
