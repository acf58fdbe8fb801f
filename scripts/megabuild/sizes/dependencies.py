"""Who requires whom, by the requirements in packages' metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A requirement, and the package that has it."""

    by: str
    requirement: Requirement


def followed(
    roots: Iterable[str], requires: Callable[[str], Sequence[str]], python: str
) -> dict[str, list[Asked]]:
    """Follow requirements from package to package, extras included.

    Parameters
    ----------
    roots:
        Names of the packages to begin with.
    requires:
        A package's requirements, by its name in canonical form; empty where it is not known.
    python:
        The version that markers are read for, ``3.12``; platform and machine are this one's.

    Returns
    -------
    For every package what is asked of it.
    """
    environment = {str(name): str(value) for name, value in default_environment().items()}
    if environment["python_version"] != python:
        environment |= {"python_version": python, "python_full_version": f"{python}.0"}
    found: dict[str, list[Asked]] = {}
    done: set[tuple[str, str]] = set()
    to_do = [(root, "") for root in roots]
    while to_do:
        name, extra = item = to_do.pop()
        if item in done:
            continue
        done.add(item)
        for text in requires(name):
            requirement = _holding(text, {**environment, "extra": extra})
            if requirement is None:
                continue
            wanted = canonicalize_name(requirement.name)
            asked = Asked(by=name, requirement=requirement)
            if asked not in found.setdefault(wanted, []):
                found[wanted].append(asked)
            to_do += [(wanted, further) for further in ("", *requirement.extras)]
    return found


def _holding(text: str, environment: dict[str, str]) -> Requirement | None:
    """Return a requirement if its marker holds; one that cannot be understood is passed over."""
    try:
        requirement = Requirement(text)
        return requirement if requirement.marker is None or requirement.marker.evaluate(environment) else None
    except ValueError:
        return None
