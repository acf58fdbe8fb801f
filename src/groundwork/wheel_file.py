"""Validates, unpacks, renames and reproducibly packs wheel files."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import time
import zipfile
from collections.abc import Sequence
from email import message_from_string
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from groundwork import files
from groundwork.damage import reading
from groundwork.errors import IntegrityError
from groundwork.zip_archive import open_zip, read_member

_BLOCK = 1 << 20
#: Bytes above which an entry of a zip file needs 64-bit fields.
_WIDE = 2**31 - 1
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")


def pack(tree: Path, wheel: Path, date: int, *, compressed: bool = True) -> Path:
    """Write a wheel with a new RECORD: entries sorted, metadata last, all with the same date (seconds since 1970)."""
    (folder,) = tree.glob("*.dist-info")
    record = f"{folder.name}/RECORD"
    names = {path.relative_to(tree).as_posix() for path in files.below(tree) if path.is_file()}
    names.discard(record)
    how = zipfile.ZIP_STORED
    if compressed:
        how = zipfile.ZIP_DEFLATED
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    with zipfile.ZipFile(wheel, "w", how) as archive:
        for name in sorted(names, key=lambda name: (name.startswith(folder.name), name)):
            path = tree / name
            digest = _add(archive, name, path, date)
            rows.writerow((name, digest, path.stat().st_size))
        rows.writerow((record, "", ""))
        archive.writestr(_entry(archive, record, date, file_mode(executable=False)), text.getvalue())
    return wheel


def _add(archive: zipfile.ZipFile, name: str, path: Path, date: int) -> str:
    """Add a file to a wheel; return its hash as in RECORD."""
    digest = hashlib.sha256()
    entry = _entry(archive, name, date, file_mode(executable=os.access(path, os.X_OK)))
    is_wide = path.stat().st_size > _WIDE
    with path.open("rb") as source, archive.open(entry, "w", force_zip64=is_wide) as target:
        while block := source.read(_BLOCK):
            digest.update(block)
            target.write(block)
    return recorded(digest.digest())


def recorded(digest: bytes) -> str:
    """Format a sha256 digest for a RECORD."""
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def unpack(wheel: Path, tree: Path) -> Path:
    """Unpack a wheel into a folder; keep executable bits."""
    with open_zip(wheel) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                path = Path(archive.extract(entry, tree))
                path.chmod(file_mode(executable=bool(entry.external_attr >> 16 & 0o100)))
    return tree


def _entry(archive: zipfile.ZipFile, name: str, date: int, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, time.gmtime(date)[:6])
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = archive.compression
    return entry


def file_mode(*, executable: bool) -> int:
    """Return the permissions of files in wheels, which depend on no umask."""
    if executable:
        return 0o755
    return 0o644


def metadata(tree: Path, wheel: str = "") -> Path:
    """Return the dist-info folder of a tree, which was unpacked from a ``wheel`` if it has its name.

    Raises IntegrityError: There is not exactly one.
    """
    folders = [*tree.glob("*.dist-info")]
    if len(folders) != 1:
        raise IntegrityError(
            f"{wheel or tree.name}: {len(folders)} dist-info folders, not one", "build the package again"
        )
    return folders[0]


def name_version(tree: Path, version: str, requires: Sequence[str] = ()) -> None:
    """Change the version of an unpacked wheel, and add requirements; these replace requirements of the same project."""
    folder = metadata(tree)
    with reading(folder / "METADATA"):
        head, separator, body = (folder / "METADATA").read_text(encoding="utf-8").partition("\n\n")
    text = _renamed(head, version, requires) + (separator or "\n") + body
    (folder / "METADATA").write_text(text, encoding="utf-8")
    folder.rename(tree / f"{folder.name.partition('-')[0]}-{version}.dist-info")
    module = tree / "torch" / "version.py"
    if module.is_file():
        assignment = f"__version__ = '{version}'"
        text = re.sub(r"^__version__ = .*$", assignment, module.read_text(), flags=re.MULTILINE)
        module.write_text(text)


def _renamed(head: str, version: str, requires: Sequence[str]) -> str:
    """Return the fields of METADATA with another version, and with requirements in place of former ones."""
    replaced = {_project(requirement) for requirement in requires}
    lines: list[str] = []
    for line in head.splitlines():
        field, _, value = line.partition(": ")
        match field:
            case "Version":
                lines.append(f"Version: {version}")
            case "Requires-Dist" if _project(value) in replaced:
                continue
            case _:
                lines.append(line)
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    return "\n".join(lines)


def _project(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def why_broken(path: Path) -> str:
    """Return the fault of a wheel file, or an empty string if it is intact and its name matches its metadata.

    Raises PermissionError: This user may not read the file.
    """
    try:
        with open_zip(path) as archive:
            if damaged := archive.testzip():
                return f"{damaged} is damaged"
            (name,) = filter(_METADATA.fullmatch, archive.namelist())
            head = message_from_string(read_member(archive, name).decode())
        project, version, _, _ = parse_wheel_filename(path.name)
        if canonicalize_name(head["Name"]) != project or Version(head["Version"]) != version:
            return f"its metadata names {head['Name']} {head['Version']}"
    except PermissionError:
        raise
    except Exception as error:  # a broken wheel can raise any
        return f"the archive cannot be read ({error})"
    return ""
