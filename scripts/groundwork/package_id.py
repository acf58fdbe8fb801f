"""A conda package's identity: name, version and build string."""

from __future__ import annotations

import re
from typing import NamedTuple


class PackageId(NamedTuple):
    """A conda package's identity within a channel and platform."""

    name: str
    version: str
    build_string: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} {self.build_string}"

    @property
    def file_name(self) -> str:
        """``libtorch-2.13.0-cpu_mkl_h1_0.conda``."""
        return f"{self.name}-{self.version}-{self.build_string}.conda"

    @property
    def kind(self) -> str:
        """Its variant within a config: ``py3.12``, ``magma``, ``nomagma``, or an empty string."""
        if python := re.search(r"_py(\d)(\d+t?)_", self.build_string):
            return f"py{python[1]}.{python[2]}"
        linalg = re.search(r"_((?:no)?magma)_", self.build_string)
        return linalg[1] if linalg else ""

    @property
    def label(self) -> str:
        """Its short name: ``pytorch 2.13.0 py3.12``, ``libtorch 2.13.0``."""
        return f"{self.name} {self.version} {self.kind}".rstrip()
