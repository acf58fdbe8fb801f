"""Wheel files: validated, unpacked, given another version, and packed reproducibly."""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import os
import re
import time
import zipfile
import zlib
from collections.abc import Sequence
from email import message_from_string
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from groundwork.errors import IntegrityError

_BLOCK = 1 << 20
#: Bytes above which an entry of a zip file needs wide fields.
_WIDE = 2**31 - 1
_UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")  # a RECORD cannot hold its own hash


def pack(tree: Path, wheel: Path, date: int, *, compressed: bool = True) -> Path:
    """Write a wheel: a RECORD of what is there, entries in order with the metadata last, one date for all."""
    (folder,) = tree.glob("*.dist-info")
    record = f"{folder.name}/RECORD"
    names = [path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(wheel, "w", how) as archive:
        for name in sorted({*names} - {record}, key=lambda name: (name.startswith(folder.name), name)):
            path, digest = tree / name, hashlib.sha256()
            size = path.stat().st_size
            entry = _entry(name, date, how, 0o755 if os.access(path, os.X_OK) else 0o644)
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=size > _WIDE) as target:
                while block := source.read(_BLOCK):
                    digest.update(block)
                    target.write(block)
            rows.writerow((name, recorded(digest.digest()), size))
        rows.writerow((record, "", ""))
        archive.writestr(_entry(record, date, how, 0o644), text.getvalue())
    return wheel


def recorded(digest: bytes) -> str:
    """Return a sha256 as a RECORD has it."""
    return f"sha256={_encoded(digest)}"


def _encoded(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def unpack(wheel: Path, tree: Path) -> Path:
    """Unpack a wheel into a folder, with modes."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                path = Path(archive.extract(entry, tree))
                path.chmod(0o755 if entry.external_attr >> 16 & 0o100 else 0o644)
    return tree


def _entry(name: str, date: int, how: int, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, time.gmtime(date)[:6])
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = how
    return entry


def metadata(tree: Path) -> Path:
    """Return the folder with the metadata of a tree; raises IntegrityError where there is none, or several."""
    folders = [*tree.glob("*.dist-info")]
    if len(folders) != 1:
        raise IntegrityError(f"a package has {len(folders)} dist-info folders", "build the package again")
    return folders[0]


def name_version(tree: Path, version: str, requires: Sequence[str] = ()) -> None:
    """Give a tree another version, and further requirements in place of those of the same names."""
    folder = metadata(tree)
    head, separator, body = (folder / "METADATA").read_text(encoding="utf-8").partition("\n\n")
    new = {canonicalize_name(Requirement(requirement).name) for requirement in requires}
    lines = [
        f"Version: {version}" if line.startswith("Version: ") else line
        for line in head.splitlines()
        if not (line.startswith("Requires-Dist: ") and _requirement_name(line) in new)
    ]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    (folder / "METADATA").write_text("\n".join(lines) + (separator or "\n") + body, encoding="utf-8")
    folder.rename(tree / f"{folder.name.partition('-')[0]}-{version}.dist-info")
    module = tree / "torch" / "version.py"
    if module.is_file():
        text = re.sub(
            r"^__version__ = .*$", f"__version__ = '{version}'", module.read_text(), flags=re.MULTILINE
        )
        module.write_text(text)


def _requirement_name(line: str) -> str:
    return canonicalize_name(Requirement(line.removeprefix("Requires-Dist: ")).name)


def why_broken(path: Path) -> str:
    """Return what is wrong with a wheel file by the hashes in its RECORD, or an empty string for one that is whole."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _contradicts_record(archive, path.name)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        return f"the archive cannot be read ({error})"
    except (UnicodeError, ValueError, KeyError) as error:
        return f"its metadata cannot be read ({error})"


def _contradicts_record(archive: zipfile.ZipFile, file_name: str) -> str:
    names = archive.namelist()
    records = [name for name in names if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
    if len(records) != 1:
        return "it has no RECORD of its files"
    folder = records[0].rpartition("/")[0]
    rows = csv.reader(io.StringIO(archive.read(records[0]).decode()))
    hashes = {row[0]: row[1].partition("=") for row in rows if len(row) >= 2}
    for name in names:
        if name.endswith("/") or name in {f"{folder}/{unlisted}" for unlisted in _UNLISTED}:
            continue
        kind, _, digest = hashes.get(name, ("", "", ""))
        if kind not in ("sha256", "sha384", "sha512"):
            return f"its RECORD has no hash of {name}"
        if _encoded(hashlib.new(kind, archive.read(name)).digest()) != digest:
            return f"{name} is not what its RECORD says"
    if lost := [name for name in hashes if name not in names]:
        return f"{lost[0]} is missing from it"
    head = message_from_string(archive.read(f"{folder}/METADATA").decode())
    project, version, _, _ = parse_wheel_filename(file_name)
    with contextlib.suppress(InvalidVersion):
        if canonicalize_name(head["Name"] or "") == project and Version(head["Version"] or "") == version:
            return ""
    return f"inside it calls itself {head['Name']} {head['Version']}"
