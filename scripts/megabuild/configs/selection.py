"""Choosing configs with a glob pattern."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from megabuild.errors import UsageError


def select(names: Iterable[str], pattern: str) -> tuple[str, ...]:
    """Return the names that match a glob pattern, in the order given.

    ``linux_64*`` is every config for linux-64 and none for linux-aarch64; ``linux_*`` is both.

    Parameters
    ----------
    names:
        Config names.
    pattern:
        A glob as in ``fnmatch``, matched against the whole name; a trailing ``.yaml`` is taken off.

    Raises
    ------
    UsageError
        When nothing matches: a filter that selects nothing is a typing error, not an empty run.
    """
    known = tuple(names)
    found = tuple(name for name in known if fnmatchcase(name, pattern.removesuffix(".yaml")))
    if not found:
        raise UsageError(
            f"no config matches '{pattern}'", f"the configs are: {', '.join(known) or 'none at all'}"
        )
    return found
