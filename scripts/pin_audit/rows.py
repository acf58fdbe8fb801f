"""A row of the table, with upstream's constraints, the recipe's requirements, and conda-forge's versions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from packaging.markers import InvalidMarker, Marker

from pin_audit.facts import (
    UPSTREAM,
    AnyFact,
    Build,
    Fact,
    GlobalPin,
    Newest,
    RecipeCommit,
    RecipePin,
    Requirement,
    Submodule,
)
from pin_audit.name_map import Dependency
from pin_audit.statuses import Status as Status
from pin_audit.versions import Spec, described, newest, pin

_CUDA_TAG = re.compile(r"^cu(\d{2})(\d)$")


ANY = "any version"  #: the text of a requirement without a version
Kind = TypeVar("Kind", bound=Fact)


class Verdict(NamedTuple):
    """A status, the sentence that explains it, and the action to take."""

    status: Status
    sentence: str
    todo: str = ""

    @property
    def gravity(self) -> int:
        """The rank of the status; 0 is the gravest."""
        return list(Status).index(self.status)


_NOT_JUDGED = Verdict(Status.UNKNOWN, "not judged")


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """One dependency, or the GPU architectures of one CUDA version."""

    #: Conda-forge's name, a submodule's path if it has none, or ``CUDA 13.0``.
    name: str
    facts: tuple[AnyFact, ...]  #: in a stable order
    builds: tuple[Build, ...]  #: all audited configs
    entry: Dependency
    #: How upstream's copy is used: ``vendored`` (compiled in), ``system`` (replaced by the environment's), ``unused``,
    #: or ``listed`` (no recipe says).
    use: str = ""
    decided_by: str = ""  #: the row that decides this one's version
    wheel_cuda: str = ""  #: the CUDA version of upstream's wheels
    troubles: Mapping[str, str] = field(default_factory=dict)  #: by source: why it has no facts
    verdict: Verdict = _NOT_JUDGED

    @property
    def vendored_only(self) -> bool:
        """Whether upstream vendors it and the recipe does not name it."""
        return bool(self.use) and not self.all(RecipePin, RecipeCommit)

    def all(self, *kinds: type[Kind]) -> list[Kind]:
        """Return the facts of some kinds."""
        return [fact for fact in self.facts if isinstance(fact, kinds)]


class Constraint(NamedTuple):
    """Versions that the recipe requires or upstream names, and the configs to which they apply."""

    fact: Fact
    spec: Spec
    configs: frozenset[str]
    text: str  #: as written; conda-forge's version in parentheses if it differs
    version: str = ""  #: the one that upstream names: ``2.1.0``, of a tag or of a commit after it
    hard: bool = False  #: from the wheel's metadata, which pip enforces; others are only known to work


def excludes(fact: Fact) -> bool:
    """Whether the recipe excludes a package, by the idiom ``<0.0a0``: older than any version."""
    return isinstance(fact, RecipePin) and fact.value.startswith("<0.0a")


def requirements_of(row: AuditRow) -> list[Constraint]:
    """Return the recipe's constraints; a bare name counts only for configs where the row has no version."""
    asked = []
    for fact in row.all(RecipePin):
        spec = Spec(fact.value)
        if not excludes(fact) and spec.readable:
            configs = frozenset(build.name for build in row.builds if fact.holds.matches(build))
            text = fact.value if spec.any else fact.value.partition(" ")[0]
            text = ANY if fact.value == "*" else text
            asked.append(Constraint(fact, spec, configs, text))
    pinning = [request for request in asked if not request.spec.any]
    pinned = {config for request in pinning for config in request.configs}
    bare = (request._replace(configs=request.configs - pinned) for request in asked if request.spec.any)
    return [*pinning, *(request for request in bare if request.configs)]


def constraints_of(row: AuditRow) -> list[Constraint]:
    """Return upstream's constraints for the audited configs; facts without a version are skipped."""
    named = []
    for fact in row.all(*UPSTREAM):
        configs = frozenset(build.name for build in row.builds if _holds(fact, build, row.wheel_cuda))
        if fact.trouble or not configs:
            continue
        hard = isinstance(fact, Requirement)
        if hard or re.match(r"\s*[<>=!~]", fact.value):
            spec = Spec(row.entry.counted(fact.value))
            if spec.readable and not spec.any:
                named.append(Constraint(fact, spec, configs, fact.value, spec.exact, hard))
        elif not (isinstance(fact, Submodule) and fact.commit and fact.commit.startswith(fact.value)):
            for word in fact.value.split(", "):
                if tag := described(_CUDA_TAG.sub(r"\1.\2", word)):
                    version = row.entry.release(tag)
                    text = fact.value if version == tag else f"{fact.value} ({version})"
                    named.append(Constraint(fact, Spec(f"=={version}"), configs, text, version))
    return named


def is_optional(fact: Fact) -> bool:
    """Whether a requirement belongs to an extra, which is optional."""
    return isinstance(fact, Requirement) and "extra" in fact.holds.marker


def cuda_of_wheel(facts: Iterable[Fact]) -> str:
    """Return the CUDA version in a wheel's requirements, or an empty string."""
    for fact in facts:
        if isinstance(fact, Requirement) and re.match(r"cuda-toolkit$|nvidia-cuda-runtime", fact.name):
            numbers = re.findall(r"\d+", fact.value)
            if len(numbers) > 1:
                return ".".join(numbers[:2])
    return ""


def pins(row: AuditRow, configs: Collection[str], of: str = "") -> list[str]:
    """Return conda-forge's pins for any of the configs: of the whole row, or of the package ``of``."""
    builds = [build for build in row.builds if build.name in configs]
    word = of.replace("-", "_")
    return [
        value
        for fact in row.all(GlobalPin)
        if any(fact.holds.matches(build) for build in builds)
        if not word or fact.name.replace("-", "_") == word or fact.name in row.entry.keys
        for value in fact.values
        if value != "None" and pin(value).readable
    ]


def best_for(row: AuditRow, configs: Collection[str] | None = None) -> str:
    """Return the newest version of the row's first package, on any platform or on those of `configs`; may be empty."""
    first = row.entry.conda[:1] or (row.entry.name,)
    builds = [build for build in row.builds if configs is None or build.name in configs]
    platforms = {"noarch", *(build.platform for build in builds)}
    return newest(
        fact.value
        for fact in row.all(Newest)
        if not fact.trouble and fact.name in first
        if configs is None or not fact.holds.platforms or platforms & {*fact.holds.platforms}
    )


def is_floor(row: AuditRow, version: str) -> bool:
    """Whether the channel may have newer versions than `version`, which is inferred from an older snapshot."""
    return any(fact.value == version and fact.where.inferred for fact in row.all(Newest))


def of_nvidia(fact: Fact) -> bool:
    """Whether a wheel requires one of NVIDIA's packages, which are for the wheel's own CUDA version."""
    return isinstance(fact, Requirement) and bool(re.match(r"(nvidia|cuda)-", fact.name))


def _holds(fact: Fact, build: Build, wheel_cuda: str) -> bool:
    if (of_nvidia(fact) and build.cuda != wheel_cuda) or not fact.holds.matches(build):
        return False
    if not fact.holds.marker:
        return True
    system, _, machine = build.platform.partition("-")
    extra = re.search(r"""extra\s*==\s*["']([^"']+)""", fact.holds.marker)
    # the rest is the same on all platforms of conda-forge that this program runs on: posix, CPython
    environment = {
        "extra": extra[1] if extra else "",
        "sys_platform": "darwin" if system == "osx" else "linux",
        "platform_system": "Darwin" if system == "osx" else "Linux",
        "platform_machine": "x86_64" if machine == "64" else machine,
        "python_version": "3.12",  # wheel_metadata reads the wheels of this Python
        "python_full_version": "3.12.0",
    }
    try:
        return Marker(fact.holds.marker).evaluate(environment)
    except (InvalidMarker, KeyError, ValueError):
        return True
