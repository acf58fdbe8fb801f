"""Who requires whom, by the requirements in packages' metadata."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from groundwork.network.resolver import marker_environment


def full_version(python: str) -> str:
    """Return the version that is meant by X.Y: of this Python its own, of others the last one that may ever be."""
    own = platform.python_version()
    return own if own.startswith(f"{python}.") else f"{python}.99"


def find_requirers(
    roots: Iterable[str], requires: Callable[[str], Sequence[str]], python: str
) -> dict[str, set[str]]:
    """Follow requirements from package to package, extras included; what cannot be understood is passed over.

    ``requires`` gives a package's requirements by its name in canonical form, none where it is not known. Markers are
    read for ``python`` (``3.12``) on this machine. Returned are, for every package that is required, those that do.
    """
    values = marker_environment(full_version(python))
    requirers: dict[str, set[str]] = {}
    done: set[tuple[str, str]] = set()
    to_do = [(root, "") for root in roots]
    while to_do:
        name, extra = item = to_do.pop()
        if item in done:
            continue
        done.add(item)
        for text in requires(name):
            try:
                requirement = Requirement(text)
                marker = requirement.marker
                holds = marker is None or marker.evaluate({**values, "extra": extra})
            except ValueError:
                continue
            if holds:
                wanted = canonicalize_name(requirement.name)
                requirers.setdefault(wanted, set()).add(name)
                to_do += [(wanted, further) for further in ("", *requirement.extras)]
    return requirers
