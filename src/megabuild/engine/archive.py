"""Reads package files: metadata, comparison with the plan, and paths that several packages install."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from groundwork import archives, files
from groundwork.errors import IntegrityError, of_text
from groundwork.names import PackageId
from groundwork.text import counted
from groundwork.zip_archive import open_zip

if TYPE_CHECKING:
    from megabuild.configs.render import PlannedPackage  # `clean` needs no renderer

#: Python's folder of byte code.
_CACHE = "__pycache__"
_LARGEST_INFO = 512 << 20  # bytes of a package's metadata; 100,000 files have 30 MB


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A package file's metadata."""

    path: Path
    package: PackageId  #: From ``index.json``.
    files: tuple[str, ...]  #: Paths that the package installs.


def read(path: Path) -> Archive:
    """Read a ``.conda`` file's metadata and verify the checksums of its entries.

    Raises IntegrityError: The file is missing, truncated or damaged, or it is a link or a pipe.
    """
    from rattler.package import IndexJson, PathsJson  # here: `clean` and --help read no package

    try:
        with files.open_regular(path) as file, open_zip(file) as outer:
            damaged = outer.testzip()
            # rattler reads these files into memory
            too_large = IntegrityError(f"{path}: its metadata is larger than any", "delete this package")
            archives.check_conda(file, _LARGEST_INFO, too_large, parts="info-")
        index = IndexJson.from_package_archive(path)
        paths = PathsJson.from_package_archive(path)
    except (MemoryError, IntegrityError):  # out of memory: no fault of the file
        raise
    except Exception as error:  # zipfile, the system and rattler have no common base class
        reason = f"{path}: cannot be read: {error}"
        raise of_text(str(error)) or IntegrityError(reason, "delete this package and run again") from error
    if damaged:
        raise IntegrityError(f"{path}: damaged entry {damaged}", "delete this package and run again")
    return Archive(
        path=path,
        package=PackageId(index.name.source, str(index.version), str(index.build)),
        files=tuple(str(entry.relative_path) for entry in paths.paths),
    )


def is_readable(path: Path) -> bool:
    try:
        read(path)
    except IntegrityError:
        return False
    return True


def verify(planned: PlannedPackage, path: Path) -> Archive:
    """Read a finished package and compare it with the plan.

    Raises IntegrityError: The file is unreadable, is another package, or contains foreign ``.pyc`` files.
    """
    archive = read(path)
    if archive.package != planned.id:
        raise IntegrityError(
            f"{path.name}: contains {archive.package}, not the planned {planned.id}",
            "check the name, version and build string in the recipe",
        )
    foreign = foreign_bytecode(archive.files, planned.python)
    if foreign:
        raise IntegrityError(
            f"{path.name}: contains .pyc files of another package or Python: {', '.join(foreign[:3])}",
            "tighten the output's file list, or set PYTHONDONTWRITEBYTECODE in its script",
        )
    return archive


def foreign_bytecode(names: Sequence[str], python: str | None) -> list[str]:
    """Return the ``.pyc`` files whose source is not in the same package, or that are for another Python."""
    own = set(names)
    digits = (python or "").replace(".", "").rstrip("t")
    foreign: list[str] = []
    for name in names:
        if not name.endswith(".pyc"):
            continue
        module, _, tag = Path(name).stem.partition(".")
        folder = Path(name).parent
        if folder.name == _CACHE:
            folder = folder.parent
        is_of_another_python = tag and digits and f"-{digits}" not in tag
        if is_of_another_python or (folder / f"{module}.py").as_posix() not in own:
            foreign.append(name)
    return foreign


def check_owners(archives: Iterable[Archive]) -> None:
    """Raise IntegrityError, naming up to three paths, if packages of different names install the same path.

    Builds of one package may share paths, because the solver never installs two of them.
    """
    owned: dict[str, set[str]] = {}
    for package in archives:
        for path in package.files:
            owned.setdefault(path, set()).add(package.package.name)
    shared: list[str] = []
    for path, names in sorted(owned.items()):
        if len(names) > 1:
            shared.append(f"{path} ({', '.join(sorted(names))})")
    if shared:
        raise IntegrityError(
            f"more than one package installs {counted(len(shared), 'path')}: {'; '.join(shared[:3])}",
            "tighten the outputs' file lists",
        )
