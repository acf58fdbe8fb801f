"""Unpacks wheels and conda packages, to inspect or slim their files."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groundwork import wheel_file
from groundwork.archives import explain_damage
from groundwork.errors import OutOfSpaceError, UsageError
from groundwork.files import scratch, unpack
from groundwork.text import size


@contextmanager
def unpack_package(package: Path, near: Path | None = None) -> Iterator[tuple[Path, str]]:
    """Unpack a package below ``near`` or in a temporary folder; delete the files when the context ends.

    Gives the folder, and ``wheel`` or ``package`` (conda's).

    Raises UsageError: ``package`` is no wheel and no conda package.
    Raises IntegrityError: The package is damaged.
    """
    if not package.name.endswith((".whl", ".conda", ".tar.bz2")) or not package.is_file():
        raise UsageError(
            f"{package}: not an environment, wheel or conda package",
            "pass an environment's folder, or a .whl or .conda file",
        )
    if package.suffix == ".conda":  # here, because a missing extra is no damage
        import rattler.package_streaming
    with tempfile.TemporaryDirectory(prefix="megabuild-") if near is None else scratch(near) as folder:
        root = Path(folder, "package")
        root.mkdir()
        with explain_damage(package):
            if package.suffix == ".whl":
                _check_size(package, root, near)
                wheel_file.unpack(package, root)
            elif package.suffix == ".conda":
                rattler.package_streaming.extract(package, root)
            else:
                unpack(package, root)
        yield root, "wheel" if package.suffix == ".whl" else "package"


def _check_size(wheel: Path, folder: Path, near: Path | None) -> None:
    """Raise OutOfSpaceError if a wheel, perhaps a zip bomb, unpacks to more than the disk holds."""
    with zipfile.ZipFile(wheel) as archive:
        octets = sum(member.file_size for member in archive.infolist())
    if octets > shutil.disk_usage(folder).free:
        place = "set TMPDIR to a folder" if near is None else "pass a folder as --output"
        raise OutOfSpaceError(
            f"{wheel}: unpacks to {size(octets)}, more than {near or folder} has free",
            f"{place} with more space, if you trust the wheel",
        )
