"""What the audit's parts hand to each other: facts, each with what, where, who says it, and under which condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from msgspec import Struct

from megabuild.configs.config import Config


class Build(Struct, frozen=True, kw_only=True):
    """One config whose packages are looked at, as far as facts depend on it.

    Parameters
    ----------
    platform:
        conda's, ``linux-64``.
    accelerator:
        ``cpu`` or ``cuda130``.
    cuda:
        ``13.0``; empty for a CPU build.
    blas, provider:
        As in the config.
    """

    name: str
    platform: str
    accelerator: str
    cuda: str
    blas: str
    provider: str

    @classmethod
    def of(cls, config: Config) -> Build:
        """Return what facts depend on of a config."""
        return cls(
            name=config.name,
            platform=config.platform,
            accelerator=config.accelerator,
            cuda=config.cuda_version or "",
            blas=config.blas,
            provider=config.provider,
        )


class Holds(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The condition under which a fact holds; what is empty may be anything.

    Parameters
    ----------
    configs:
        Names of configs of this repository.
    platforms:
        conda's names.
    cuda:
        ``13.0``, or ``13`` for all that begin so.
    pythons:
        ``3.14``, ``3.1*``, or ``other`` than those named beside it.
    torch:
        The version of PyTorch.
    marker:
        A PEP 508 marker.
    elsewhere:
        Of builds that this repository does not make: ``XPU``.
    """

    configs: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    torch: str = ""
    marker: str = ""
    elsewhere: str = ""

    def met(self, build: Build) -> bool:
        """Whether a fact holds for a config; markers, Pythons and PyTorch's version are looked at by who judges."""
        return (
            not self.elsewhere
            and (not self.configs or build.name in self.configs)
            and (not self.platforms or build.platform in self.platforms)
            and (not self.cuda or bool({build.cuda, build.cuda.partition(".")[0]} & set(self.cuda)))
        )


class Where(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a value was read.

    Parameters
    ----------
    file:
        Path inside the tree, archive or index, or in this repository.
    line:
        Counted from 1, or None where there are no lines.
    url:
        For a person to open; without credentials. What an index has is named by ``index``, ``package`` and ``version``
        instead: which server that is, is each user's own affair.
    commit:
        Of the tree, in full; empty where there is none.
    date:
        Of the thing itself (commit, upload), ISO 8601, or empty.
    fetched:
        When it came over the network, ISO 8601 in UTC; empty for local files.
    """

    file: str = ""
    line: int | None = None
    url: str = ""
    index: str = ""
    package: str = ""
    version: str = ""
    commit: str = ""
    date: str = ""
    fetched: str = ""


class Fact(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=""):
    """One value of one dependency, in one place.

    Parameters
    ----------
    name:
        As the source calls it: ``third_party/fmt``, ``typing-extensions``, ``libprotobuf``.
    value:
        As it is shown: ``v2.1.0-705-ga6bfc23``, ``>=4.10.0``, ``*`` for any version; empty if there is ``trouble``.
    holds:
        The condition under which that is so.
    where:
        Where it was read.
    trouble:
        Why there is no value: a sentence for the cell.
    """

    who: ClassVar[str] = ""  #: says it, in a word for people

    name: str
    value: str = ""
    holds: Holds = Holds()
    where: Where = Where()
    trouble: str = ""

    @property
    def kind(self) -> str:
        """What it says, as in the JSON report."""
        return str(self.__struct_config__.tag)


class Submodule(Fact, frozen=True, kw_only=True, tag="submodule"):
    """A commit that upstream vendors, described by the nearest tag.

    Parameters
    ----------
    commit:
        In full.
    url, address:
        As .gitmodules has it, and what that means seen from its parent.
    note:
        What is not certain about it.
    moved:
        Where the server redirects to, if it does.
    """

    who = "submodule"

    commit: str = ""
    url: str = ""
    address: str = ""
    note: str = ""
    moved: str = ""


class TagCommit(Fact, frozen=True, kw_only=True, tag="commit"):
    """The commit of upstream's tag."""

    who = "tag"


class Requirement(Fact, frozen=True, kw_only=True, tag="requirement"):
    """A Requires-Dist of upstream's wheel; ``requirement`` is the whole line."""

    who = "wheel"

    requirement: str = ""


class CiPin(Fact, frozen=True, kw_only=True, tag="ci-pin"):
    """What upstream's CI builds and tests with; ``what`` the value is to it: ``of the wheels``."""

    who = "CI"

    what: str = ""


class RecipePin(Fact, frozen=True, kw_only=True, tag="recipe"):
    """What rendered variants of a recipe ask for.

    Parameters
    ----------
    sections:
        ``build``, ``host``, ``run``, ``constraint``.
    outputs:
        Packages that ask for it.
    key, asked_for_at:
        Of conda_build_config.yaml, when that decides the version; and then file and line of the recipe.
    """

    who = "recipe"

    sections: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    key: str = ""
    asked_for_at: str = ""


class Switch(Fact, frozen=True, kw_only=True, tag="switch"):
    """A switch of PyTorch's build as the recipe sets it."""

    who = "recipe"


class RecipeCommit(Fact, frozen=True, kw_only=True, tag="recipe-commit"):
    """What a recipe of this repository takes from git.

    Parameters
    ----------
    address:
        Of the repository.
    recipe:
        The package whose recipe that is.
    version:
        Of the audited package, as this repository builds it.
    key, asked_for_at:
        As in `RecipePin`.
    """

    who = "recipe"

    address: str = ""
    recipe: str = ""
    version: str = ""
    key: str = ""
    asked_for_at: str = ""


class GlobalPin(Fact, frozen=True, kw_only=True, tag="global-pin"):
    """A pin of conda-forge-pinning.

    Parameters
    ----------
    values:
        All that the key has where it holds, and ``lines`` where each stands.
    zipped_with:
        Keys whose values belong to these, row by row.
    """

    who = "conda-forge"

    values: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    zipped_with: tuple[str, ...] = ()


class Migration(GlobalPin, frozen=True, kw_only=True, tag="migration"):
    """A pin that conda-forge is moving to.

    Parameters
    ----------
    migration:
        Its name.
    paused:
        It is not going on.
    operation:
        ``replace``, or ``key_add`` where the value is added to those there are.
    excludes:
        Packages that it leaves out.
    """

    migration: str = ""
    paused: bool = False
    operation: str = "replace"
    excludes: tuple[str, ...] = ()


class Newest(Fact, frozen=True, kw_only=True, tag="newest"):
    """The newest version in the channel."""

    who = "conda-forge"


class UpstreamArchs(Fact, frozen=True, kw_only=True, tag="upstream-archs"):
    """GPU architectures of upstream's wheels, ``9.0``, ``12.0+PTX``; where they are no list, ``value`` says what."""

    who = "CI"

    archs: tuple[str, ...] = ()
    what: str = ""


class RecipeArchs(Fact, frozen=True, kw_only=True, tag="recipe-archs"):
    """GPU architectures that a recipe of this repository builds for; ``recipe`` is whose."""

    who = "recipe"

    archs: tuple[str, ...] = ()
    recipe: str = ""


AnyFact = (
    Submodule
    | TagCommit
    | Requirement
    | CiPin
    | RecipePin
    | Switch
    | RecipeCommit
    | GlobalPin
    | Migration
    | Newest
    | UpstreamArchs
    | RecipeArchs
)
UPSTREAM = (Submodule, Requirement, CiPin)


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one source found.

    Parameters
    ----------
    source:
        Its module's name: ``submodules``.
    trouble:
        Why the source as a whole says nothing, or less than it should; empty if all is well.
    """

    source: str
    facts: tuple[AnyFact, ...] = ()
    trouble: str = ""


class Target(Struct, frozen=True, kw_only=True):
    """What is audited.

    Parameters
    ----------
    package:
        ``pytorch``, ``pytorch_scatter``, …: as conda-forge calls it.
    version:
        ``2.13.0``.
    repository:
        Any address that git takes; a mirror may stand in.
    tag:
        Of the version in that repository: ``v2.13.0``, or a commit.
    wheel:
        The distribution's name.
    index:
        Where its wheels are, as in packages.yaml.
    builds:
        The configs whose variants are looked at.
    recipe:
        Its recipe.yaml, or None where this repository has none.
    """

    package: str
    version: str
    repository: str
    tag: str
    wheel: str
    builds: tuple[Build, ...]
    index: str = "pip"
    recipe: Path | None = None


class Tree(Protocol):
    """Upstream's files at the target's tag, whether from git or from a folder."""

    @property
    def commit(self) -> str:
        """Return the full commit, or an empty string where it is not known."""

    def names(self) -> Sequence[str]:
        """Return the paths of all files, sorted."""

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those files that exist; one request for all of them."""

    def url(self, path: str, line: int | None = None) -> str:
        """Return an address of a file for a person to open, or an empty string."""
