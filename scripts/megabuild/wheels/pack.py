"""A wheel file out of an unpacked one, the same from the same content (the binary distribution format)."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import time
import zipfile
from pathlib import Path

_BLOCK = 1 << 20
#: Bytes above which an entry of a zip file needs wide fields.
_WIDE = 2**31 - 1


def pack(tree: Path, wheel: Path, date: int, *, compressed: bool = True) -> Path:
    """Write a wheel: a RECORD of what is there, entries in order with the metadata last, one date for all.

    Parameters
    ----------
    tree:
        The unpacked wheel; a RECORD in it is not looked at.
    wheel:
        The file to write.
    date:
        Seconds since 1970, not before 1980.
    compressed:
        Whether it is kept, or read again soon.
    """
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
            hashed = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
            rows.writerow((name, f"sha256={hashed}", size))
        rows.writerow((record, "", ""))
        archive.writestr(_entry(record, date, how, 0o644), text.getvalue())
    return wheel


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
