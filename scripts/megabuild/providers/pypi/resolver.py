"""Which wheels fit together for one Python, from an index's pages and the wheels' own metadata.

pip answers the same, but where an index has no metadata beside its wheels it downloads every wheel for that, and still
does with ``--dry-run`` (pip 26.3): 2.5 GB for PyTorch with CUDA. Here a wheel costs some 100 kB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, Resolver
from resolvelib.resolvers import RequirementInformation, ResolutionTooDeep

from megabuild.errors import ProviderError
from megabuild.markers import marker_environment
from megabuild.network.client import NetworkError
from megabuild.network.index import File, best_first
from megabuild.providers.command import each
from megabuild.providers.pypi.offers import REMEDY, Content, Offers, required, requires_python

_AT_ONCE = 8  # pages and metadata on their way
_ROUNDS = 2000


@dataclass(frozen=True, kw_only=True)
class Found:
    """A wheel of a resolution."""

    file: File
    content: Content


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A wheel; without a file what stands in for one that cannot be had."""

    project: str
    extras: frozenset[str]
    file: File | None = None


def resolve(
    requirements: Sequence[str],
    python: str,
    version: str,
    where: Offers,
    folder: Path | None,
    *,
    platforms: Sequence[str] = (),
    dependencies: bool = True,
    lacking: MutableMapping[str, str] | None = None,
) -> tuple[Found, ...]:
    """Return the wheels that meet some requirements, ordered by name.

    Parameters
    ----------
    requirements, python, version:
        As pip writes them ("numpy==2.*"), and the Python whose tags and markers count: "3.13t", "3.13.1".
    where, folder:
        The indexes, and where notes about wheels are kept, as for `Offers.content`.
    platforms:
        Of wheels, the best first; empty for this machine's.
    dependencies:
        Whether what they require is wanted, too.
    lacking:
        Gets, by project, why nothing that a requirement names can be had. None: that is an error.

    Raises
    ------
    ProviderError
        There is no such wheel, or they do not fit together; no index answers.
    """
    wanted = [Requirement(one) for one in requirements]
    provider = _Provider(
        python, version, platforms, where, folder, dependencies=dependencies, lacking=lacking
    )
    provider.hurry(wanted)
    try:
        answer = Resolver(provider, BaseReporter()).resolve(wanted, max_rounds=_ROUNDS)
    except ResolutionImpossible as error:
        needs = sorted({_asked(cause.requirement, cause.parent) for cause in error.causes})
        together = f"for Python {python} these do not fit together: {', '.join(needs)}"
        told = "".join(f"\n{trouble}" for trouble in where.troubles)
        raise ProviderError(f"{provider.hopeless or together}{told}", REMEDY) from error
    except NetworkError as error:
        raise ProviderError(f"resolving wheels for Python {python}: {error.message}", REMEDY) from error
    except ResolutionTooDeep as error:
        raise ProviderError(f"no end to finding wheels for Python {python}", REMEDY) from error
    chosen = {one.file.name: one.file for one in answer.mapping.values() if one.file}
    return tuple(Found(file=file, content=where.content(file, folder)) for _, file in sorted(chosen.items()))


_Information: TypeAlias = RequirementInformation[Requirement, _Candidate]


class _Provider(AbstractProvider[Requirement, _Candidate, str]):
    """resolvelib's questions, answered by an index; a name with extras is a name of its own, as in pip."""

    def __init__(
        self,
        python: str,
        version: str,
        platforms: Sequence[str],
        where: Offers,
        folder: Path | None,
        *,
        dependencies: bool,
        lacking: MutableMapping[str, str] | None,
    ) -> None:
        self._where, self._folder, self._deep, self._lacking = where, folder, dependencies, lacking
        self._python, self._version, self._environment = (
            python,
            version,
            marker_environment(version, platforms),
        )
        self._platforms = platforms
        self._fitting: dict[str, list[File]] = {}
        #: why nothing was found, the last time that was so
        self.hopeless = ""

    def hurry(self, needs: Sequence[Requirement]) -> None:
        """Get pages, and the metadata of what is probably chosen, at the same time; failures are told when it is."""

        def get(need: Requirement) -> None:
            with suppress(ProviderError):
                best = self._ordered(canonicalize_name(need.name), need.specifier)
                if best and self._deep:
                    self._where.content(best[0], self._folder)

        list(each(get, needs, _AT_ONCE))

    def identify(self, requirement_or_candidate: Requirement | _Candidate) -> str:
        one = requirement_or_candidate
        name = one.project if isinstance(one, _Candidate) else canonicalize_name(one.name)
        return f"{name}[{','.join(sorted(one.extras))}]" if one.extras else name

    def get_preference(
        self,
        identifier: str,
        resolutions: Mapping[str, _Candidate],
        candidates: Mapping[str, Iterator[_Candidate]],
        information: Mapping[str, Iterator[_Information]],
        backtrack_causes: Sequence[_Information],
    ) -> tuple[bool, str]:
        # what is pinned first: it decides most
        return not any("==" in str(one.requirement.specifier) for one in information[identifier]), identifier

    def find_matches(
        self,
        identifier: str,
        requirements: Mapping[str, Iterator[Requirement]],
        incompatibilities: Mapping[str, Iterator[_Candidate]],
    ) -> Callable[[], Iterator[_Candidate]]:
        asked = list(requirements[identifier])
        bad = {one.file.name for one in incompatibilities[identifier] if one.file}
        project, extras = canonicalize_name(asked[0].name), frozenset(asked[0].extras)

        def found() -> Iterator[_Candidate]:
            try:
                for file in self._found(project, asked):
                    if file.name not in bad:
                        yield _Candidate(project=project, extras=extras, file=file)
            except ProviderError as error:
                if self._lacking is None:
                    raise
                self._lacking[project] = error.message
                yield _Candidate(project=project, extras=extras)

        return found

    def _found(self, project: str, asked: Sequence[Requirement]) -> Iterator[File]:
        """Yield the wheels that fit all that is asked of a project, the best first."""
        if self._lacking is not None and any(one.url for one in asked):
            raise ProviderError(f"{project} is asked for by its address, which is not looked at", REMEDY)
        nothing = True
        for file in self._ordered(project, SpecifierSet(",".join(str(one.specifier) for one in asked))):
            # an index need not say what the wheel says
            if not self._deep or self._allows(requires_python(self._where.content(file, self._folder))):
                nothing = False
                yield file
        for one in asked if nothing else ():
            if len(asked) == 1 or not self._ordered(project, one.specifier):
                wanted = f"{project}{one.specifier} for Python {self._python}"
                self.hopeless = f"no index that was asked has a wheel of {wanted}"
                if self._lacking is not None:
                    raise ProviderError(self.hopeless, REMEDY)

    def _ordered(self, project: str, wanted: SpecifierSet) -> list[File]:
        """Return the wheels that fit the Python and a specifier, the best first."""
        if project not in self._fitting:
            found = best_first(self._where.files(project), self._python, self._platforms)
            self._fitting[project] = [file for file in found if self._allows(file.requires_python)]
        fitting = [file for file in self._fitting[project] if not file.yanked or "==" in str(wanted)]
        versions = set(wanted.filter({file.version for file in fitting}))
        return [file for file in fitting if file.version in versions]

    def is_satisfied_by(self, requirement: Requirement, candidate: _Candidate) -> bool:
        file = candidate.file
        return file is None or requirement.specifier.contains(file.version, prereleases=True)

    def get_dependencies(self, candidate: _Candidate) -> list[Requirement]:
        file = candidate.file
        if not self._deep or file is None:
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

    def _allows(self, pythons: str) -> bool:
        try:
            return SpecifierSet(pythons).contains(self._version)
        except InvalidSpecifier:  # pip does not mind either
            return True


def _asked(requirement: Requirement, parent: _Candidate | None) -> str:
    of = f" (of {parent.project} {parent.file.version})" if parent and parent.file else ""
    return f"{requirement}{of}"
