"""Facts, the data that the audit's parts exchange: each a value with its source, place and condition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from groundwork.text import plain
from megabuild.configs.config import Config

Converted = TypeVar("Converted", bound=type[Struct])


def resolve_types(kind: Converted) -> Converted:
    """Let msgspec fill in the types of a Struct's fields now, in one thread.

    It does so at the first conversion otherwise, and two threads that both make the first one crash the process.
    """
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
            name=config.name,
            platform=config.platform,
            accelerator=config.accelerator,
            cuda=config.cuda_version or "",
            blas=config.blas,
            provider=config.provider,
        )


class Scope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The condition under which a fact holds; an empty field does not restrict it."""

    configs: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()  #: by conda's names
    cuda: tuple[str, ...] = ()  #: ``13.0``, ``13`` for all that begin so, or ``None`` for builds without CUDA
    pythons: tuple[str, ...] = ()  #: ``3.14``, ``3.1*``, or ``other`` than those named beside it
    torch: str = ""  #: the version of PyTorch
    marker: str = ""  #: of PEP 508

    def words(self, builds: Sequence[Build]) -> str:
        """Return where a fact holds among the audited configs; an empty string for everywhere."""
        with_cuda = [one for one in self.cuda if one != "None"]
        parts = [
            "CPU" if "None" in self.cuda else "",
            f"CUDA {', '.join(with_cuda)}" if with_cuda else "",
            ", ".join(self.platforms),
            f"Python {', '.join(self.pythons)}" if self.pythons else "",
            f"PyTorch {self.torch}" if self.torch else "",
            self.marker,
            config_words(self.configs, builds),
        ]
        return ", ".join(filter(None, parts))

    def matches(self, build: Build) -> bool:
        """Whether a fact holds for a config, apart from markers, Pythons and PyTorch's version."""
        return (
            (not self.configs or build.name in self.configs)
            and (not self.platforms or build.platform in self.platforms)
            and (
                not self.cuda
                or bool({build.cuda or "None", build.cuda.partition(".")[0] or "None"} & set(self.cuda))
            )
        )


def config_words(chosen: Iterable[str], builds: Sequence[Build]) -> str:
    """Return words for a set of configs: ``cuda129``, ``linux-64 cpu``, ``mkl``, or their names if no such words fit.

    An empty string stands for all; several words hold together, what stands between commas apart.
    """
    names = frozenset(chosen)
    if not names or names >= {build.name for build in builds}:
        return ""
    # in the order in which they are left out where the others say enough
    traits = ("platform", "blas", "provider", "accelerator")
    has = {trait: {getattr(build, trait) for build in builds if build.name in names} for trait in traits}

    def fit(kept: Sequence[str]) -> bool:
        return names == {
            build.name for build in builds if all(getattr(build, one) in has[one] for one in kept)
        }

    kept = list(traits)
    if fit(kept):
        for trait in traits:
            without = [one for one in kept if one != trait]
            kept = without if fit(without) else kept
        order = ("platform", "accelerator", "blas", "provider")
        has["platform"] = set(short_platforms(has["platform"]))
        return " ".join("/".join(sorted(has[trait])) for trait in order if trait in kept)
    if len(has["accelerator"]) > 1:
        groups = ({b.name for b in builds if b.accelerator == one} & names for one in has["accelerator"])
        return ", ".join(sorted(config_words(group, builds) for group in groups))
    return ", ".join(sorted(names))


def short_platforms(platforms: Iterable[str]) -> list[str]:
    """Return platforms in short: ``linux`` for both of Linux."""
    found = set(platforms)
    for system in ("linux", "osx"):
        both = {name for name in found if name.startswith(system)}
        if len(both) > 1:
            found = (found - both) | {system}
    return sorted(found)


class Where(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a value was read.

    What an index has is named by index, package and version: which server that is, is each user's own affair.
    """

    file: str = ""  #: path inside the tree, archive or index, or in this repository
    line: int | None = None  #: counted from 1
    url: str = ""  #: for a person to open; without credentials
    index: str = ""
    package: str = ""
    version: str = ""
    commit: str = ""  #: of the tree, in full
    fetched: str = ""  #: when it came over the network, ISO 8601 in UTC
    inferred: str = (
        ""  #: why the value is believed, if it was not read there: ``the same in 2.12.0 and 2.14.0``
    )


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
    """A commit that upstream vendors, described by the nearest tag, and the address it comes from."""

    who = "submodule"

    commit: str = ""
    address: str = ""
    tag: str = ""  #: exactly on the commit, where git's description, the value, is another one
    day: str = ""  #: of the commit, where no tag describes it and the value is only the commit's first digits

    @property
    def text(self) -> str:
        """The value for people."""
        return self.tag or ", ".join(filter(None, (self.value, self.day)))

    @property
    def untagged(self) -> bool:
        """Whether the value is no more than the commit, since no tag is near."""
        return bool(self.commit) and not self.tag and self.commit.startswith(self.value)


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

    who = "recipe"

    sections: tuple[str, ...] = ()
    rendered: bool = False  #: whether a feedstock's rendered configs have the value, and not its recipe


class Switch(Fact, frozen=True, kw_only=True, tag="switch"):
    """A switch of PyTorch's build as the recipe sets it."""

    who = "recipe"


class RecipeCommit(Fact, frozen=True, kw_only=True, tag="recipe-commit"):
    """What a recipe of this repository takes from git."""

    who = "recipe"

    address: str = ""  #: of the repository
    recipe: str = ""  #: the package whose recipe that is
    version: str = ""  #: of the audited package, as this repository builds it


class GlobalPin(Fact, frozen=True, kw_only=True, tag="global-pin"):
    """A pin of conda-forge-pinning; ``values`` are all that the key has where it holds."""

    who = "conda-forge"

    values: tuple[str, ...] = ()


class Migration(GlobalPin, frozen=True, kw_only=True, tag="migration"):
    """A pin that conda-forge is moving to, by the migration of that name."""

    migration: str = ""
    paused: bool = False


class FeedstockPin(Fact, frozen=True, kw_only=True, tag="feedstock-pin"):
    """What conda-forge's own feedstock builds with: a key of its rendered configs."""

    who = "feedstock"


class Newest(Fact, frozen=True, kw_only=True, tag="newest"):
    """The newest version in the channel."""

    who = "conda-forge"


class UpstreamArchs(Fact, frozen=True, kw_only=True, tag="upstream-archs"):
    """GPU architectures of upstream's wheels, ``9.0``, ``12.0+PTX``; where they are not a list, ``value`` says what."""

    who = "CI"

    archs: tuple[str, ...] = ()
    what: str = ""


class RecipeArchs(Fact, frozen=True, kw_only=True, tag="recipe-archs"):
    """GPU architectures that a recipe of this repository builds for; ``recipe`` is whose."""

    who = "recipe"

    archs: tuple[str, ...] = ()
    recipe: str = ""


_Upstream = Submodule | TagCommit | Requirement | CiPin | UpstreamArchs
_Recipe = RecipePin | Switch | RecipeCommit | RecipeArchs
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
    snapshot: str = ""  #: the day of the snapshot that stands in, for all or a part

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


def sanitized(outcome: SourceOutcome) -> SourceOutcome:
    """Return what a source found, with all text made `plain`."""
    return msgspec.convert(_plain(msgspec.to_builtins(outcome)), SourceOutcome)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
