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

from groundwork.damage import reading
from groundwork.errors import IntegrityError
from groundwork.zip_archive import open_zip, read_member

_BLOCK = 1 << 20
#: Bytes above which an entry of a zip file needs 64-bit fields.
_WIDE = 2**31 - 1


def pack(tree: Path, wheel: Path, date: int, *, compressed: bool = True) -> Path:
    """Write a wheel with a new RECORD: entries sorted, metadata last, all with the same date (seconds since 1970)."""
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
    """Format a sha256 digest for a RECORD."""
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def unpack(wheel: Path, tree: Path) -> Path:
    """Unpack a wheel into a folder; keep executable bits."""
    with open_zip(wheel) as archive:
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
    """Return the dist-info folder of a tree; raises IntegrityError if there is not exactly one."""
    folders = [*tree.glob("*.dist-info")]
    if len(folders) != 1:
        raise IntegrityError(
            f"{tree.name}: {len(folders)} dist-info folders, not one", "build the package again"
        )
    return folders[0]


def name_version(tree: Path, version: str, requires: Sequence[str] = ()) -> None:
    """Change the version of an unpacked wheel, and add requirements; these replace requirements of the same project."""
    folder = metadata(tree)
    with reading(folder / "METADATA"):
        head, separator, body = (folder / "METADATA").read_text(encoding="utf-8").partition("\n\n")
    new = {canonicalize_name(Requirement(requirement).name) for requirement in requires}
    lines = [
        f"Version: {version}" if line.startswith("Version: ") else line
        for line in head.splitlines()
        if not line.startswith("Requires-Dist: ")
        or canonicalize_name(Requirement(line.removeprefix("Requires-Dist: ")).name) not in new
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


def why_broken(path: Path) -> str:
    """Return the fault of a wheel file, or an empty string if it is intact and its name matches its metadata."""
    try:
        with open_zip(path) as archive:
            if damaged := archive.testzip():
                return f"{damaged} is damaged"
            (name,) = [
                name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)
            ]
            head = message_from_string(read_member(archive, name).decode())
            project, version, _, _ = parse_wheel_filename(path.name)
            if (canonicalize_name(head["Name"]), Version(head["Version"])) == (project, version):
                return ""
            return f"its metadata names {head['Name']} {head['Version']}"
    except Exception as error:  # a broken wheel can raise any
        return f"the archive cannot be read ({error})"
