"""Finished packages: what was planned, and nothing that belongs to another package or Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from megabuild.configs.render import PlannedPackage
from megabuild.engine import archive
from megabuild.errors import IntegrityError


def verify(planned: PlannedPackage, path: Path) -> archive.Archive:
    """Look into a finished package and compare it with the plan.

    Raises
    ------
    IntegrityError
        It cannot be read, is another package, or holds a compiled file of another Python.
    """
    found = archive.read(path)
    wanted = (planned.name, planned.version, planned.build_string)
    if (found.name, found.version, found.build_string) != wanted:
        itself = f"{found.name} {found.version} {found.build_string}"
        raise IntegrityError(
            f"{path.name} says of itself {itself}, planned was {' '.join(wanted)}",
            "this is a fault of the recipe or the engine",
        )
    foreign = foreign_bytecode(found.files, planned.python)
    if foreign:
        raise IntegrityError(
            f"{path.name} holds compiled files that are not its own: {', '.join(foreign[:3])}",
            "tighten the output's file list, or set PYTHONDONTWRITEBYTECODE in its script",
        )
    return found


def foreign_bytecode(names: Sequence[str], python: str | None) -> list[str]:
    """Return the ``.pyc`` files whose source is not in the same package, or that are for another Python."""
    own = set(names)
    foreign = []
    for name in names:
        if name.endswith(".pyc"):
            path = Path(name)
            module, _, tag = path.stem.partition(".")
            source = (
                path.parent.parent / f"{module}.py"
                if path.parent.name == "__pycache__"
                else path.with_suffix(".py")
            )
            digits = (python or "").replace(".", "").rstrip("t")
            if source.as_posix() not in own or (tag and digits and f"-{digits}" not in tag):
                foreign.append(name)
    return foreign


def owners(archives: Iterable[archive.Archive]) -> dict[str, set[str]]:
    """Return the paths that packages of different names both install, with those names.

    Builds of one package may share paths: the solver never installs two of them.
    """
    owned: dict[str, set[str]] = {}
    for package in archives:
        for path in package.files:
            owned.setdefault(path, set()).add(package.name)
    return {path: names for path, names in owned.items() if len(names) > 1}


def check_owners(archives: Sequence[archive.Archive]) -> None:
    """Raise if a path belongs to more than one package.

    Raises
    ------
    IntegrityError
        Naming a few of the paths.
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
