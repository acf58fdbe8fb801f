"""Which file of an official PyTorch wheel goes where: to libtorch, to the package of one Python, or nowhere.

Standard library only.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from install_libtorch import PROGRAM, is_libtorch

#: PyTorch's own tests with their programs and libraries (no other program than libtorch's is kept), and GCC's OpenMP
#: run-time library, which is a package of its own: two copies of it in one process have two thread pools.
#: 2.15.0's wheel has a libgfortran that none of its libraries asks for, and that cannot be loaded without libquadmath.
_LEFT_OUT = ("test/", "lib/libgomp", "lib/libgfortran")
_TEST_LIBRARIES = (
    "libaoti_custom_ops",
    "libbackend_with_compiler",
    "libjitbackend_test",
    "libtorchbind_test",
)
#: NVIDIA's packages have conda-forge's names here, which are none of pip's business.
_NOT_PIPS = re.compile(r"^Requires-Dist: (nvidia-|cuda-toolkit)", re.IGNORECASE)


@dataclass(frozen=True)
class Wheel:
    """An official wheel of PyTorch."""

    path: Path
    members: dict[str, tuple[int, int]]

    @property
    def metadata(self) -> str:
        """Name of the folder that holds the metadata."""
        return next(name.split("/")[0] for name in self.members if name.endswith(".dist-info/METADATA"))


def find(folder: Path, python: str) -> Wheel:
    """Find the wheel for one Python.

    Raises FileNotFoundError: There is none, or more than one.
    """
    minor = python.replace(".", "")
    interpreter = f"cp{minor.removesuffix('t')}-cp{minor}-"
    found = sorted(path for path in folder.rglob("torch-*.whl") if interpreter in path.name)
    if len(found) != 1:
        raise FileNotFoundError(
            f"{folder} holds {len(found)} wheels of PyTorch for Python {python}; needed is one "
            "(pip download torch==VERSION --no-deps)"
        )
    with zipfile.ZipFile(found[0]) as archive:
        members = {
            info.filename: (info.file_size, info.CRC) for info in archive.infolist() if not info.is_dir()
        }
    for name in members:
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(f"{found[0].name} names a file outside itself: {name}")
    return Wheel(path=found[0], members=members)


def left_out(member: str) -> bool:
    """Say whether nobody gets a file."""
    inside = member.removeprefix("torch/")
    return member.endswith(".pyc") or (
        inside != member
        and (
            inside.startswith(_LEFT_OUT)
            or (inside.startswith("bin/") and inside != PROGRAM)
            or PurePosixPath(inside).name.startswith(_TEST_LIBRARIES)
        )
    )


def libtorch_place(member: str) -> str | None:
    """Return where libtorch has a file of the wheel in an environment (``lib/libc10.so``), or None: not libtorch's."""
    inside = member.removeprefix("torch/")
    return inside if inside != member and not left_out(member) and is_libtorch(inside) else None


def licence_place(member: str) -> str | None:
    """Return where a licence text of the wheel goes below a folder of texts, or None: it is another file."""
    _, found, inside = member.partition(".dist-info/licenses/")
    return inside if found else None


def without_nvidia(metadata: str) -> str:
    """Take out of a wheel's METADATA what conda packages provide under names that pip does not know."""
    head, separator, body = metadata.partition("\n\n")
    lines = [line for line in head.splitlines() if not _NOT_PIPS.match(line)]
    return "\n".join(lines) + separator + body


def record_without(record: str, gone: Iterable[str]) -> Iterator[str]:
    """Give the lines of a RECORD file, without those of some files and of itself."""
    names = set(gone)
    for line in record.splitlines():
        name = line.rsplit(",", 2)[0].strip('"')
        if name and name not in names:
            yield line
