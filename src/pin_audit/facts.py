"""Facts, the data that the audit's parts exchange: each is a value with its source, location and condition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import combinations
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec
from msgspec import Struct

from megabuild.configs.config import Config

ANY_VERSION = "*"  #: the value of a requirement without a version
NO_CUDA = "None"  #: CUDA's version in configs and pins of builds without CUDA
COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
#: Properties of configs that describe some of them, with as few words as possible.
_TRAITS = ("system", "platform", "accelerator", "blas", "provider")
_ARCH = re.compile(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
Kind = TypeVar("Kind", bound="Fact")
Converted = TypeVar("Converted", bound=type[Struct])


class Column(str, Enum):
    """The table's columns of facts, in order."""

    UPSTREAM = "upstream"
    RECIPE = "recipe"
    CONDA_FORGE = "conda-forge"


class Section(str, Enum):
    """The section of a recipe's requirement."""

    BUILD = "build"
    HOST = "host"
    RUN = "run"
    CONSTRAINT = "constraint"


class Place(Enum):
    """The rows in which the table shows a kind of fact."""

    ITS_ROW = "the row of its name, which exists because of it"
    KNOWN_ROWS = "the rows of its name and key that other facts have made"
    ROW_OF_REPOSITORY = "the row of the package or submodule with the commit's repository"
    ARCHITECTURES = "the row of its CUDA version, in the table of architectures"


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


def first_value(config: Config, key: str) -> str:
    """Return a config's value of a key, the first one of several; empty if there is none."""
    return config.variant.get(key, ("",))[0]


class Scope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The condition under which a fact holds; an empty field does not restrict it."""

    configs: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()  #: conda's names
    cuda: tuple[str, ...] = ()  #: ``13.0``, ``13`` for all of 13.x, or ``None`` for builds without CUDA
    marker: str = ""  #: of PEP 508

    def words(self, builds: Sequence[Build] = ()) -> str:
        """Describe the condition in a few words; empty if the fact holds for all `builds`."""
        parts = []
        if NO_CUDA in self.cuda:
            parts.append("CPU")
        with_cuda = [version for version in self.cuda if version != NO_CUDA]
        if with_cuda:
            parts.append(f"CUDA {', '.join(with_cuda)}")
        parts += self.platforms
        parts.append(self.marker)
        parts.append(config_words(self.configs, builds))
        return ", ".join(filter(None, parts))

    def matches(self, build: Build) -> bool:
        """Whether a fact holds for a config, apart from markers."""
        if self.configs and build.name not in self.configs:
            return False
        if self.platforms and build.platform not in self.platforms:
            return False
        major = build.cuda.partition(".")[0]
        return not self.cuda or not {build.cuda or NO_CUDA, major or NO_CUDA}.isdisjoint(self.cuda)


def config_words(chosen: Iterable[str], builds: Sequence[Build]) -> str:
    """Describe some of the `builds`: ``cuda129``, ``linux cpu``, or names if no such words fit; empty for all."""
    names = frozenset(chosen)
    if not names or names >= {build.name for build in builds}:
        return ""
    for count in range(1, len(_TRAITS) + 1):
        for traits in combinations(_TRAITS, count):
            words = _trait_words(names, builds, traits)
            if words is not None:
                return words
    return ", ".join(sorted(names))


def _trait_words(names: frozenset[str], builds: Sequence[Build], traits: Sequence[str]) -> str | None:
    """Describe builds by their values of some traits; None if these values do not select exactly them."""
    chosen = set()
    others = set()
    found = set()
    for build in builds:
        value = " ".join(getattr(build, trait) for trait in traits)
        if build.name in names:
            chosen.add(value)
            found.add(build.name)
        else:
            others.add(value)
    if found != names or chosen & others:
        return None
    return ", ".join(sorted(chosen))


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
    """One value of one dependency, in one place.

    A new kind states its column and place here, belongs into `AnyFact`, and its text into ``cells.COLUMNS``.
    """

    who: ClassVar[str] = ""  #: the source's name in the table
    column: ClassVar[Column]
    place: ClassVar[Place]

    name: str  #: as the source calls it: ``third_party/fmt``, ``typing-extensions``, ``libprotobuf``
    value: str = ""  #: as it is shown: ``v2.1.0-705-ga6bfc23``, ``>=4.10.0``, ``*`` for any version
    holds: Scope = Scope()
    where: Where = Where()
    trouble: str = ""  #: why there is no value

    @property
    def kind(self) -> str:
        """The kind of fact, as in the JSON report."""
        return str(self.__struct_config__.tag)

    @property
    def allows_any(self) -> bool:
        """Whether it is a requirement without a version."""
        return self.value == ANY_VERSION

    @property
    def reader(self) -> str:
        """The source in a cell's notes."""
        return self.who


def of_kind(facts: Iterable[Fact], *kinds: type[Kind]) -> list[Kind]:
    """Return the facts of some kinds, in their order."""
    return [fact for fact in facts if isinstance(fact, kinds)]


def known(facts: Iterable[Kind]) -> list[Kind]:
    """Return the facts that have a value."""
    return [fact for fact in facts if not fact.trouble]


class UpstreamVersion(Fact, frozen=True, kw_only=True):
    """A fact that names upstream's version of a dependency; the table compares it with the recipe's."""

    column = Column.UPSTREAM
    place = Place.ITS_ROW

    @property
    def claim(self) -> str:
        """The beginning of a sentence that ends with the version."""
        raise NotImplementedError


class Submodule(UpstreamVersion, frozen=True, kw_only=True, tag="submodule"):
    """A commit that upstream vendors, described by its tag or the nearest one, and the repository's address."""

    who = "submodule"

    commit: str = ""
    address: str = ""

    @property
    def claim(self) -> str:
        """The beginning of a sentence that ends with the version."""
        return "upstream vendors"


class TagCommit(Fact, frozen=True, kw_only=True, tag="commit"):
    """The commit of upstream's tag."""

    who = "tag"
    column = Column.UPSTREAM
    place = Place.ROW_OF_REPOSITORY


class Requirement(UpstreamVersion, frozen=True, kw_only=True, tag="requirement"):
    """A Requires-Dist of upstream's wheel."""

    who = "wheel"

    @property
    def is_optional(self) -> bool:
        """Whether it belongs to an extra."""
        return bool(re.search(r"\bextra\b", _QUOTED.sub("", self.holds.marker)))

    @property
    def is_of_nvidia(self) -> bool:
        """Whether it is one of NVIDIA's packages, which are for the wheel's own CUDA version."""
        return self.name.startswith(("nvidia-", "cuda-"))

    @property
    def reader(self) -> str:
        """The source in a cell's notes."""
        return "extra" if self.is_optional else self.who

    @property
    def claim(self) -> str:
        """The beginning of a sentence that ends with the version."""
        return "the wheel requires"


class CiPin(UpstreamVersion, frozen=True, kw_only=True, tag="ci-pin"):
    """A version that upstream's CI builds or tests with; ``what`` is its role: ``of the wheels``."""

    who = "CI"

    what: str = ""

    @property
    def shipped(self) -> bool:
        """Whether the value was read from the wheels, not from upstream's tree."""
        return bool(self.where.index)

    @property
    def reader(self) -> str:
        """The source in a cell's notes."""
        return "wheel" if self.shipped else self.who

    @property
    def claim(self) -> str:
        """The beginning of a sentence that ends with the version."""
        return "upstream's wheels use" if self.shipped else "upstream's CI uses"


class RecipePin(Fact, frozen=True, kw_only=True, tag="recipe"):
    """A requirement of rendered variants."""

    column = Column.RECIPE
    place = Place.ITS_ROW

    sections: tuple[Section, ...] = ()
    rendered: bool = False  #: whether a feedstock's rendered configs, not its recipe, set the value

    @property
    def excludes(self) -> bool:
        """Whether the recipe excludes the package, by the idiom ``<0.0a0``: older than any version."""
        return self.value.startswith("<0.0a")


class RecipeCommit(Fact, frozen=True, kw_only=True, tag="recipe-commit"):
    """A git revision that a recipe builds from."""

    column = Column.RECIPE
    place = Place.ROW_OF_REPOSITORY

    address: str = ""  #: of the repository
    recipe: str = ""  #: the recipe's package
    version: str = ""  #: of the audited package, as this repository builds it


class GlobalPin(Fact, frozen=True, kw_only=True, tag="global-pin"):
    """A pin of conda-forge-pinning, with all values of the key in that scope."""

    column = Column.CONDA_FORGE
    place = Place.KNOWN_ROWS

    values: tuple[str, ...] = ()

    @property
    def versions(self) -> tuple[str, ...]:
        """The values that are versions."""
        return tuple(value for value in self.values if value != NO_CUDA)

    @property
    def origin(self) -> str:
        """The source's name in the table."""
        return "pin"

    @property
    def is_paused(self) -> bool:
        """Whether it is of a migration that conda-forge has stopped."""
        return False


class Migration(GlobalPin, frozen=True, kw_only=True, tag="migration"):
    """A pin to which conda-forge is moving, by the named migration."""

    migration: str = ""
    paused: bool = False

    @property
    def origin(self) -> str:
        """The source's name in the table."""
        return f"migration {self.migration}"

    @property
    def is_paused(self) -> bool:
        """Whether conda-forge has stopped it."""
        return self.paused


class Newest(Fact, frozen=True, kw_only=True, tag="newest"):
    """The newest version in the channel."""

    column = Column.CONDA_FORGE
    place = Place.KNOWN_ROWS


class UpstreamArchs(Fact, frozen=True, kw_only=True, tag="upstream-archs"):
    """GPU architectures of upstream's wheels: ``9.0``, ``12.0+PTX``; if they are no list, ``value`` has the text."""

    who = "CI"
    column = Column.UPSTREAM
    place = Place.ARCHITECTURES

    archs: tuple[str, ...] = ()
    what: str = ""


class RecipeArchs(Fact, frozen=True, kw_only=True, tag="recipe-archs"):
    """GPU architectures that the recipe builds for."""

    column = Column.RECIPE
    place = Place.ARCHITECTURES

    archs: tuple[str, ...] = ()


def split_archs(text: str) -> tuple[str, ...]:
    """Return a list's architectures in one spelling: ``9.0``, ``12.0+PTX``, ``10.0a``."""
    archs = []
    for word in re.split(r"[;,\s]+", text):
        match = _ARCH.fullmatch(word)
        if match is not None:
            archs.append(f"{match[1]}.{match[2]}{match[3].lower()}{(match[4] or '').upper()}")
    return tuple(archs)


def short_revision(revision: str) -> str:
    """Return a commit's first digits, and any other revision (a tag, a branch) as it is."""
    if COMMIT.fullmatch(revision):
        return revision[:10]
    return revision


_Upstream = Submodule | TagCommit | Requirement | CiPin | UpstreamArchs
_Recipe = RecipePin | RecipeCommit | RecipeArchs
AnyFact = _Upstream | _Recipe | GlobalPin | Migration | Newest


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
        """Whether the source gave no facts, although it should."""
        return self.applies and bool(self.trouble or self.facts) and not known(self.facts)

    @property
    def missing(self) -> set[str]:
        """The names of facts without a value."""
        return {fact.name for fact in self.facts if fact.trouble}


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

    @property
    def is_compiled(self) -> bool:
        """Whether there are configs; without a recipe, it is unknown what is compiled."""
        return any(build.name for build in self.builds)
