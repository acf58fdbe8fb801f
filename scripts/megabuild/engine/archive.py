"""Reads package files: their metadata, whether it matches the plan, and the owners of their files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rattler.package import IndexJson, PathsJson

from groundwork import files
from groundwork.errors import IntegrityError
from groundwork.names import PackageId
from megabuild.configs.render import PlannedPackage


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A package file's metadata."""

    path: Path  #: The file.
    package: PackageId  #: From ``index.json``.
    files: tuple[str, ...]  #: Paths that the package installs.


def read(path: Path) -> Archive:
    """Open a ``.conda`` file and check that every byte of it can be read.

    Raises IntegrityError: The file is missing, cut off or damaged, or it is a link or a pipe.
    """
    try:
        with files.open_regular(path) as file, zipfile.ZipFile(file) as outer:
            damaged = outer.testzip()
        index, paths = IndexJson.from_package_archive(path), PathsJson.from_package_archive(path)
    except (MemoryError, IntegrityError):  # the former is not about the file
        raise
    except Exception as error:  # zipfile, the operating system and rattler all have exceptions of their own
        raise IntegrityError(f"{path} cannot be read: {error}", "delete it and run again") from error
    if damaged:
        raise IntegrityError(f"{path} is damaged at {damaged}", "delete it and run again")
    return Archive(
        path=path,
        package=PackageId(index.name.source, str(index.version), str(index.build)),
        files=tuple(str(entry.relative_path) for entry in paths.paths),
    )


def is_readable(path: Path) -> bool:
    """Return whether :func:`read` can read a file."""
    try:
        read(path)
    except IntegrityError:
        return False
    return True


def verify(planned: PlannedPackage, path: Path) -> Archive:
    """Read a finished package and compare it with the plan.

    Raises IntegrityError: It cannot be read, is another package, or holds a compiled file of another Python.
    """
    archive, package = read(path), planned.id
    if archive.package != package:
        raise IntegrityError(
            f"{path.name} contains {archive.package}, but {package} was planned",
            "this is a fault of the recipe or the engine",
        )
    foreign = foreign_bytecode(archive.files, planned.python)
    if foreign:
        raise IntegrityError(
            f"{path.name} holds compiled files that are not its own: {', '.join(foreign[:3])}",
            "tighten the output's file list, or set PYTHONDONTWRITEBYTECODE in its script",
        )
    return archive


def foreign_bytecode(names: Sequence[str], python: str | None) -> list[str]:
    """Return the ``.pyc`` files whose source is not in the same package, or that are for another Python."""
    own, digits = set(names), (python or "").replace(".", "").rstrip("t")
    foreign = []
    for name in names:
        if name.endswith(".pyc"):
            module, _, tag = Path(name).stem.partition(".")
            folder = Path(name).parent
            folder = folder.parent if folder.name == "__pycache__" else folder
            of_another = tag and digits and f"-{digits}" not in tag
            if of_another or (folder / f"{module}.py").as_posix() not in own:
                foreign.append(name)
    return foreign


def owners(archives: Iterable[Archive]) -> dict[str, set[str]]:
    """Return the paths that packages of different names both install, with those names.

    Builds of one package may share paths: the solver never installs two of them.
    """
    owned: dict[str, set[str]] = {}
    for package in archives:
        for path in package.files:
            owned.setdefault(path, set()).add(package.package.name)
    return {path: names for path, names in owned.items() if len(names) > 1}


def check_owners(archives: Sequence[Archive]) -> None:
    """Raise if a path belongs to more than one package.

    Raises IntegrityError: Naming a few of the paths.
    """
    shared = owners(archives)
    if shared:
        examples = "; ".join(
            f"{path} ({', '.join(sorted(names))})" for path, names in sorted(shared.items())[:3]
        )
        raise IntegrityError(
            f"{len(shared)} files belong to more than one package: {examples}",
            "tighten the outputs' file lists",
        )
