"""Compile for another processor: a Debian root of this machine's with the other's libraries and Pythons.

Compilers, CMake, ninja, protoc and flatc are this machine's programs. Libraries and Pythons are of the other processor;
if they run here, qemu runs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from groundwork.errors import ProviderError
from megabuild.configs.platforms import Platforms
from megabuild.providers.local.interpreters import Interpreter

#: Debian's names of processors, by conda's platform.
_ARCHITECTURES = {"linux-64": "amd64", "linux-aarch64": "arm64"}
_TRIPLETS = {"linux-aarch64": "aarch64-linux-gnu"}

#: The Debian release that has a Python. Each Python is unpacked into a folder of its own.
PYTHONS = {"3.11": "bookworm", "3.13": "trixie"}
_PARTS = (
    "python{0}-minimal", "libpython{0}-minimal", "libpython{0}-stdlib", "libpython{0}", "libpython{0}-dev",
)  # fmt: skip
#: In a root: one folder for each Python, and the list of packages that are only unpacked, as names of their files.
PYTHONS_FOLDER = "usr/src/megabuild-pythons"
UNPACKED = f"{PYTHONS_FOLDER}/packages"

#: This machine's programs that the build runs, what PyTorch's code generators import, and headers that are the same for
#: every processor.
_TOOLS = (
    "flatbuffers-compiler", "libeigen3-dev", "nlohmann-json3-dev", "protobuf-compiler", "python3-typing-extensions",
    "python3-yaml", "qemu-user",
)  # fmt: skip
#: PyTorch's build dependencies, without those of features that the recipe switches off.
_LIBRARIES = (
    "libcpp-httplib-dev", "libcpuinfo-dev", "libdnnl-dev", "libflatbuffers-dev", "libfmt-dev", "libfp16-dev",
    "libfxdiv-dev", "libonnx-dev", "libprotobuf-dev", "libprotoc-dev", "libpsimd-dev", "libpthreadpool-dev",
    "libsleef-dev",
)  # fmt: skip
#: Headers for every processor, in a package that requires this machine's libdnnl-dev. The other processor's cannot be
#: installed next to it, so that these are only unpacked.
_HEADERS = ("libideep-dev",)
_DOWNLOAD = "apt-get download -o APT::Sandbox::User=root"
_OF_PYTHON = re.compile(r"(lib)?python3")


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A processor to compile for that is not this machine's."""

    arch: str  #: Debian's name, ``arm64``
    native: str  #: Debian's name of this machine's, ``amd64``
    triplet: str  #: ``aarch64-linux-gnu``

    @classmethod
    def of(cls, platforms: Platforms) -> Foreign | None:
        """Return the processor that a build cross-compiles for, or None for a native build.

        Raises ProviderError: Debian's cross compilers for it were never tried here.
        """
        if not platforms.is_cross:
            return None
        native = _ARCHITECTURES.get(platforms.build)
        triplet = _TRIPLETS.get(platforms.target)
        if native is None or triplet is None:
            raise ProviderError(
                f"no cross compilers of Debian for {platforms.target} on {platforms.build}",
                f"build this config on a {platforms.target} machine",
            )
        return cls(arch=_ARCHITECTURES[platforms.target], native=native, triplet=triplet)

    @property
    def machine(self) -> str:
        """Its name as ``uname -m`` prints it: ``aarch64``."""
        return self.triplet.partition("-")[0]

    @property
    def description(self) -> str:
        """Everything of it that a root depends on, apart from the list of packages."""
        commands = " ".join((*self.unpack_pythons(), self.unpack_headers()))
        return f"{self.native}, compiling for {self.triplet}: {commands}"

    @property
    def tools(self) -> tuple[str, ...]:
        """Debian packages of programs for this machine."""
        return (*_TOOLS, f"crossbuild-essential-{self.arch}")

    @property
    def libraries(self) -> tuple[str, ...]:
        """Debian packages of the other processor that PyTorch is compiled against."""
        return self.qualified(_LIBRARIES)

    def qualified(self, packages: Iterable[str]) -> tuple[str, ...]:
        """Return the names of packages of the other processor, as apt takes them."""
        return tuple(f"{package}:{self.arch}" for package in packages)

    def unpack_pythons(self) -> Iterator[str]:
        """Yield shell commands that unpack the Pythons into a root; they run none of their programs."""
        for python, suite in PYTHONS.items():
            names = self.qualified(part.format(python) for part in _PARTS)
            parts = " ".join(f"{name}/{suite}" for name in names)
            folder = f"/{PYTHONS_FOLDER}/python{python}"
            yield (
                f"mkdir -p {folder}/debs && cd {folder}/debs && {_DOWNLOAD} {parts}"
                f" && ls *.deb >> /{UNPACKED} && for deb in *.deb; do dpkg-deb --extract $deb .. || exit 1; done"
                f" && cd / && rm -r {folder}/debs"
            )

    def unpack_headers(self) -> str:
        """Return a shell command that unpacks headers into a root whose Pythons are unpacked."""
        folder = f"/{PYTHONS_FOLDER}/headers"
        return (
            f"mkdir {folder} && cd {folder} && {_DOWNLOAD} {' '.join(_HEADERS)}"
            f" && ls *.deb >> /{UNPACKED} && for deb in *.deb; do dpkg-deb --extract $deb / || exit 1; done"
            f" && cd / && rm -r {folder}"
        )

    def emulator(self, root: Path) -> Path:
        """Return the path of a root's static program that runs the other processor's programs."""
        return root / "usr" / "bin" / f"qemu-{self.machine}"

    def interpreters(self, root: Path) -> dict[str, Interpreter]:
        """Describe the Pythons of a root, without running them."""
        found: dict[str, Interpreter] = {}
        for python in PYTHONS:
            usr = root / PYTHONS_FOLDER / f"python{python}" / "usr"
            include = usr / "include" / f"python{python}"
            found[python] = Interpreter(
                executable=usr / "bin" / f"python{python}",
                version=_full_version(include / "patchlevel.h"),
                machine=self.machine,
                soabi=f"cpython-{python.replace('.', '')}-{self.triplet}",
                prefix=usr,
                stdlib=usr / "lib" / f"python{python}",
                include=include,
                library_folder=usr / "lib" / self.triplet,
                multiarch=self.triplet,
            )
        return found


def unpacked_headers(root: Path) -> dict[str, str]:
    """Return the versions of a root's packages of headers that are only unpacked, which dpkg does not list, by name."""
    path = root / UNPACKED
    versions: dict[str, str] = {}
    if not path.is_file():
        return versions
    for file_name in path.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, version = file_name.removesuffix(".deb").partition("_")
        if not _OF_PYTHON.match(name):  # each Python is a package of the local channel
            versions[name] = version
    return versions


def _full_version(header: Path) -> str:
    """Read a Python's version from its headers; Debian's plus sign of a version after a release is no part of it.

    Raises ProviderError: The header lacks it.
    """
    match = re.search(r'#define\s+PY_VERSION\s+"(\d+\.\d+\.\d+)', header.read_text())
    if match is None:
        raise ProviderError(
            f"{header}: no version of Python", "delete the root: the next build makes it again"
        )
    return match[1]
