"""Which package: what conda's solver, file names and metadata tell packages apart by."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol


class _Identified(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def build_string(self) -> str: ...


class PackageId(NamedTuple):
    """A conda package's identity within a channel and platform."""

    name: str
    version: str
    build_string: str

    @classmethod
    def of(cls, package: _Identified) -> PackageId:
        """Return the identity of something that holds it as three attributes."""
        return cls(package.name, package.version, package.build_string)

    def __str__(self) -> str:
        return f"{self.name} {self.version} {self.build_string}"

    @property
    def file_name(self) -> str:
        """``libtorch-2.13.0-cpu_mkl_h1_0.conda``."""
        return f"{self.name}-{self.version}-{self.build_string}.conda"

    @property
    def kind(self) -> str:
        """What tells a config's builds of it apart: ``py3.12``, ``magma``, ``nomagma``, or an empty string."""
        if python := re.search(r"_py(\d)(\d+t?)_", self.build_string):
            return f"py{python[1]}.{python[2]}"
        linalg = re.search(r"_((?:no)?magma)_", self.build_string)
        return linalg[1] if linalg else ""

    @property
    def label(self) -> str:
        """Its short name: ``pytorch 2.13.0 py3.12``, ``libtorch 2.13.0``."""
        return f"{self.name} {self.version} {self.kind}".rstrip()
