"""Assign each file of an official PyTorch wheel to libtorch, to the package of one Python, or to no package.

Standard library only.
"""

from __future__ import annotations

import platform
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from install_libtorch import PROGRAM, PYTHON_SIDE, is_libtorch

#: Not packaged: PyTorch's tests with their programs and libraries (of the programs, only libtorch's is packaged); GCC's
#: OpenMP library, which has its own package, because two copies in one process have two thread pools.
_LEFT_OUT = ("test/", "lib/libgomp")
#: Not packaged on x86-64: 2.15.0's wheel has it, but none of its libraries needs it, and it cannot be loaded without
#: libquadmath. OpenBLAS of the wheels for ARM needs it.
_LEFT_OUT_ON_X86 = "lib/libgfortran"
_TEST_LIBRARIES = (
    "libaoti_custom_ops",
    "libbackend_with_compiler",
    "libjitbackend_test",
    "libtorchbind_test",
)
#: libtorch's folder for other projects' libraries (on ARM: OpenBLAS or NVPL, Arm's Compute Library, libgfortran), whose
#: names in lib/ belong to other conda packages. build_staging.sh adds it to the RPATH of libtorch's libraries.
VENDORED = "lib/libtorch"
_LIBRARY = re.compile(r"lib/[^/]+\.so[.\d]*")
#: Libraries whose headers libtorch's include. On conda-forge libtorch requires their packages.
_INCLUDED = re.compile(r"include/((?:fmt|oneapi)/.+|cpuinfo\.h|sleef\.h)")
#: libtorch's folder for them, which find_package(Torch) and cpp_extension search. In include/ they could overwrite
#: another package's.
BUNDLED = "include/torch/csrc/api/include"
#: Requirements on NVIDIA's packages, which have other names on conda-forge, unknown to pip.
_NOT_PIPS = re.compile(r"^Requires-Dist: (nvidia-|cuda-toolkit)", re.IGNORECASE)


@dataclass(frozen=True)
class Wheel:
    """An official wheel of PyTorch."""

    path: Path
    members: dict[str, tuple[int, int]]

    @property
    def metadata(self) -> str:
        """The name of the .dist-info folder."""
        return next(name.split("/")[0] for name in self.members if name.endswith(".dist-info/METADATA"))


def find(folder: Path, python: str) -> Wheel:
    """Find the wheel for one Python version, such as ``3.12``.

    Raises FileNotFoundError: The folder has no such wheel, or several.
    Raises ValueError: The wheel has a file with a path outside the wheel.
    """
    minor = python.replace(".", "")
    interpreter = f"cp{minor.removesuffix('t')}-cp{minor}-"
    found = sorted(path for path in folder.rglob("torch-*.whl") if interpreter in path.name)
    if len(found) != 1:
        raise FileNotFoundError(
            f"{folder}: found {len(found)} wheels of PyTorch for Python {python} instead of one "
            "(pip download torch==VERSION --no-deps)"
        )
    with zipfile.ZipFile(found[0]) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
    for info in infos:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # without a limit of memory
            raise ValueError(f"{found[0].name}: {info.filename} is neither stored nor deflated")
    members = {info.filename: (info.file_size, info.CRC) for info in infos}
    for name in members:
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(f"{found[0].name}: file path leads outside the wheel: {name}")
    return Wheel(path=found[0], members=members)


def left_out(member: str) -> bool:
    """Return whether a file belongs to no package."""
    inside = member.removeprefix("torch/")
    if member.endswith(".pyc"):
        return True
    if inside == member:  # not in torch/
        return False
    if inside.startswith("bin/"):
        return inside != PROGRAM
    if inside.startswith(_LEFT_OUT_ON_X86):
        return platform.machine() == "x86_64"
    return inside.startswith(_LEFT_OUT) or PurePosixPath(inside).name.startswith(_TEST_LIBRARIES)


def libtorch_place(member: str) -> str | None:
    """Return a libtorch file's path in an environment (``lib/libc10.so``), or None for other files."""
    inside = member.removeprefix("torch/")
    if inside == member or left_out(member):
        return None
    if is_libtorch(inside):
        return inside
    name = PurePosixPath(member).name
    if not _LIBRARY.fullmatch(inside) or name.startswith(PYTHON_SIDE):
        return None
    return f"{VENDORED}/{name}"


def bundled_header(member: str) -> str | None:
    """Return the path of another library's header in an environment with libtorch, or None for other files."""
    found = _INCLUDED.fullmatch(member.removeprefix("torch/"))
    return f"{BUNDLED}/{found[1]}" if found else None


def licence_place(member: str) -> str | None:
    """Return a licence text's path below a folder of texts, or None for other files."""
    _, found, inside = member.partition(".dist-info/licenses/")
    return inside if found else None


def without_nvidia(metadata: str) -> str:
    """Remove the requirements from METADATA that conda packages meet under names unknown to pip."""
    head, separator, body = metadata.partition("\n\n")
    lines = [line for line in head.splitlines() if not _NOT_PIPS.match(line)]
    return "\n".join(lines) + separator + body


def record_without(record: str, gone: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a RECORD file without those of the files ``gone``."""
    names = set(gone)
    for line in record.splitlines():
        name = line.rsplit(",", 2)[0].strip('"')
        if name and name not in names:
            yield line
