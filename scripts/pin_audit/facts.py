"""Facts, the data that the audit's parts exchange: each a value with its source, place and condition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec
from msgspec import Struct

from megabuild.configs.config import Config

Converted = TypeVar("Converted", bound=type[Struct])


def resolve_types(kind: Converted) -> Converted:
    """Let msgspec fill in the types of a Struct's fields now: two threads that both do it first crash the process."""
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
        """Return those of a config."""
        return cls(
            name=config.name, platform=config.platform, accelerator=config.accelerator,
            cuda=config.cuda_version or "", blas=config.blas, provider=config.provider,
        )  # fmt: skip


class Scope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The condition under which a fact holds; an empty field does not restrict it."""

    configs: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()  #: by conda's names
    cuda: tuple[str, ...] = ()  #: ``13.0``, ``13`` for all that begin so, or ``None`` for builds without CUDA
    torch: str = ""  #: the version of PyTorch
    marker: str = ""  #: of PEP 508

    def words(self, builds: Sequence[Build] = ()) -> str:
        """Return where a fact holds among the audited configs; an empty string for everywhere."""
        with_cuda = [version for version in self.cuda if version != "None"]
        parts = [
            "CPU" if "None" in self.cuda else "",
            f"CUDA {', '.join(with_cuda)}" if with_cuda else "",
            ", ".join(self.platforms),
            f"PyTorch {self.torch}" if self.torch else "",
            self.marker,
            config_words(self.configs, builds),
        ]
        return ", ".join(filter(None, parts))

    def matches(self, build: Build) -> bool:
        """Whether a fact holds for a config, apart from markers and PyTorch's version."""
        cuda = {build.cuda or "None", build.cuda.partition(".")[0] or "None"}
        return (
            (not self.configs or build.name in self.configs)
            and (not self.platforms or build.platform in self.platforms)
            and (not self.cuda or not cuda.isdisjoint(self.cuda))
        )


def config_words(chosen: Iterable[str], builds: Sequence[Build]) -> str:
    """Return words for a set of configs: ``cuda129``, ``linux-64 cpu``, or their names if no such words fit.

    An empty string stands for all configs.
    """
    names = frozenset(chosen)
    if not names or names >= {build.name for build in builds}:
        return ""
    # in the order in which they are left out where the others say enough
    traits = ["platform", "blas", "provider", "accelerator"]
    values = {trait: {getattr(build, trait) for build in builds if build.name in names} for trait in traits}

    def fits(kept: Iterable[str]) -> bool:
        kept = [*kept]
        fitting = (build for build in builds if all(getattr(build, trait) in values[trait] for trait in kept))
        return names == {build.name for build in fitting}

    if not fits(traits):
        groups = [
            {b.name for b in builds if b.accelerator == value} & names for value in values["accelerator"]
        ]
        words = [config_words(group, builds) for group in groups] if len(groups) > 1 else names
        return ", ".join(sorted(words))
    for trait in tuple(traits):
        if fits(other for other in traits if other != trait):
            traits.remove(trait)
    values["platform"] = set(short_platforms(values["platform"]))
    order = ("platform", "accelerator", "blas", "provider")
    return " ".join("/".join(sorted(values[trait])) for trait in order if trait in traits)


def short_platforms(platforms: Iterable[str]) -> list[str]:
    """Return platforms in short: ``linux`` for both of Linux."""
    names = set(platforms)
    for system in ("linux", "osx"):
        both = {name for name in names if name.startswith(system)}
        names = (names - both) | {system} if len(both) > 1 else names
    return sorted(names)


class Where(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a value was read. Which server an index is on is each user's own affair."""

    file: str = ""  #: path inside the tree, archive or index, or in this repository
    line: int | None = None  #: counted from 1
    url: str = ""  #: for a person to open; without credentials
    index: str = ""
    package: str = ""
    version: str = ""
    commit: str = ""  #: of the tree, in full
    fetched: str = ""  #: when it came over the network, ISO 8601 in UTC
    inferred: str = ""  #: why the value is believed, if it was not read there


class Fact(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=""):
    """One value of one dependency, in one place."""

    who: ClassVar[str] = ""  #: whose statement it is, in a word for people

    name: str  #: as the source calls it: ``third_party/fmt``, ``typing-extensions``, ``libprotobuf``
    value: str = ""  #: as it is shown: ``v2.1.0-705-ga6bfc23``, ``>=4.10.0``, ``*`` for any version
    holds: Scope = Scope()
    where: Where = Where()
    trouble: str = ""  #: why it has no value: a sentence for the cell

    @property
    def kind(self) -> str:
        """The kind of fact, as in the JSON report."""
        return str(self.__struct_config__.tag)


class Submodule(Fact, frozen=True, kw_only=True, tag="submodule"):
    """A commit that upstream vendors, described by its tag or the nearest one, and the address it comes from."""

    who = "submodule"

    commit: str = ""
    address: str = ""
    day: str = ""  #: of the commit, where no tag describes it and the value is only the commit's first digits

    @property
    def text(self) -> str:
        """The value for people."""
        return ", ".join(filter(None, (self.value, self.day)))


class TagCommit(Fact, frozen=True, kw_only=True, tag="commit"):
    """The commit of upstream's tag."""

    who = "tag"


class Requirement(Fact, frozen=True, kw_only=True, tag="requirement"):
    """A Requires-Dist of upstream's wheel."""

    who = "wheel"


class CiPin(Fact, frozen=True, kw_only=True, tag="ci-pin"):
    """What upstream's CI builds and tests with; ``what`` the value is to it: ``of the wheels``."""

    who = "CI"

    what: str = ""

    @property
    def shipped(self) -> bool:
        """Whether the wheels themselves say so, rather than a file of upstream's tree."""
        return bool(self.where.index)


class RecipePin(Fact, frozen=True, kw_only=True, tag="recipe"):
    """What rendered variants of a recipe ask for, in the sections ``build``, ``host``, ``run``, ``constraint``."""

    sections: tuple[str, ...] = ()
    rendered: bool = False  #: whether a feedstock's rendered configs have the value


class RecipeCommit(Fact, frozen=True, kw_only=True, tag="recipe-commit"):
    """What a recipe of this repository takes from git."""

    address: str = ""  #: of the repository
    recipe: str = ""  #: the package whose recipe that is
    version: str = ""  #: of the audited package, as this repository builds it


class GlobalPin(Fact, frozen=True, kw_only=True, tag="global-pin"):
    """A pin of conda-forge-pinning; ``values`` are all that the key has where it holds."""

    values: tuple[str, ...] = ()


class Migration(GlobalPin, frozen=True, kw_only=True, tag="migration"):
    """A pin that conda-forge is moving to, by the migration of that name."""

    migration: str = ""
    paused: bool = False


class FeedstockPin(Fact, frozen=True, kw_only=True, tag="feedstock-pin"):
    """What conda-forge's own feedstock builds with: a key of its rendered configs."""


class Newest(Fact, frozen=True, kw_only=True, tag="newest"):
    """The newest version in the channel."""


class UpstreamArchs(Fact, frozen=True, kw_only=True, tag="upstream-archs"):
    """GPU architectures of upstream's wheels, ``9.0``, ``12.0+PTX``; where they are not a list, ``value`` says what."""

    who = "CI"

    archs: tuple[str, ...] = ()
    what: str = ""


class RecipeArchs(Fact, frozen=True, kw_only=True, tag="recipe-archs"):
    """GPU architectures that the recipe builds for."""

    archs: tuple[str, ...] = ()


_Upstream = Submodule | TagCommit | Requirement | CiPin | UpstreamArchs
_Recipe = RecipePin | RecipeCommit | RecipeArchs
AnyFact = _Upstream | _Recipe | GlobalPin | Migration | FeedstockPin | Newest
UPSTREAM = (Submodule, Requirement, CiPin)  #: what names versions
#: Sources whose values change from day to day: an old one of them is shown, and is no ground for a gate.
MOVING = ("channel", "pinning", "feedstock")


@resolve_types
class SourceOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one source found."""

    source: str  #: its module's name: ``submodules``
    facts: tuple[AnyFact, ...] = ()
    trouble: str = ""  #: why it failed, wholly or in part; empty on success
    applies: bool = True  #: False if the source knows nothing about this package
    snapshot: str = ""  #: the day of the snapshot that stands in for all of it

    @property
    def unread(self) -> bool:
        """Whether nothing could be read from it that holds today."""
        if self.snapshot and self.source in MOVING:
            return True
        return self.applies and bool(self.trouble or self.facts) and all(fact.trouble for fact in self.facts)


class AuditTarget(Struct, frozen=True, kw_only=True):
    """What is audited."""

    package: str  #: ``pytorch_scatter``, as conda-forge calls it
    version: str
    repository: str  #: any address that git takes; a mirror may stand in
    tag: str  #: of the version in that repository: ``v2.13.0``, or a commit
    wheel: str  #: the distribution's name
    builds: tuple[Build, ...]  #: the configs whose variants are audited
    index: str = "pip"  #: where its wheels are, as in packages.yaml
    recipe: Path | None = None  #: its recipe.yaml, or None where this repository has none
