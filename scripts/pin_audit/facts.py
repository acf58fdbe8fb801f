"""Facts, the data that the audit's parts exchange: each is a value with its source, location and condition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import msgspec
from msgspec import Struct

from megabuild.configs.config import Config

Column = Literal["upstream", "recipe", "conda-forge"]
COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
#: Properties of configs that describe some of them, with as few words as possible.
_TRAITS = ("system", "platform", "accelerator", "blas", "provider")
_ARCH = re.compile(r"(\d{1,2})\.(\d)([af]?)")
Converted = TypeVar("Converted", bound=type[Struct])


def resolve_types(kind: Converted) -> Converted:
    """Make msgspec resolve a Struct's field types now: it crashes the process if two threads do it first."""
    msgspec.json.Decoder(kind)
    return kind


class Build(Struct, frozen=True, kw_only=True):
    """The properties of a config that facts depend on; ``cuda`` is ``13.0``, or empty for a CPU build."""

    name: str
    platform: str
    accelerator: str
    cuda: str
    blas: str
    provider: str

    @classmethod
    def of(cls, config: Config) -> Build:
        """Return the properties of a config."""
        return cls(
            name=config.name, platform=config.platform, accelerator=config.accelerator,
            cuda=config.cuda_version or "", blas=config.blas, provider=config.provider,
        )  # fmt: skip

    @property
    def system(self) -> str:
        """The platform without the machine: ``linux``."""
        return self.platform.partition("-")[0]


class Scope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The condition under which a fact holds; an empty field does not restrict it."""

    configs: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()  #: conda's names
    cuda: tuple[str, ...] = ()  #: ``13.0``, ``13`` for all of 13.x, or ``None`` for builds without CUDA
    marker: str = ""  #: of PEP 508

    def words(self, builds: Sequence[Build] = ()) -> str:
        """Describe the condition in a few words; empty if the fact holds for all `builds`."""
        with_cuda = [version for version in self.cuda if version != "None"]
        parts = [
            "CPU" if "None" in self.cuda else "",
            f"CUDA {', '.join(with_cuda)}" if with_cuda else "",
            ", ".join(self.platforms),
            self.marker,
            config_words(self.configs, builds),
        ]
        return ", ".join(filter(None, parts))

    def matches(self, build: Build) -> bool:
        """Whether a fact holds for a config, apart from markers."""
        cuda = {build.cuda or "None", build.cuda.partition(".")[0] or "None"}
        return (
            (not self.configs or build.name in self.configs)
            and (not self.platforms or build.platform in self.platforms)
            and (not self.cuda or not cuda.isdisjoint(self.cuda))
        )


def config_words(chosen: Iterable[str], builds: Sequence[Build]) -> str:
    """Describe some of the `builds`: ``cuda129``, ``linux cpu``, or names if no such words fit; empty for all."""
    names = frozenset(chosen)
    if not names or names >= {build.name for build in builds}:
        return ""
    for count in range(1, len(_TRAITS) + 1):
        for read in (attrgetter(*traits) for traits in combinations(_TRAITS, count)):
            values = {read(build) for build in builds if build.name in names}
            if names == {build.name for build in builds if read(build) in values}:
                words = (value if isinstance(value, str) else " ".join(value) for value in values)
                return ", ".join(sorted(words))
    return ", ".join(sorted(names))


class Where(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The location of a value. The index's server is left out: each user may configure another one."""

    file: str = ""  #: path inside the tree, archive or index, or in this repository
    line: int | None = None  #: counted from 1
    url: str = ""  #: web page, without credentials
    index: str = ""
    package: str = ""
    version: str = ""
    commit: str = ""  #: of the tree, in full
    fetched: str = ""  #: time of the download, ISO 8601 in UTC
    inferred: str = ""  #: why the value is trusted, if it was not read at the release itself


class Fact(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=""):
    """One value of one dependency, in one place."""

    who: ClassVar[str] = ""  #: the source's name in the table
    column: ClassVar[Column]  #: its column in the table

    name: str  #: as the source calls it: ``third_party/fmt``, ``typing-extensions``, ``libprotobuf``
    value: str = ""  #: as it is shown: ``v2.1.0-705-ga6bfc23``, ``>=4.10.0``, ``*`` for any version
    holds: Scope = Scope()
    where: Where = Where()
    trouble: str = ""  #: why there is no value

    @property
    def kind(self) -> str:
        """The kind of fact, as in the JSON report."""
        return str(self.__struct_config__.tag)


class Submodule(Fact, frozen=True, kw_only=True, tag="submodule"):
    """A commit that upstream vendors, described by its tag or the nearest one, and the repository's address."""

    who, column = "submodule", "upstream"

    commit: str = ""
    address: str = ""


class TagCommit(Fact, frozen=True, kw_only=True, tag="commit"):
    """The commit of upstream's tag."""

    who, column = "tag", "upstream"


class Requirement(Fact, frozen=True, kw_only=True, tag="requirement"):
    """A Requires-Dist of upstream's wheel."""

    who, column = "wheel", "upstream"


class CiPin(Fact, frozen=True, kw_only=True, tag="ci-pin"):
    """A version that upstream's CI builds or tests with; ``what`` is its role: ``of the wheels``."""

    who, column = "CI", "upstream"

    what: str = ""

    @property
    def shipped(self) -> bool:
        """Whether the value was read from the wheels, not from upstream's tree."""
        return bool(self.where.index)


class RecipePin(Fact, frozen=True, kw_only=True, tag="recipe"):
    """A requirement of rendered variants, in the sections ``build``, ``host``, ``run``, ``constraint``."""

    column = "recipe"

    sections: tuple[str, ...] = ()
    rendered: bool = False  #: whether a feedstock's rendered configs, not its recipe, set the value


class RecipeCommit(Fact, frozen=True, kw_only=True, tag="recipe-commit"):
    """A git revision that a recipe builds from."""

    column = "recipe"

    address: str = ""  #: of the repository
    recipe: str = ""  #: the recipe's package
    version: str = ""  #: of the audited package, as this repository builds it


class GlobalPin(Fact, frozen=True, kw_only=True, tag="global-pin"):
    """A pin of conda-forge-pinning, with all values of the key in that scope."""

    column = "conda-forge"

    values: tuple[str, ...] = ()


class Migration(GlobalPin, frozen=True, kw_only=True, tag="migration"):
    """A pin to which conda-forge is moving, by the named migration."""

    migration: str = ""
    paused: bool = False


class Newest(Fact, frozen=True, kw_only=True, tag="newest"):
    """The newest version in the channel."""

    column = "conda-forge"


class UpstreamArchs(Fact, frozen=True, kw_only=True, tag="upstream-archs"):
    """GPU architectures of upstream's wheels: ``9.0``, ``12.0+PTX``; if they are no list, ``value`` has the text."""

    who, column = "CI", "upstream"

    archs: tuple[str, ...] = ()
    what: str = ""


class RecipeArchs(Fact, frozen=True, kw_only=True, tag="recipe-archs"):
    """GPU architectures that the recipe builds for."""

    column = "recipe"

    archs: tuple[str, ...] = ()


def split_archs(text: str) -> tuple[str, ...]:
    """Return a list's architectures in one spelling: ``9.0``, ``12.0+PTX``, ``10.0a``."""
    matches = (
        (_ARCH.match(word), "+PTX" if "ptx" in word.lower() else "") for word in re.split(r"[;,\s]+", text)
    )
    return tuple(f"{match[1]}.{match[2]}{match[3]}{ptx}" for match, ptx in matches if match)


def short_revision(revision: str) -> str:
    """Return a commit's first digits, and any other revision (a tag, a branch) as it is."""
    return revision[:10] if COMMIT.fullmatch(revision) else revision


_Upstream = Submodule | TagCommit | Requirement | CiPin | UpstreamArchs
_Recipe = RecipePin | RecipeCommit | RecipeArchs
AnyFact = _Upstream | _Recipe | GlobalPin | Migration | Newest
UPSTREAM = (Submodule, Requirement, CiPin)  #: kinds that name upstream's versions
#: Sources that change daily: the table shows their old values, but ``--fail-on`` counts those as unread.
MOVING = ("channel", "pinning")


@resolve_types
class SourceOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of one source, or why it failed."""

    source: str = ""  #: its name among the readers: ``submodules``
    facts: tuple[AnyFact, ...] = ()
    trouble: str = ""  #: why it failed, wholly or in part; empty on success
    applies: bool = True  #: False if the source knows nothing about this package
    snapshot: str = ""  #: day of the snapshot that replaces the whole source

    @property
    def unread(self) -> bool:
        """Whether the source gave no current facts."""
        if self.snapshot and self.source in MOVING:
            return True
        return self.applies and bool(self.trouble or self.facts) and all(fact.trouble for fact in self.facts)


class AuditTarget(Struct, frozen=True, kw_only=True):
    """The audited package: its upstream release, its recipe and its configs."""

    package: str  #: ``pytorch_scatter``, as conda-forge calls it
    version: str
    repository: str  #: any address that git takes, also a mirror's
    tag: str  #: the version's tag in that repository, ``v2.13.0``, or a commit
    wheel: str  #: the distribution's name
    builds: tuple[Build, ...]  #: the configs whose variants are audited
    index: str = "pip"  #: where its wheels are, as in packages.yaml
    recipe: Path | None = None  #: its recipe.yaml or meta.yaml, if there is one
