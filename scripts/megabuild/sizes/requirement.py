"""What a requirement would install, by what indexes and the ends of wheels say: no wheel is fetched whole."""

from __future__ import annotations

import os
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from megabuild.errors import ProviderError
from megabuild.markers import marker_environment
from megabuild.providers.pypi import offers, resolver
from megabuild.providers.pypi.resolver import Found
from megabuild.sizes.dependencies import full_version, required_by
from megabuild.sizes.inside import unread
from megabuild.sizes.tree import File, Package, Sizes, largest_first

_REMEDY = "check name and version, --python, and what pip is configured with"


def requirement(text: str, python: str) -> Sizes:
    """Measure what a requirement would install into an empty environment on this machine.

    Parameters
    ----------
    text:
        As pip takes it: ``torch==2.15.0``, ``onnxruntime-gpu``.
    python:
        The Python it is for, ``3.12``.

    Raises
    ------
    ProviderError
        No index answers or has a wheel for it, or what it requires does not fit together.
    """
    wanted, version = Requirement(text), full_version(python)
    if wanted.marker and not wanted.marker.evaluate(marker_environment(version)):
        raise ProviderError(f"{text} asks for nothing on this machine", _REMEDY)
    where = offers.Offers((), None, os.environ)
    lacking: dict[str, str] = {}
    answer = resolver.resolve([text], python, version, where, None, lacking=lacking)
    found = {one.file.project: one for one in answer}
    if (root := canonicalize_name(wanted.name)) not in found:
        raise ProviderError(lacking[root], _REMEDY)

    def requires(name: str) -> list[str]:
        if not name:
            return [text]
        return [str(one) for one in offers.required(found[name].content)] if name in found else []

    by = required_by([""], requires, python)
    return Sizes(
        subject=text,
        kind="requirement",
        packages=largest_first(_package(name, found.get(name), by[name] - {""}) for name in by),
        fetched=where.fetched,
        remarks=tuple(lacking[name] for name in by if name not in found),
    )


def _package(name: str, found: Found | None, by: Iterable[str]) -> Package:
    """Return a package; one that cannot be had has no files."""
    if found is None:
        return Package(name=name, required_by=tuple(sorted(by)))
    files = (File(path=path, parts=unread(path, size)) for path, size in found.content.members.items())
    return Package(
        name=name,
        version=str(found.file.version),
        files=tuple(files),
        download=found.content.size,
        required_by=tuple(sorted(by)),
    )
