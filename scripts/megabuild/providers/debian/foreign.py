"""Cross-compile for another architecture: a root of this machine's with the other's libraries and Pythons.

Compilers, CMake, ninja, protoc and flatc are the machine's own. Pythons are of the other architecture and run under the
root's qemu, so that build tools see the interpreter that the packages are for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from groundwork.errors import ProviderError
from megabuild.providers.environment import machine_platform
from megabuild.providers.local.interpreters import Interpreter

#: Debian's names of architectures, by conda's platform.
_ARCHITECTURES = {"linux-64": "amd64", "linux-aarch64": "arm64"}
#: From where to where this was done.
_CROSS = {("linux-64", "linux-aarch64"): "aarch64-linux-gnu"}

#: The release that has a Python. Each is unpacked into a folder of its own: the root's own one is the machine's.
PYTHONS = {"3.11": "bookworm", "3.13": "trixie"}
_PARTS = (
    "python{0}-minimal",
    "libpython{0}-minimal",
    "libpython{0}-stdlib",
    "libpython{0}",
    "libpython{0}-dev",
)

#: Programs of the machine's own that the build runs, what PyTorch's code generators import, and headers that are the
#: same everywhere.
_TOOLS = (
    "flatbuffers-compiler", "protobuf-compiler", "qemu-user",
    "python3-typing-extensions", "python3-yaml",
    "libeigen3-dev", "nlohmann-json3-dev",
)  # fmt: skip
#: The build dependencies as far as the recipe does not switch off what they are for.
_LIBRARIES = (
    "libcpp-httplib-dev", "libcpuinfo-dev", "libflatbuffers-dev", "libfmt-dev", "libfp16-dev", "libfxdiv-dev",
    "libonnx-dev", "libprotobuf-dev", "libprotoc-dev", "libpsimd-dev", "libpthreadpool-dev", "libsleef-dev",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """An architecture to compile for that is not the machine's own."""

    #: Debian's name of it, and of the machine's own: ``arm64``, ``amd64``.
    arch: str
    native: str
    #: ``aarch64-linux-gnu``
    triplet: str

    @property
    def machine(self) -> str:
        """What ``uname -m`` says there: ``aarch64``."""
        return self.triplet.partition("-")[0]

    @property
    def tools(self) -> tuple[str, ...]:
        """Debian packages with programs for the machine."""
        return (*_TOOLS, f"crossbuild-essential-{self.arch}")

    @property
    def libraries(self) -> tuple[str, ...]:
        """Debian packages with what PyTorch is compiled against, architecture included."""
        return self.qualified(_LIBRARIES)

    def qualified(self, packages: Iterable[str]) -> tuple[str, ...]:
        """Return the names of packages with the architecture, as apt wants them."""
        return tuple(f"{package}:{self.arch}" for package in packages)

    def unpack_pythons(self, folder: str) -> Iterator[str]:
        """Yield shell commands that unpack the Pythons into a folder of a root; nothing of them is run."""
        for python in PYTHONS:
            parts = " ".join(self.qualified(part.format(python) for part in _PARTS))
            yield (
                f"cd /tmp && apt-get download -o APT::Sandbox::User=root {parts} && for one in *python{python}*.deb;"
                f" do dpkg-deb --extract $one {folder}/python{python} && rm $one; done"
            )

    def emulator(self, root: Path) -> Path:
        """Return where a root has the program that runs the architecture's programs; linked statically."""
        return root / "usr/bin" / f"qemu-{self.machine}"

    def interpreters(self, folder: Path) -> dict[str, Interpreter]:
        """Describe the unpacked Pythons in a folder, without running them."""
        found = {}
        for python in PYTHONS:
            usr = folder / f"python{python}" / "usr"
            found[python] = Interpreter(
                executable=usr / "bin" / f"python{python}",
                version=_full_version(usr / "include" / f"python{python}" / "patchlevel.h") or f"{python}.0",
                soabi=f"cpython-{python.replace('.', '')}-{self.triplet}",
                prefix=usr,
                stdlib=usr / "lib" / f"python{python}",
                include=usr / "include" / f"python{python}",
                library_folder=usr / "lib" / self.triplet,
                multiarch=self.triplet,
                free_threaded=False,
                platforms=_platform_tags(self.machine),
            )
        return found


def of(platform: str) -> Foreign | None:
    """Return the target of a cross build, or None where the platform is the machine's own.

    Raises ProviderError: Cross-compiling for it is not supported here.
    """
    machine = machine_platform()
    if platform == machine:
        return None
    triplet = _CROSS.get((machine, platform))
    if triplet is None:
        raise ProviderError(
            f"the debian provider does not compile for {platform} on {machine}",
            f"Build this config on a machine of {platform}"
            + (", or of linux-64." if platform == "linux-aarch64" else "."),
        )
    return Foreign(arch=_ARCHITECTURES[platform], native=_ARCHITECTURES[machine], triplet=triplet)


def _full_version(header: Path) -> str:
    """Read a Python's whole version from its headers; empty where there are none."""
    try:
        match = re.search(r'#define PY_VERSION\s+"(\d+\.\d+\.\d+)', header.read_text())
    except OSError:
        return ""
    return match[1] if match else ""


def _platform_tags(machine: str) -> tuple[str, ...]:
    """Platforms of wheels that run with the glibc of the release, 2.41, the newest first."""
    return (*(f"manylinux_2_{minor}_{machine}" for minor in range(41, 16, -1)), f"manylinux2014_{machine}")
