"""Names of packages, CUDA architectures and accelerators."""

from __future__ import annotations

import re
from typing import NamedTuple

from groundwork.errors import UsageError

#: 12.0, 120 and sm_120 are the same. PyTorch's oldest architecture is 3.0, so 12 is an error and not 1.2.
_ARCH = re.compile(r"(?:sm_?)?([3-9]|[1-9]\d)\.?(\d)([af]?)((?:\+PTX)?)", re.IGNORECASE)

#: In the build strings of this project (``cpu_py312_h1_0``) and of conda (``py312h1234567_0``).
_PYTHON = re.compile(r"(?:^|_)py(\d)(\d+t?)(?=_|h[0-9a-f]+_)")
_LINALG = re.compile(r"_((?:no)?magma)_")


class PackageId(NamedTuple):
    """A conda package within a channel and platform."""

    name: str
    version: str
    build_string: str

    @classmethod
    def of_file(cls, file_name: str) -> PackageId:
        """Return the package in a ``.conda`` file: names may contain ``-``, versions and build strings may not."""
        name, version, build_string = file_name.removesuffix(".conda").rsplit("-", 2)
        return cls(name, version, build_string)

    def __str__(self) -> str:
        return f"{self.name} {self.version} {self.build_string}"

    @property
    def file_name(self) -> str:
        """``libtorch-2.13.0-cpu_mkl_h1_0.conda``."""
        return f"{self.name}-{self.version}-{self.build_string}.conda"

    @property
    def kind(self) -> str:
        """The variant within a config, for people: ``py3.12``, ``magma``, ``nomagma`` or an empty string.

        Only :attr:`file_name` identifies a package: recipes may write any build string.
        """
        if python := _PYTHON.search(self.build_string):
            return f"py{python[1]}.{python[2]}"
        if linalg := _LINALG.search(self.build_string):
            return linalg[1]
        return ""

    @property
    def label(self) -> str:
        """The short name, for people: ``pytorch 2.13.0 py3.12``, ``libtorch 2.13.0``."""
        return f"{self.name} {self.version} {self.kind}".rstrip()


def package_name(file_name: str) -> str:
    """Return the name of the package in a file: names may contain ``-``, versions and build strings may not."""
    return file_name.rsplit("-", 2)[0]


def is_of_package(file_name: str) -> bool:
    """Return whether a file's name has the parts of a package's; builds may write any file."""
    return file_name.count("-") >= 2


def accelerator(cuda_version: str | None) -> str:
    """Return ``cpu``, or ``cuda130`` for CUDA 13.0 and any patch of it."""
    if not cuda_version:
        return "cpu"
    major_minor = cuda_version.split(".")[:2]
    return f"cuda{''.join(major_minor)}"


def cuda_archs(text: str) -> tuple[str, ...]:
    """Return CUDA architectures as in ``TORCH_CUDA_ARCH_LIST``: ``("9.0", "12.0+PTX")`` for ``sm_90;120+ptx``.

    ``;``, ``,`` or blanks separate them; ``sm_`` and the dot are optional. Raises UsageError.
    """
    archs: dict[str, None] = {}
    for word in filter(None, re.split(r"[;,\s]+", text)):
        match = _ARCH.fullmatch(word)
        if not match:
            raise unknown_arch(word)
        major, minor, letter, ptx = match.groups()
        archs[f"{major}.{minor}{letter.lower()}{ptx.upper()}"] = None
    return tuple(archs)


def unknown_arch(word: str) -> UsageError:
    """Return the error for a word that is not an architecture."""
    return UsageError(
        f"'{word}' is not a CUDA architecture", "write architectures like '9.0;12.0+PTX' or sm_90"
    )
