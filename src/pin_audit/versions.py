"""Compare version constraints by conda's rules, which are those of PEP 440 for all that wheels require.

A constraint admits all or none of the versions between two neighbouring versions that it names. So it is enough to test
the named versions and one version from each gap (`Spec.landmarks`), in place of all versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from rattler import Version, VersionSpec
from rattler.exceptions import InvalidVersionError, InvalidVersionSpecError

from pin_audit.facts import ANY_VERSION

_LITERAL = re.compile(r"(?P<numbers>\d+(?:\.\d+)*)(?P<rest>(?:[._-]?(?:a|b|rc|post|dev)\d*)*)")
_EXACT = re.compile(r"={1,3}\s*([^\s*,|<>!~=]+)")
_BEYOND = "999999999999"
_JUST_ABOVE = ".0.0.1"
_PREFIX = re.compile(r"={2,3}([^,|]*\.\*)")  #: ``==13.0.*``, which conda writes ``13.0.*``
_UNREADABLE = (InvalidVersionError, InvalidVersionSpecError, TypeError, ValueError)
_DESCRIBED = re.compile(
    r"(?:.*?[^0-9.]|)(?P<version>\d+(?:[._]\d+)+|(?:(?<=v)|(?<![0-9a-z]))\d+)(?P<pre>[-._]?(?:rc|a|b|alpha|beta|pre)[-.]?\d*)?"
    r"(-\d+)?(-\d+-g[0-9a-f]{4,40})?",
    re.IGNORECASE,
)


class Position(Enum):
    """The versions that a constraint admits, compared with one version."""

    AT = "that version"
    OLDER = "older versions only"
    NEWER = "newer versions only"
    MIXED = "older and newer versions, or none at all"


@dataclass(frozen=True)
class Spec:
    """A constraint on versions."""

    #: ``>=4.10.0,<5``, ``2.*``, ``==3.7.1``; empty or ``*``: any version. A build string after it does not count.
    text: str

    @property
    def any(self) -> bool:
        """Whether the constraint admits every version."""
        return not self._version_part or self._version_part == ANY_VERSION

    @property
    def exact(self) -> str:
        """The one version it admits, ``3.7.1`` of ``==3.7.1``, or an empty string."""
        match = _EXACT.fullmatch(self._version_part)
        if match is None:
            return ""
        return match[1]

    def admits(self, version: str) -> bool:
        """Whether a version satisfies the constraint; an invalid version satisfies only ``*`` and an empty one."""
        try:
            return self.any or self._conda.matches(Version(version))
        except _UNREADABLE:
            return False

    @property
    def readable(self) -> bool:
        """Whether the text is a valid constraint."""
        try:
            return self.any or bool(self._conda)
        except _UNREADABLE:
            return False

    def landmarks(self) -> frozenset[str]:
        """Return versions that represent all: those named, the next ones, and one from every gap between them."""
        versions = {"0", _BEYOND}
        whole = set()
        for literal in _LITERAL.finditer(self._version_part):
            numbers = literal["numbers"].split(".")
            if literal["rest"] and is_version(literal[0]):
                whole.add(literal[0])
            for length in range(1, len(numbers) + 1):  # 2.29.* ends at 2.30, ~=2.29.1 as well
                *head, last = numbers[:length]
                versions.add(".".join([*head, last]))
                versions.add(".".join([*head, str(int(last) + 1)]))
        return frozenset(versions | whole | {version + _JUST_ABOVE for version in versions})

    @property
    def _version_part(self) -> str:
        return self.text.strip().partition(" ")[0]

    @cached_property
    def _conda(self) -> VersionSpec:
        text = _PREFIX.sub(r"\1", self._version_part)
        return VersionSpec(text.replace("===", "=="))


def pin(value: str) -> Spec:
    """Return the constraint that a value of ``conda_build_config.yaml`` stands for: ``2`` is ``2.*``."""
    text = value.strip()
    if re.fullmatch(r"[0-9][0-9A-Za-z._!+]*", text):
        text += ".*"
    return Spec(text)


def common(specs: Sequence[Spec]) -> str | None:
    """Return a version that all constraints admit, or None if there is none."""
    for version in frozenset[str]().union(*(spec.landmarks() for spec in specs)):
        if all(spec.admits(version) for spec in specs):
            return version
    return None


def within(inner: Spec, outer: Spec) -> bool:
    """Whether every version that ``inner`` admits is admitted by ``outer``."""
    for version in inner.landmarks() | outer.landmarks():
        if inner.admits(version) and not outer.admits(version):
            return False
    return True


def side(spec: Spec, version: str) -> Position:
    """Compare a constraint with a version."""
    if spec.admits(version):
        return Position.AT
    here = Version(version)
    admitted = [Version(landmark) for landmark in spec.landmarks() if spec.admits(landmark)]
    older = any(other < here for other in admitted)
    newer = any(other > here for other in admitted)
    if older == newer:
        return Position.MIXED
    return Position.OLDER if older else Position.NEWER


def lowest(spec: Spec) -> str:
    """Return the lowest landmark that a constraint admits; empty if it admits none."""
    return min(filter(spec.admits, spec.landmarks()), key=Version, default="")


def described(text: str) -> str:
    """Return the version in a tag or in ``git describe``'s text, ``2.1.0`` of ``v2.1.0-705-ga6bfc23``; may be empty."""
    text = text.strip()
    match = _DESCRIBED.fullmatch(text)
    if match is None or _is_commit(text):
        return ""
    version = match["version"].replace("_", ".")
    if match["pre"]:
        version += match["pre"].lstrip("-._").lower().replace("-", "")
    return version if is_version(version) else ""


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{7,40}", text) is not None and not text.isdigit()


def is_version(text: str) -> bool:
    """Whether conda reads a text as a version that begins with a number."""
    try:
        return bool(re.match(r"\d", text)) and Version(text) is not None
    except (InvalidVersionError, TypeError, ValueError):
        return False


def newest(versions: Iterable[str]) -> str:
    """Return the newest version in conda's order; empty if there is none."""
    return max(filter(is_version, versions), key=Version, default="")
