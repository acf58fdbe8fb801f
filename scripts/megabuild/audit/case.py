"""A row before it is judged: what upstream claims in it, what the recipe asks for, and what conda-forge has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from packaging.markers import InvalidMarker, Marker

from megabuild.audit.facts import (
    AnyFact,
    Build,
    CiPin,
    Fact,
    GlobalPin,
    Newest,
    RecipePin,
    Requirement,
    Submodule,
)
from megabuild.audit.names import Entry
from megabuild.audit.specs import Spec, described, is_version, newest, pin

_CUDA_TAG = re.compile(r"^cu(\d{2})(\d)$")
_MACHINES = {"64": "x86_64", "aarch64": "aarch64", "arm64": "arm64"}
_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


class Status(str, Enum):
    """A row's status, the gravest first."""

    CONFLICT = "conflict"
    OLDER = "recipe older"
    NEWER = "recipe newer"
    MISSING = "pin missing"
    UNKNOWN = "unknown"
    UNPINNED = "upstream unpinned"
    IN_STEP = "in step"


GRAVITY = tuple(Status)
Judged = tuple[Status, str]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row before it is judged; the fields are those of `megabuild.audit.rows.Row`.

    Parameters
    ----------
    builds:
        All configs that are looked at.
    wheel_cuda:
        The CUDA version that upstream's wheels are for, or empty.
    troubles:
        By source: why it says nothing in the whole table.
    decided_by:
        The row that decides this one's version, or empty.
    torch:
        The PyTorch that an extension's recipe asks for, or empty.
    """

    entry: Entry
    use: str
    why: str
    facts: tuple[AnyFact, ...]
    builds: tuple[Build, ...]
    wheel_cuda: str
    troubles: Mapping[str, str]
    decided_by: str
    torch: str = ""

    def where(self, fact: Fact) -> frozenset[str]:
        """Return the names of the configs for which a fact holds."""
        return frozenset(build.name for build in self.builds if fact.holds.met(build))

    def platforms(self, configs: Collection[str]) -> frozenset[str]:
        """Return conda's platforms of some configs."""
        return frozenset(build.platform for build in self.builds if build.name in configs)


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What the recipe asks for, for some configs."""

    fact: RecipePin
    spec: Spec
    configs: frozenset[str]

    @property
    def text(self) -> str:
        """What it asks for, without a build string that comes with a version."""
        if self.fact.value == "*":
            return "any version"
        return self.fact.value if self.spec.any else self.fact.value.partition(" ")[0]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A version, or a range of versions, that upstream names.

    Parameters
    ----------
    fact:
        Where it says so.
    spec:
        What it admits.
    version:
        Where it names one: ``2.1.0``, of a tag or of a commit after it.
    hard:
        The wheel's metadata: pip holds everybody to it. What upstream vendors or tests with is known to work, no more.
    configs:
        For which it holds.
    """

    fact: Fact
    spec: Spec
    version: str
    hard: bool
    configs: frozenset[str]


def excludes(fact: Fact) -> bool:
    """Whether the recipe says that a package must not be there, in the usual way: older than anything."""
    return isinstance(fact, RecipePin) and fact.value.startswith("<0.0a")


def asks_of(case: Case) -> list[Ask]:
    """Return what the recipe asks for; a bare name beside a pinned one of the same row means what that one lets it."""
    found = [
        Ask(fact=one, spec=Spec(one.value), configs=case.where(one))
        for one in case.facts
        if isinstance(one, RecipePin) and not excludes(one) and Spec(one.value).readable
    ]
    pinned = frozenset[str]().union(*(ask.configs for ask in found if not ask.spec.any))
    return [
        replace(ask, configs=ask.configs - pinned) if ask.spec.any else ask
        for ask in found
        if not ask.spec.any or ask.configs - pinned
    ]


def claims_of(case: Case) -> list[Claim]:
    """Return what upstream claims for configs that are looked at; what names no version claims nothing."""
    found = []
    for fact in case.facts:
        if fact.trouble or (case.torch and fact.holds.torch not in ("", case.torch)):
            continue
        where = frozenset(build.name for build in case.builds if _holds(fact, build, case.wheel_cuda))
        if isinstance(fact, Requirement):
            spec = Spec(fact.value, pep440=True)
            if spec.readable and not spec.any and where:
                found.append(Claim(fact=fact, spec=spec, version=spec.exact, hard=True, configs=where))
        elif isinstance(fact, (Submodule, CiPin)) and where:
            found += _soft(fact, where)
    return found


def is_optional(fact: Fact) -> bool:
    """Whether a requirement is one of an extra, which an installation need not have."""
    return isinstance(fact, Requirement) and "extra" in fact.holds.marker


def cuda_of_wheel(facts: Iterable[Fact]) -> str:
    """Return the CUDA version that a wheel's requirements are for, or an empty string."""
    for fact in facts:
        if isinstance(fact, Requirement) and re.match(r"cuda-toolkit$|nvidia-cuda-runtime", fact.name):
            numbers = re.findall(r"\d+", fact.value)
            if len(numbers) > 1:
                return ".".join(numbers[:2])
    return ""


def pins(case: Case, configs: frozenset[str], of: str = "") -> list[str]:
    """Return the values of conda-forge's pins that hold for any of the configs; all, or those ``of`` one package."""
    platforms = case.platforms(configs)
    word = of.replace("-", "_")
    return [
        value
        for one in case.facts
        if isinstance(one, GlobalPin) and (not one.holds.platforms or platforms & set(one.holds.platforms))
        if not word or one.name.replace("-", "_") == word or one.name in case.entry.keys
        for value in one.values
        if pin(value).readable
    ]


def newest_versions(case: Case) -> list[Newest]:
    """Return the newest versions of the row's first package."""
    first = case.entry.conda[:1] or (case.entry.name,)
    return [
        one
        for one in case.facts
        if isinstance(one, Newest) and not one.trouble and one.name in first and is_version(one.value)
    ]


def best_for(case: Case, configs: frozenset[str]) -> str:
    """Return the newest version that any of some configs could get; empty where there is none."""
    wanted = case.platforms(configs) | {"noarch"}
    return newest(
        one.value
        for one in newest_versions(case)
        if not one.holds.platforms or set(one.holds.platforms) & wanted
    )


def _soft(fact: Fact, configs: frozenset[str]) -> list[Claim]:
    value = fact.value.strip()
    if re.match(r"[<>=!~]", value):
        spec = Spec(value, pep440=True)
        if spec.readable:
            return [Claim(fact=fact, spec=spec, version=spec.exact, hard=False, configs=configs)]
        return []
    if isinstance(fact, Submodule) and fact.commit and fact.commit.startswith(value):
        return []  # no tag to describe it by
    versions = (described(_CUDA_TAG.sub(r"\1.\2", word))[0] for word in value.split(", "))
    return [
        Claim(fact=fact, spec=Spec(f"=={version}"), version=version, hard=False, configs=configs)
        for version in versions
        if version
    ]


def _holds(fact: Fact, build: Build, wheel_cuda: str) -> bool:
    wheels = isinstance(fact, Requirement)
    if wheels and re.match(r"(nvidia|cuda)-", fact.name) and build.cuda != wheel_cuda:
        return False
    # what CI tests with counts for any Python; wheels are read as CPython 3.12's
    pythons = ("3.12",) if wheels else _PYTHONS
    return fact.holds.met(build) and _marker_holds(fact.holds.marker, build.platform, pythons)


def _marker_holds(text: str, platform: str, pythons: Sequence[str]) -> bool:
    if not text:
        return True
    system, _, machine = platform.partition("-")
    extra = re.search(r"""extra\s*==\s*["']([^"']+)""", text)
    environment = {
        "extra": extra[1] if extra else "",
        "os_name": "posix",
        "sys_platform": "darwin" if system == "osx" else "linux",
        "platform_system": "Darwin" if system == "osx" else "Linux",
        "platform_machine": _MACHINES.get(machine, machine),
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    try:
        marker = Marker(text)
        return any(
            marker.evaluate({**environment, "python_version": python, "python_full_version": f"{python}.0"})
            for python in pythons
        )
    except (InvalidMarker, KeyError, ValueError):
        return True
