"""Resolve requirements to wheels for one Python, and cache the result as a lock."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import msgspec
from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.tags import platform_tags

from groundwork import files
from groundwork.errors import ProviderError
from groundwork.keys import Key
from groundwork.network import index as pip_indexes
from groundwork.network import resolver
from groundwork.network.client import NetworkError, NotFound
from groundwork.network.index import File, best_first
from groundwork.network.resolver import marker_environment
from groundwork.network.wheel_contents import Content, Contents
from groundwork.pip_settings import REMEDY
from megabuild.providers.catalogue import Catalogue
from megabuild.providers.command import each
from megabuild.providers.local.interpreters import Interpreter

_FORMAT = 2
_AT_ONCE = 8  # parallel downloads of wheels' metadata or of index pages
#: Native packages: PyPI projects with such names are something else.
_NATIVE = re.compile(r"lib.*|_.*|cross-.*|.*[-_](dev|devel|static|abi)|.*_(linux|osx|win|emscripten)-\w+")


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel of a lock. Its URL is not stored, because any index may provide the file."""

    name: str
    version: str
    file_name: str
    sha256: str
    requires: tuple[str, ...]
    requires_python: str
    size: int = 0

    def path(self, folder: Path) -> Path:
        """Return its path in the folder to which wheels are downloaded."""
        return folder / self.sha256[:16] / self.file_name

    def needs(self, environment: Mapping[str, str]) -> Iterator[Requirement]:
        """Yield the requirements that apply to these marker values, without extras."""
        for requirement in map(Requirement, self.requires):
            if requirement.marker is None or requirement.marker.evaluate({**environment, "extra": ""}):
                yield requirement


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The wheels for one Python, and its marker values."""

    python: str
    environment: Mapping[str, str]
    wheels: tuple[Wheel, ...]


@dataclass(frozen=True, kw_only=True)
class Question(Key):
    """Everything that a lock depends on, except pip's own indexes: another mirror must not change the wheels."""

    format: int
    requirements: Sequence[str]  #: sorted
    python: str  #: version and ABI, which names the machine
    platform: str  #: the best tag of its wheels, as ``manylinux_2_41_x86_64``: machines may share a cache
    dependencies: bool
    more: Sequence[str]  #: indexes and folders besides pip's
    index: str | None  #: in place of all indexes


_LOCKS = msgspec.json.Decoder(Lock)


def wheels_of(locks: Iterable[Lock]) -> list[Wheel]:
    """Return the wheels of several Pythons' locks, each once."""
    unique: dict[str, Wheel] = {}
    for lock in locks:
        for wheel in lock.wheels:
            unique[wheel.sha256] = wheel
    return list(unique.values())


def ask(
    requirements: Sequence[str],
    interpreter: Interpreter,
    *,
    dependencies: bool,
    more: Sequence[str],
    index: str | None,
) -> Question:
    """Return the key of a lock."""
    return Question(
        format=_FORMAT,
        requirements=sorted(requirements),
        python=f"{interpreter.version} {interpreter.soabi}",
        platform=_best_platform(interpreter),
        dependencies=dependencies,
        more=more,
        index=index,
    )


def _best_platform(interpreter: Interpreter) -> str:
    if interpreter.platforms:
        return interpreter.platforms[0]
    return next(platform_tags())


def resolve(
    requirements: Sequence[str],
    interpreter: Interpreter,
    folder: Path,
    *,
    dependencies: bool = True,
    more: Sequence[str] = (),
    index: str | None = None,
) -> Lock:
    """Return the lock for `requirements` (``numpy==2.*``), from `folder` if cached there, else newly resolved.

    ``more`` adds simple indexes (URLs) and folders of wheels to pip's configuration; ``index`` replaces all indexes.

    Raises ProviderError: No network, no such version, or a requirement without a wheel.
    """
    question = ask(requirements, interpreter, dependencies=dependencies, more=more, index=index)
    path = folder / f"{question.digest}.json"
    known = files.read_record(path, _LOCKS)
    if known is not None:
        return known
    where = pip_indexes.places(more, index)
    contents = Contents(where, folder)
    chosen = resolver.resolve(
        requirements, interpreter, where, dependencies=dependencies, cache=folder / "uv"
    )
    wheels = each(lambda file: _wheel(file, contents.of(file)), chosen, _AT_ONCE)
    lock = Lock(
        python=interpreter.python,
        environment=marker_environment(interpreter.version, interpreter.machine),
        wheels=tuple(wheels),
    )
    files.write(path, msgspec.json.format(msgspec.json.encode(lock), indent=1).decode())
    return lock


def _wheel(file: File, content: Content) -> Wheel:
    metadata, _ = parse_email(content.metadata)
    return Wheel(
        name=metadata["name"],
        version=metadata["version"],
        file_name=file.name,
        sha256=content.sha256,
        size=content.size,
        requires=tuple(metadata.get("requires_dist", ())),
        requires_python=metadata.get("requires_python", ""),
    )


def with_wheels(
    names: Iterable[str], catalogue: Catalogue, pythons: Collection[Interpreter], more: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the conda packages among `names` whose PyPI project has a wheel for every Python, sorted.

    Raises ProviderError: An index does not answer.
    """
    where = pip_indexes.places(more)
    client = where.client()

    def has_wheel(name: str) -> bool:
        project = catalogue.pypi_name(name)
        try:
            offered, troubles = pip_indexes.offered(project, where, client.page)
        except NotFound:
            return False
        except NetworkError as error:
            raise ProviderError(f"looking for wheels of {project}: {error.message}", error.remedy) from error
        wheels = [file for file in offered if file.tags and not file.yanked]
        fits = all(best_first(wheels, python.python, python.platforms) for python in pythons)
        if troubles and not fits:  # an index that did not answer may have the others
            raise ProviderError(f"looking for wheels of {project}: {'; '.join(troubles)}", REMEDY)
        return fits

    candidates = sorted(name for name in names if not _NATIVE.fullmatch(name))
    answers = each(has_wheel, candidates, _AT_ONCE)
    return tuple(compress(candidates, answers))
