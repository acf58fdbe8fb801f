"""Unpacks wheels and conda packages, to inspect or slim their files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groundwork import wheel_file
from groundwork.archives import explain_damage
from groundwork.errors import UsageError
from groundwork.files import scratch, unpack


@contextmanager
def unpack_package(package: Path, near: Path | None = None) -> Iterator[Path]:
    """Unpack a package below ``near`` or in a temporary folder; delete the files when the context ends.

    Raises UsageError: ``package`` is no wheel and no conda package.
    Raises IntegrityError: The package is damaged.
    """
    if not package.name.endswith((".whl", ".conda", ".tar.bz2")) or not package.is_file():
        raise UsageError(
            f"{package}: not an environment, wheel or conda package",
            "pass an environment's folder, or a .whl or .conda file",
        )
    with tempfile.TemporaryDirectory(prefix="megabuild-") if near is None else scratch(near) as folder:
        root = Path(folder, "package")
        root.mkdir()
        with explain_damage(package):
            if package.suffix == ".whl":
                wheel_file.unpack(package, root)
            elif package.suffix == ".conda":
                from rattler.package_streaming import extract

                extract(package, root)
            else:
                unpack(package, root)
        yield root
