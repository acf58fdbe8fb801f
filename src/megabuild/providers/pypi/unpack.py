"""Unpack a wheel into an environment's prefix."""

from __future__ import annotations

import shutil
import stat
import zipfile
from collections.abc import Iterator
from importlib.metadata import PathDistribution
from pathlib import Path, PurePosixPath

from groundwork.damage import reading
from groundwork.errors import IntegrityError
from groundwork.zip_archive import open_zip

#: Starts the Python in the script's own folder, so that no prefix must be rewritten. The second line is a command for
#: sh, and the beginning of a string for Python.
_LAUNCHER = """\
#!/bin/sh
'''exec' "$(dirname "$0")/python" "$0" "$@"
' '''
"""
_REMEDY = "do not use this wheel: check where pip gets it from (pip config list)"
_ENTRY_POINT = """\
import sys
from {module} import {top}
if __name__ == "__main__":
    sys.exit({attribute}())
"""


def library(wheel: Path, prefix: Path, site_packages: str) -> None:
    """Unpack a Python package: modules to `site_packages`, scripts and console entry points to bin/.

    Raises IntegrityError: The path of a member or entry point leads outside the target folder.
    """
    modules = prefix / site_packages
    _extract(wheel, modules)
    targets = {"scripts": prefix / "bin", "data": prefix, "headers": prefix / "include"}
    for data in list(modules.glob("*.data")):
        for kind in sorted(data.iterdir()):
            _merge(kind, targets.get(kind.name, modules))
        data.rmdir()
    for script in _files(prefix / "bin"):
        first, _, body = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!python"):  # the placeholder in a wheel's scripts
            script.write_bytes(_LAUNCHER.encode() + body)
        script.chmod(0o755)
    for metadata in modules.glob("*.dist-info"):
        _write_entry_points(metadata, prefix / "bin")
        (metadata / "INSTALLER").write_text("conda\n")


def tool(wheel: Path, prefix: Path) -> None:
    """Unpack a program that is distributed as a wheel: bin/ and share/ to the prefix, without its Python wrapper.

    Documentation is left out.
    """
    unpacked = prefix / ".wheel"
    _extract(wheel, unpacked)
    for data in (*unpacked.glob("*/data"), *unpacked.glob("*.data/data")):
        if data.is_dir():
            _merge(data, prefix)
    for scripts in unpacked.glob("*.data/scripts"):
        _merge(scripts, prefix / "bin")
    for licences in unpacked.glob("*.dist-info/licenses"):
        _merge(licences, prefix / "share" / "licenses" / wheel.name.split("-")[0])
    shutil.rmtree(unpacked)
    # CMake's manual is more than half of its files, which are linked into each environment
    for documentation in (prefix / "doc", prefix / "man", *prefix.glob("share/cmake-*/Help")):
        shutil.rmtree(documentation, ignore_errors=True)
    for program in _files(prefix / "bin"):
        program.chmod(0o755)


def _files(folder: Path) -> Iterator[Path]:
    """Yield a folder's files without links: an environment's bin/python may lead to the machine's interpreter."""
    return (path for path in folder.glob("*") if path.is_file() and not path.is_symlink())


def members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the members of a wheel.

    Raises IntegrityError: A member's path leads outside the target folder.
    """
    for member in archive.infolist():
        path = PurePosixPath(member.filename)
        if path.is_absolute() or ".." in path.parts:
            raise IntegrityError(
                f"{Path(str(archive.filename)).name}: member outside the wheel's folder: {path}", _REMEDY
            )
    return archive.infolist()


def _extract(wheel: Path, target: Path) -> None:
    with (
        reading(wheel, "delete the wheel: the next run downloads it again"),
        open_zip(wheel) as archive,
    ):
        for member in members(archive):
            if "__pycache__" in member.filename.split("/"):
                continue  # stray files of some wheels
            extracted = Path(archive.extract(member, target))
            if member.external_attr >> 16 & stat.S_IXUSR and extracted.is_file():
                extracted.chmod(0o755)


def _merge(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
    shutil.rmtree(source)


def _write_entry_points(metadata: Path, folder: Path) -> None:
    for entry in PathDistribution(metadata).entry_points.select(group="console_scripts"):
        name = entry.name
        target = entry.pattern.match(entry.value)
        if target is None or not target["attr"]:
            raise IntegrityError(f"{metadata.name}: entry point {name}: not MODULE:FUNCTION", _REMEDY)
        if name in ("", ".", "..") or PurePosixPath(name).name != name:
            raise IntegrityError(f"{metadata.name}: entry point outside bin/: {name}", _REMEDY)
        attribute = target["attr"]
        top = attribute.split(".")[0]
        script = _ENTRY_POINT.format(module=target["module"], top=top, attribute=attribute)
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(_LAUNCHER + script)
        (folder / name).chmod(0o755)
