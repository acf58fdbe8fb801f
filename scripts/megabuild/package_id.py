"""Which package: what conda's solver, file names and metadata tell packages apart by."""

from __future__ import annotations

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
