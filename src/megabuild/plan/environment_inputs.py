"""The record of a compiled tree: the packages of its environment, what each is to the tree, and numbers of objects.

The recipe writes it at the end of a complete staging (recipe/README.md), so it is as trusted as any other file of a
build: it is bounded and typed, and chooses only whether a tree is kept and what a plan says.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from groundwork import files
from groundwork.errors import IntegrityError

#: Path of the record below a tree.
RECORD = Path("build", "environment-inputs.json")
#: Bytes; the record of PyTorch 2.13 with CUDA has less than a tenth.
_MOST_BYTES = 64 << 20
_Count = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]


class Role(str, Enum):
    """What a fact of a staging is to the compiled tree, the weakest first."""

    NOTHING = "nothing"  #: no object and no configuration depends on it: nothing changes
    SOURCE = "source"  #: ninja notices: the tree is kept
    CONFIGURE = "configure"  #: only the build's scripts use it: the tree is kept, and configured again
    #: objects or links have files of it among their inputs: the tree is kept, and the build removes these objects
    OBJECTS = "objects"
    COMPILERS = "compilers"  #: every object depends on it: the tree is removed

    @property
    def strength(self) -> int:
        """Its position in the order."""
        return list(Role).index(self)


class PackageSource(str, Enum):
    """The environment that has a package."""

    BUILD = "build"
    HOST = "host"
    SYSTEM = "system"  #: Debian's root, packages by dpkg's names


class ObjectCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of objects by kind."""

    core: _Count = 0  #: of libtorch without CUDA
    cuda: _Count = 0  #: of libtorch's CUDA part, without kernels
    bindings: _Count = 0  #: of one Python
    kernels: _Count = 0  #: compiled by nvcc

    @property
    def total(self) -> int:
        return sum(self.by_kind().values())

    def by_kind(self) -> dict[str, int]:
        """Return the numbers by the name of their kind."""
        return msgspec.structs.asdict(self)

    def added(self, other: ObjectCounts, most: ObjectCounts) -> ObjectCounts:
        """Return the sum of two, at most ``most`` of each kind."""
        counts = {}
        for kind, count in self.by_kind().items():
            counts[kind] = min(count + other.by_kind()[kind], most.by_kind()[kind])
        return ObjectCounts(**counts)


class NamedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package with files that the tree names."""

    source: PackageSource
    name: _Name
    role: Role  #: COMPILERS, OBJECTS or CONFIGURE
    objects: ObjectCounts = ObjectCounts()  #: that are compiled again if each of its files changes
    links: _Count = 0


class EnvironmentInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The packages that a tree names, and its objects."""

    version: Literal[1] = 1
    packages: Annotated[tuple[NamedPackage, ...], msgspec.Meta(max_length=20_000)] = ()
    objects: ObjectCounts = ObjectCounts()

    def named(self, source: str, name: str) -> NamedPackage | None:
        """Return the record's strongest entry of a package; None if the tree names none of its files."""
        found: NamedPackage | None = None
        for package in self.packages:
            if package.source.value != source or package.name.partition(":")[0] != name:  # libpng16:amd64
                continue
            if found is None or package.role.strength > found.role.strength:
                found = package
        return found


_RECORDED = frozenset({Role.COMPILERS, Role.OBJECTS, Role.CONFIGURE})
_DECODER = msgspec.json.Decoder(EnvironmentInputs)


def read_inputs(tree: Path) -> EnvironmentInputs | None:
    """Return a tree's record; None if it is missing, damaged, too large, or of a tree without objects."""
    try:
        with files.open_regular(tree / RECORD, below=tree) as file:
            inputs = _DECODER.decode(file.read(_MOST_BYTES))
    except (OSError, IntegrityError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    roles = {package.role for package in inputs.packages}
    if not inputs.objects.total or not roles <= _RECORDED:
        return None
    return inputs
