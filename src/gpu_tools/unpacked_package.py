"""Unpacks wheels and conda packages, to inspect or slim their files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpu_tools.subject_kind import SubjectKind
from groundwork import wheel_file
from groundwork.archives import check_conda, unpack
from groundwork.damage import reading_archive
from groundwork.errors import OutOfSpaceError, UsageError
from groundwork.files import scratch
from groundwork.text import size
from groundwork.zip_archive import open_zip


@contextmanager
def unpack_package(package: Path, near: Path | None = None) -> Iterator[tuple[Path, SubjectKind]]:
    """Unpack a package below ``near`` or in a temporary folder; delete the files when the context ends.

    Gives the folder, and whether the package is a wheel or conda's.

    Raises UsageError: ``package`` is no wheel and no conda package.
    Raises IntegrityError: The package is damaged.
    """
    _check_package(package)
    if package.suffix == ".conda":  # here, because a missing extra is no damage
        import rattler.package_streaming
    with tempfile.TemporaryDirectory(prefix="megabuild-") if near is None else scratch(near) as folder:
        root = Path(folder, "package")
        root.mkdir()
        free = shutil.disk_usage(root).free
        kind = SubjectKind.CONDA_PACKAGE
        with reading_archive(package):
            match package.suffix:
                case ".whl":
                    kind = SubjectKind.WHEEL
                    octets = _unpacked_size(package)
                    if octets > free:
                        raise _too_large(package, size(octets), root, near)
                    wheel_file.unpack(package, root)
                case ".conda":
                    check_conda(package, free, _too_large(package, f"more than {size(free)}", root, near))
                    rattler.package_streaming.extract(package, root)
                case _:
                    unpack(package, root)
        yield root, kind


def _check_package(package: Path) -> None:
    """Raise UsageError if a file does not exist, or is not named like a package."""
    has_name_of_a_package = package.name.endswith((".whl", ".conda", ".tar.bz2"))
    if has_name_of_a_package and not package.exists():
        raise UsageError(
            f"{package}: not found", "pass an environment's folder, or an existing .whl or .conda file"
        )
    if not has_name_of_a_package or not package.is_file():
        raise UsageError(
            f"{package}: not an environment, wheel or conda package",
            "pass an environment's folder, or a .whl or .conda file",
        )


def _too_large(package: Path, octets: str, folder: Path, near: Path | None) -> OutOfSpaceError:
    place = "pass a folder as --output"
    if near is None:
        place = "set TMPDIR to a folder"
    return OutOfSpaceError(
        f"{package}: unpacks to {octets}, more than {near or folder} has free",
        f"{place} with more space, if you trust the package",
    )


def _unpacked_size(wheel: Path) -> int:
    """Return the bytes that a wheel claims to unpack to; no file becomes larger than its claim."""
    with open_zip(wheel) as archive:
        return sum(member.file_size for member in archive.infolist())
