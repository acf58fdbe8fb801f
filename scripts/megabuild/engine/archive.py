"""Looking into a package file."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

from rattler.package import IndexJson, PathsJson

from megabuild import files
from megabuild.errors import IntegrityError


@dataclass(frozen=True, kw_only=True)
class Archive:
    """What a package file says of itself."""

    path: Path  #: The file.
    #: From ``index.json``.
    name: str
    version: str
    build_string: str
    subdir: str
    files: tuple[str, ...]  #: Paths that the package installs.


def read(path: Path) -> Archive:
    """Open a ``.conda`` file and check that every byte of it can be read.

    Raises
    ------
    IntegrityError
        The file is missing, cut off or damaged, or it is a link or a pipe.
    """
    try:
        with files.open_regular(path) as file, zipfile.ZipFile(file) as outer:
            damaged = outer.testzip()
        index, paths = IndexJson.from_package_archive(path), PathsJson.from_package_archive(path)
    except (MemoryError, IntegrityError):  # the former says nothing about the file
        raise
    except Exception as error:  # zipfile, the operating system and rattler all have exceptions of their own
        raise IntegrityError(f"{path} cannot be read: {error}", "delete it and run again") from error
    if damaged:
        raise IntegrityError(f"{path} is damaged at {damaged}", "delete it and run again")
    return Archive(
        path=path,
        name=index.name.source,
        version=str(index.version),
        build_string=str(index.build),
        subdir=index.subdir or path.parent.name,
        files=tuple(str(entry.relative_path) for entry in paths.paths),
    )
