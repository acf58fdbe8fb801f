"""Repodata in local files: as it is, or compressed with zstd or bzip2."""

from __future__ import annotations

import bz2
import shutil
from pathlib import Path
from typing import IO, BinaryIO, cast

from megabuild.errors import AuditError

_ENDS = ("", ".zst", ".bz2")


def repodata_file(folder: Path, platform: str) -> Path | None:
    """Return a channel's repodata file of a platform, or None where there is none."""
    files = (folder / platform / f"repodata.json{end}" for end in _ENDS)
    return next((file for file in files if file.is_file()), None)


def unpack(file: Path, target: Path) -> None:
    """Make a file with the plain JSON; of plain JSON itself, a link to it.

    Raises
    ------
    AuditError
        The file cannot be read, or is broken.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if file.suffix == ".json":
            target.symlink_to(file.absolute())
            return
        with file.open("rb") as packed, _opened(packed, file) as plain, target.open("wb") as stream:
            shutil.copyfileobj(plain, stream, 1 << 20)
    except AuditError:
        raise
    except Exception as error:  # zstandard's own error is a plain Exception
        raise AuditError(f"cannot read {file}: {error}", "check the folder named by --repodata") from error


def _opened(packed: BinaryIO, file: Path) -> IO[bytes]:
    if file.suffix == ".bz2":
        return bz2.open(packed)
    try:
        import zstandard  # Python has its own only since 3.14
    except ImportError as error:
        raise AuditError(
            f"{file} cannot be read without the package zstandard", "unpack it, or pip install zstandard"
        ) from error
    return cast(IO[bytes], zstandard.open(packed))
