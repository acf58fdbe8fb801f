"""Packages of which nothing here knows where they come from, and that pip's indexes have wheels of."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from groundwork.errors import ProviderError
from groundwork.network.client import NetworkError, NotFound
from groundwork.network.index import HEADERS, best_first, offered, places
from megabuild.providers.catalogue import Catalogue
from megabuild.providers.command import each
from megabuild.providers.local.interpreters import Interpreter

_AT_ONCE = 8
#: No Python packages, whatever somebody has published under such a name.
_NATIVE = re.compile(r"lib.*|_.*|cross-.*|.*[-_](dev|devel|static|abi)|.*_(linux|osx|win|emscripten)-\w+")


def with_wheels(
    names: Iterable[str], catalogue: Catalogue, pythons: Collection[Interpreter], more: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return those conda packages whose project, by its name, has a wheel for every Python; sorted.

    Raises ProviderError: An index does not answer.
    """
    where = places(more)
    client = where.client()

    def has_wheel(name: str) -> bool:
        project = catalogue.pypi_name(name)
        try:
            files, _ = offered(project, where, lambda url: client.get(url, headers=HEADERS))
        except NotFound:
            return False
        except NetworkError as error:
            raise ProviderError(f"looking for wheels of {project}: {error.message}", error.remedy) from error
        wheels = [file for file in files if file.tags and not file.yanked]
        return all(best_first(wheels, python.python, python.platforms) for python in pythons)

    candidates = sorted(name for name in names if not _NATIVE.fullmatch(name))
    found = each(has_wheel, candidates, _AT_ONCE)
    return tuple(name for name, there in zip(candidates, found, strict=True) if there)
