"""Which wheels fit together for one Python, from an index's pages and the wheels' own metadata.

pip answers the same, but where an index has no metadata beside its wheels it downloads every wheel for that, and still
does with ``--dry-run`` (pip 26.3): 2.5 GB for PyTorch with CUDA. Here a wheel costs some 100 kB.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
from packaging.markers import default_environment
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import compatible_tags, cpython_tags, platform_tags
from packaging.utils import canonicalize_name
from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, Resolver
from resolvelib.resolvers import ResolutionTooDeep

from megabuild import files
from megabuild.errors import ProviderError
from megabuild.network.client import Client, NetworkError, Patience
from megabuild.network.index import HEADERS, Configured, File, configured, local_path, offered
from megabuild.network.wheel_metadata import BROKEN, inside, member
from megabuild.providers.local.interpreters import Interpreter

_AT_ONCE = 8  # pages and metadata on their way
_ROUNDS = 2000
_PATIENCE = Patience(connect=5.0, read=20.0, total=60.0)
#: For a single index, which a firewall may hide.
_HASTE = Patience(connect=4.0, read=20.0, total=20.0)
_REMEDY = "Check the network and pip's configuration (pip config list), or use a cache filled before (MEGABUILD_CACHE)."


@dataclass(frozen=True, kw_only=True)
class Content:
    """What is known of a wheel without having it."""

    #: sha256, and bytes
    sha256: str
    size: int
    #: its METADATA
    metadata: str
    #: of all files in it
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A wheel of a resolution."""

    file: File
    content: Content


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    file: File
    extras: frozenset[str]


class Offers:
    """What the indexes have: every page and every wheel is looked at once.

    Parameters
    ----------
    more:
        Addresses of simple indexes, and folders with wheels, asked after those that pip is configured with.
    index:
        The only one to ask, or None.
    environ:
        Environment variables, where pip's configuration may stand.
    """

    def __init__(self, more: Sequence[str], index: str | None, environ: Mapping[str, str]) -> None:
        known = _known(tuple(sorted(environ.items())))
        given = [index] if index else [*known.indexes, *more]
        folders = tuple(one for one in given if "://" not in one)
        self._where = Configured(
            indexes=tuple(one.rstrip("/") for one in given if "://" in one),
            links=folders if index else (*known.links, *folders),
        )
        patience = _HASTE if index else _PATIENCE
        self._client = Client(patience=patience, certificates=known.certificates, proxy=known.proxy)
        self._pages: dict[str, tuple[File, ...] | NetworkError] = {}
        #: why some of the indexes said nothing
        self.troubles: dict[str, None] = {}

    def files(self, project: str) -> tuple[File, ...]:
        """Return the wheels of a project; raises NetworkError where no index has it."""
        if project not in self._pages:
            try:
                found, troubles = offered(
                    project, self._where, lambda url: self._client.get(url, headers=HEADERS)
                )
                self.troubles |= dict.fromkeys(troubles)
                self._pages[project] = tuple(one for one in found if one.tags)
            except NetworkError as error:
                self._pages[project] = error
        answer = self._pages[project]
        if isinstance(answer, NetworkError):
            raise answer
        return answer

    def content(self, file: File, folder: Path) -> Content:
        """Look into a wheel, or into the note of what was seen there before.

        Parameters
        ----------
        file:
            The wheel.
        folder:
            Where notes are kept.

        Raises
        ------
        ProviderError
            It cannot be read, or nobody says what its hash is.
        """
        note = noted(folder, file.sha256) if file.sha256 else None
        if note is not None:
            return note
        try:
            seen = self._look(file, folder)
        except (*BROKEN, OSError) as error:
            raise ProviderError(f"{file.name} is no wheel, or a broken one: {error}", _REMEDY) from error
        files.write(_note(folder, seen.sha256), msgspec.json.encode(seen).decode())
        return seen

    def _look(self, file: File, folder: Path) -> Content:
        if file.url.startswith("file:"):
            return _inside(local_path(file.url), file.sha256)
        if not file.sha256:
            raise ProviderError(
                f"the index does not say what the hash of {file.name} is", "Use an index that gives hashes."
            )
        try:
            seen = inside(self._client, file)
        except NetworkError as error:
            if error.status not in (200, 416, 501):
                raise
            # that server gives whole files only
            with files.scratch(folder) as temporary:
                self._client.save(file.url, temporary / file.name)
                return _inside(temporary / file.name, file.sha256)
        return Content(
            sha256=file.sha256,
            size=seen.length,
            metadata=seen.content.decode(errors="replace"),
            names=tuple(one.filename for one in seen.members),
        )


@cache
def _known(environ: tuple[tuple[str, str], ...]) -> Configured:
    return configured(dict(environ))  # pip takes seconds to say so


@cache
def _offers(more: tuple[str, ...], index: str | None, environ: tuple[tuple[str, str], ...]) -> Offers:
    return Offers(more, index, dict(environ))


def offers(more: Sequence[str] = (), index: str | None = None) -> Offers:
    """Return what the indexes of this process's environment have; the same object for the same question."""
    return _offers(tuple(more), index, tuple(sorted(os.environ.items())))


def noted(folder: Path, sha256: str) -> Content | None:
    """Return what was seen of a wheel before, or None."""
    try:
        return msgspec.json.decode(_note(folder, sha256).read_bytes(), type=Content)
    except (OSError, msgspec.MsgspecError):
        return None


def environment(interpreter: Interpreter) -> dict[str, str]:
    """Return the values that markers take for a CPython of this machine."""
    values = {key: str(value) for key, value in default_environment().items()}
    return values | {
        "implementation_version": interpreter.version,
        "python_full_version": interpreter.version,
        "python_version": interpreter.python.removesuffix("t"),
    }


def resolve(
    requirements: Sequence[str],
    interpreter: Interpreter,
    where: Offers,
    folder: Path,
    *,
    dependencies: bool = True,
) -> tuple[Found, ...]:
    """Return the wheels that meet some requirements, ordered by name.

    Parameters
    ----------
    requirements, interpreter:
        As pip writes them ("numpy==2.*"), and the Python whose tags and markers count.
    where, folder:
        The indexes, and where notes about wheels are kept.
    dependencies:
        Whether what they require is wanted, too.

    Raises
    ------
    ProviderError
        There is no such wheel, or they do not fit together; no index answers.
    """
    wanted = [Requirement(one) for one in requirements]
    provider = _Provider(interpreter, where, folder, dependencies=dependencies)
    provider.hurry(wanted)
    try:
        answer = Resolver(provider, BaseReporter()).resolve(wanted, max_rounds=_ROUNDS)
    except ResolutionImpossible as error:
        needs = sorted({_asked(cause.requirement, cause.parent) for cause in error.causes})
        together = f"for Python {interpreter.python} these do not fit together: {', '.join(needs)}"
        told = "".join(f"\n{trouble}" for trouble in where.troubles)
        raise ProviderError(f"{provider.lacking or together}{told}", _REMEDY) from error
    except ResolutionTooDeep as error:
        raise ProviderError(f"no end to finding wheels for Python {interpreter.python}", _REMEDY) from error
    chosen = {one.file.name: one.file for one in answer.mapping.values()}
    return tuple(Found(file=file, content=where.content(file, folder)) for _, file in sorted(chosen.items()))


class _Provider(AbstractProvider[Requirement, _Candidate, str]):
    """resolvelib's questions, answered by an index; a name with extras is a name of its own, as in pip."""

    def __init__(self, interpreter: Interpreter, where: Offers, folder: Path, *, dependencies: bool) -> None:
        self._where, self._folder, self._deep = where, folder, dependencies
        self._environment, self._version = environment(interpreter), interpreter.version
        self._python = interpreter.python
        digits = interpreter.sort_key[:2]
        platforms = list(platform_tags())
        own = [*cpython_tags(digits, abis=[interpreter.tag], platforms=platforms)]
        any_one = compatible_tags(digits, interpreter=f"cp{digits[0]}{digits[1]}", platforms=platforms)
        self._rank = {tag: rank for rank, tag in enumerate([*own, *any_one])}
        #: the last name of which nothing was found
        self.lacking = ""

    def hurry(self, needs: Sequence[Requirement]) -> None:
        """Get pages, and the metadata of what is probably chosen, at the same time; failures are told when it is."""

        def get(need: Requirement) -> None:
            with suppress(ProviderError):
                best = self._ordered(canonicalize_name(need.name), need.specifier)
                if best and self._deep:
                    self._where.content(best[0], self._folder)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(get, needs))

    def identify(self, requirement_or_candidate: Requirement | _Candidate) -> str:
        one = requirement_or_candidate
        name = one.file.project if isinstance(one, _Candidate) else canonicalize_name(one.name)
        return f"{name}[{','.join(sorted(one.extras))}]" if one.extras else name

    def get_preference(
        self,
        identifier: str,
        resolutions: Mapping[str, _Candidate],
        candidates: Mapping[str, Iterator[_Candidate]],
        information: Mapping[str, Iterator[object]],
        backtrack_causes: Sequence[object],
    ) -> tuple[bool, str]:
        # what is pinned first: it decides most
        needs = [getattr(one, "requirement", None) for one in information[identifier]]
        pinned = any("==" in str(need.specifier) for need in needs if isinstance(need, Requirement))
        return not pinned, identifier

    def find_matches(
        self,
        identifier: str,
        requirements: Mapping[str, Iterator[Requirement]],
        incompatibilities: Mapping[str, Iterator[_Candidate]],
    ) -> list[_Candidate]:
        asked = list(requirements[identifier])
        bad = {one.file.name for one in incompatibilities[identifier]}
        project, extras = canonicalize_name(asked[0].name), frozenset(asked[0].extras)
        both = SpecifierSet(",".join(str(one.specifier) for one in asked))
        found = [file for file in self._ordered(project, both) if file.name not in bad]
        hopeless = [one for one in asked if not found and not self._ordered(project, one.specifier)]
        if hopeless:
            wanted = f"{project}{hopeless[0].specifier}"
            self.lacking = f"no index that was asked has a wheel of {wanted} for Python {self._python}"
        return [_Candidate(file=file, extras=extras) for file in found]

    def _ordered(self, project: str, wanted: SpecifierSet) -> list[File]:
        """Return the wheels that fit the Python and a specifier, the best first."""
        fitting = [
            file
            for file in self._where.files(project)
            if not self._rank.keys().isdisjoint(file.tags)
            if self._is_for(file) and not (file.yanked and "==" not in str(wanted))
        ]
        versions = set(wanted.filter({file.version for file in fitting}))
        return sorted(
            (file for file in fitting if file.version in versions),
            key=lambda file: (file.version, -min(self._rank[tag] for tag in file.tags if tag in self._rank)),
            reverse=True,
        )

    def is_satisfied_by(self, requirement: Requirement, candidate: _Candidate) -> bool:
        return requirement.specifier.contains(candidate.file.version, prereleases=True)

    def get_dependencies(self, candidate: _Candidate) -> list[Requirement]:
        file = candidate.file
        if not self._deep:
            return []
        extras = sorted(candidate.extras) or [""]
        needs = [
            one
            for one in required(self._where.content(file, self._folder))
            if one.marker is None
            or any(one.marker.evaluate({**self._environment, "extra": extra}) for extra in extras)
        ]
        self.hurry(needs)
        return [*([Requirement(f"{file.project}==={file.version}")] if candidate.extras else []), *needs]

    def _is_for(self, file: File) -> bool:
        try:
            return SpecifierSet(file.requires_python).contains(self._version)
        except InvalidSpecifier:
            return True


def required(content: Content) -> list[Requirement]:
    """Return the requirements that a wheel's metadata names, those that nobody understands left out."""
    found = []
    for line in parse_email(content.metadata)[0].get("requires_dist", []):
        try:
            found.append(Requirement(line))
        except InvalidRequirement:
            continue
    return found


def _asked(requirement: Requirement, parent: _Candidate | None) -> str:
    return f"{requirement} (of {parent.file.project} {parent.file.version})" if parent else str(requirement)


def _inside(path: Path, sha256: str) -> Content:
    with zipfile.ZipFile(path) as archive:
        metadata = archive.read(member(archive)).decode(errors="replace")
        names = tuple(archive.namelist())
    found = files.sha256(path)
    if sha256 not in ("", found):
        raise ValueError(f"its sha256 is {found}, and the index says {sha256}")
    return Content(sha256=found, size=path.stat().st_size, metadata=metadata, names=names)


def _note(folder: Path, sha256: str) -> Path:
    return folder / "contents" / f"{sha256}.json"
