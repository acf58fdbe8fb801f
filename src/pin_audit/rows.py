"""A row of the table, with upstream's constraints, the recipe's requirements, and conda-forge's versions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from packaging.markers import InvalidMarker, Marker

from pin_audit.facts import (
    AnyFact,
    Build,
    Fact,
    GlobalPin,
    Kind,
    Newest,
    RecipeCommit,
    RecipePin,
    Requirement,
    Section,
    Submodule,
    UpstreamVersion,
    known,
    of_kind,
)
from pin_audit.name_map import Dependency
from pin_audit.statuses import Status
from pin_audit.versions import Spec, described, lowest, newest, pin

ANY = "any version"  #: the text of a requirement without a version
_CUDA_TAG = re.compile(r"^cu(\d{2})(\d)$")
_COMPARISON = re.compile(r"\s*[<>=!~]")
_CUDA_RUNTIME = re.compile(r"cuda-toolkit$|nvidia-cuda-runtime")
#: Requirements of one minor version of CUDA: ``==13.0.3``, ``==13.0.*``, ``~=13.0.48``.
_ONE_MINOR = re.compile(r"={2,3}\s*(\d+\.\d+)(?:\.[\d.*]+)?|~=\s*(\d+\.\d+)\.[\d.]+")
#: NVIDIA's suffix for a major version of CUDA: ``nvidia-nccl-cu12``.
_CUDA_SUFFIX = re.compile(r"-cu(\d+)$")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)""")
#: Python's names of machines that conda names differently, by platform.
_MACHINES = {"linux-64": "x86_64", "osx-64": "x86_64", "win-64": "AMD64", "win-arm64": "ARM64"}


class _SystemNames(NamedTuple):
    """Python's names of a system, as markers have them."""

    sys_platform: str
    platform_system: str
    os_name: str


_SYSTEMS = {
    "linux": _SystemNames("linux", "Linux", "posix"),
    "osx": _SystemNames("darwin", "Darwin", "posix"),
    "win": _SystemNames("win32", "Windows", "nt"),
}


class Use(str, Enum):
    """How the copy of a dependency that upstream vendors is used."""

    VENDORED = "vendored"  #: compiled in
    SYSTEM = "system"  #: replaced by the environment's
    UNUSED = "unused"  #: never compiled
    LISTED = "listed"  #: no recipe says


@dataclass(frozen=True)
class Verdict:
    """A status, the sentence that explains it, and the action to take."""

    status: Status
    sentence: str
    todo: str = ""

    @property
    def gravity(self) -> int:
        """The rank of the status; 0 is the gravest."""
        return self.status.gravity


_NOT_JUDGED = Verdict(Status.UNKNOWN, "not judged")


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """One dependency, or the GPU architectures of one CUDA version."""

    #: Conda-forge's name, a submodule's path if it has none, or ``CUDA 13.0``.
    name: str
    facts: tuple[AnyFact, ...]  #: in a stable order
    builds: tuple[Build, ...]  #: all audited configs
    entry: Dependency
    use: Use | None = None  #: None if upstream vendors no copy
    decided_by: str = ""  #: the row that decides this one's version
    wheel_cuda: str = ""  #: the CUDA version of upstream's wheels: ``13.0``, or ``13`` for all of 13.x
    troubles: Mapping[str, str] = field(default_factory=dict)  #: by source: why it has no facts
    verdict: Verdict = _NOT_JUDGED

    @property
    def vendored_only(self) -> bool:
        """Whether upstream vendors it and the recipe does not name it."""
        return self.use is not None and not self.all(RecipePin, RecipeCommit)

    @property
    def is_python(self) -> bool:
        """Whether this is the row of Python, of which the recipe has several versions."""
        return self.name == "python"

    def all(self, *kinds: type[Kind]) -> list[Kind]:
        """Return the facts of some kinds."""
        return of_kind(self.facts, *kinds)

    def names_where(self, fact: Fact) -> frozenset[str]:
        """Return the names of the configs for which a fact holds, apart from markers."""
        return frozenset(build.name for build in self.builds if fact.holds.matches(build))


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """Versions that the recipe requires or upstream names, and the configs to which they apply."""

    fact: Fact
    spec: Spec
    configs: frozenset[str]
    text: str  #: as written; conda-forge's version in parentheses if it differs
    version: str = ""  #: the one that upstream names: ``2.1.0``, of a tag or of a commit after it
    hard: bool = False  #: from the wheel's metadata, which pip enforces; others are only known to work

    def is_in(self, sections: Collection[Section]) -> bool:
        """Whether it is one of the recipe's, in one of the sections."""
        return isinstance(self.fact, RecipePin) and not set(sections).isdisjoint(self.fact.sections)


def requirements_of(row: AuditRow) -> list[Constraint]:
    """Return the recipe's constraints; a bare name counts only for configs where the row has no version."""
    pinning = []
    bare = []
    for fact in row.all(RecipePin):
        spec = Spec(fact.value)
        if fact.excludes or not spec.readable:
            continue
        configs = row.names_where(fact)
        if not spec.any:
            text = fact.value.partition(" ")[0]
            pinning.append(Constraint(fact=fact, spec=spec, configs=configs, text=text))
        else:
            text = ANY if fact.allows_any else fact.value
            bare.append(Constraint(fact=fact, spec=spec, configs=configs, text=text))
    pinned = frozenset[str]().union(*(constraint.configs for constraint in pinning))
    left = [replace(constraint, configs=constraint.configs - pinned) for constraint in bare]
    return [*pinning, *(constraint for constraint in left if constraint.configs)]


def constraints_of(row: AuditRow) -> list[Constraint]:
    """Return upstream's constraints for the audited configs; facts without a version are skipped."""
    named = []
    for fact in known(row.all(UpstreamVersion)):
        configs = frozenset(build.name for build in row.builds if _holds(fact, build, row))
        if not configs:
            continue
        hard = isinstance(fact, Requirement)
        if hard or _COMPARISON.match(fact.value):
            spec = Spec(row.entry.counted(fact.value))
            if spec.readable and not spec.any:
                named.append(
                    Constraint(
                        fact=fact, spec=spec, configs=configs, text=fact.value, version=spec.exact, hard=hard
                    )
                )
        elif not _is_undescribed(fact):
            named += _exact_constraints(fact, configs, row.entry)
    return named


def _is_undescribed(fact: Fact) -> bool:
    """Whether no tag describes a submodule's commit, so that its value is the commit."""
    return isinstance(fact, Submodule) and bool(fact.commit) and fact.commit.startswith(fact.value)


def _exact_constraints(fact: Fact, configs: frozenset[str], entry: Dependency) -> Iterable[Constraint]:
    """Yield a constraint for each version that a fact lists: ``v2.1.0-705-ga6bfc23``, ``3.11, 3.12``, ``cu130``."""
    for word in fact.value.split(", "):
        tag = described(_CUDA_TAG.sub(r"\1.\2", word))
        if not tag:
            continue
        version = entry.release(tag)
        text = fact.value if version == tag else f"{fact.value} ({version})"
        yield Constraint(fact=fact, spec=Spec(f"=={version}"), configs=configs, text=text, version=version)


def first_line(facts: Iterable[Fact]) -> str:
    """Return the file and line of the first fact that has a line, ``" (recipe/recipe.yaml:12)"``, or nothing."""
    for fact in facts:
        if fact.where.line:
            return f" ({fact.where.file}:{fact.where.line})"
    return ""


def cuda_of_wheel(facts: Iterable[Fact]) -> str:
    """Return the CUDA version in a wheel's requirements: ``13.0``, or ``13`` if they admit all of 13.x.

    Empty if they name none, or several, as extras for different versions do.
    """
    runtimes = [fact for fact in of_kind(facts, Requirement) if _CUDA_RUNTIME.match(fact.name)]
    versions = set(map(_cuda_of, runtimes)) - {""}
    minors = {version for version in versions if "." in version}
    found = minors or versions
    return found.pop() if len(found) == 1 else ""


def _cuda_of(runtime: Requirement) -> str:
    """Return the CUDA version, or its major number, that a requirement on CUDA's runtime admits; may be empty."""
    one = _ONE_MINOR.fullmatch(runtime.value)
    if one is not None:
        return one[1] or one[2]
    major = _cuda_in_name(runtime) or lowest(Spec(runtime.value)).partition(".")[0]
    return "" if major == "0" else major


def _cuda_in_name(fact: Fact) -> str:
    """Return the major version of CUDA in the name of an NVIDIA package; empty if it has none."""
    suffix = _CUDA_SUFFIX.search(fact.name)
    return suffix[1] if suffix else ""


def pins(row: AuditRow, configs: Collection[str], of: str = "") -> list[str]:
    """Return conda-forge's pins for any of the configs: of the whole row, or of the package ``of``."""
    values = []
    for fact in row.all(GlobalPin):
        if of and fact.name not in row.entry.keys and not _same_name(fact.name, of):
            continue
        if not row.names_where(fact).isdisjoint(configs):
            values += [value for value in fact.versions if pin(value).readable]
    return values


def _same_name(one: str, other: str) -> bool:
    """Whether a key of conda_build_config.yaml is a package's name, in which hyphens become underscores."""
    return one.replace("-", "_") == other.replace("-", "_")


def best_for(row: AuditRow, configs: Collection[str] | None = None) -> str:
    """Return the newest version of the row's first package, on any platform or on those of `configs`; may be empty."""
    first = row.entry.conda[:1] or (row.entry.name,)
    platforms = {build.platform for build in row.builds if configs is None or build.name in configs}
    versions = []
    for fact in known(row.all(Newest)):
        if fact.name not in first:
            continue
        anywhere = configs is None or not fact.holds.platforms
        if anywhere or not platforms.isdisjoint(fact.holds.platforms):
            versions.append(fact.value)
    return newest(versions)


def is_floor(row: AuditRow, version: str) -> bool:
    """Whether the channel may have newer versions than `version`, which is inferred from an older snapshot."""
    return any(fact.value == version and fact.where.inferred for fact in row.all(Newest))


def _holds(fact: Fact, build: Build, row: AuditRow) -> bool:
    if isinstance(fact, Requirement) and fact.is_of_nvidia and not _is_for_cuda(fact, build, row):
        return False
    if isinstance(fact, Requirement) and row.entry.cuda and not _has_cuda(build, row):
        return False
    if not fact.holds.matches(build):
        return False
    if not fact.holds.marker:
        return True
    try:
        return Marker(fact.holds.marker).evaluate(_marker_environment(fact.holds.marker, build))
    except (InvalidMarker, KeyError, ValueError):
        return True


def _is_for_cuda(fact: Fact, build: Build, row: AuditRow) -> bool:
    """Whether a config has the CUDA that one of NVIDIA's packages is for: the wheel's, else that in its name."""
    version = row.wheel_cuda or _cuda_in_name(fact)
    if version:
        return version in (build.cuda, build.cuda.partition(".")[0])
    return _has_cuda(build, row)


def _has_cuda(build: Build, row: AuditRow) -> bool:
    """Whether a config has CUDA; a feedstock without such configs still compares what these need."""
    return bool(build.cuda) or not any(other.cuda for other in row.builds)


def _marker_environment(marker: str, build: Build) -> dict[str, str]:
    """Return a config's values of a marker's variables; an extra in the marker counts as wanted."""
    _, _, machine = build.platform.partition("-")
    extra = _EXTRA.search(marker)
    # the rest is the same on all platforms of conda-forge: CPython
    return {
        "extra": extra[1] if extra else "",
        **_SYSTEMS[build.system]._asdict(),
        "platform_machine": _MACHINES.get(build.platform, machine),
        "python_version": "3.12",  # wheel_metadata reads the wheels of this Python
        "python_full_version": "3.12.0",
    }
