"""Whether a wheel is whole: a readable archive whose files are what its own RECORD says, under the name it bears."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
import zlib
from email import message_from_string
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

_UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")  # a record cannot hold its own hash


def why_broken(path: Path) -> str:
    """Return what is wrong with a wheel file, or an empty string for one that is whole.

    Indexes need not give hashes; every wheel carries those of its files (the binary distribution format's RECORD).
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _look(archive, path.name)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        return f"the archive cannot be read ({error})"
    except (UnicodeError, ValueError, KeyError) as error:
        return f"its metadata cannot be read ({error})"


def _look(archive: zipfile.ZipFile, file_name: str) -> str:
    names = archive.namelist()
    records = [name for name in names if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
    if len(records) != 1:
        return "it has no RECORD of its files"
    folder = records[0].rpartition("/")[0]
    text = archive.read(records[0]).decode()
    listed = {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) >= 2}
    exempt = {f"{folder}/{name}" for name in _UNLISTED}
    for name in names:
        if name.endswith("/") or name in exempt:
            continue
        kind, _, wanted = listed.get(name, "").partition("=")
        if kind not in ("sha256", "sha384", "sha512"):
            return f"its RECORD has no hash of {name}"
        found = hashlib.new(kind, archive.read(name)).digest()
        if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != wanted:
            return f"{name} is not what its RECORD says"
    lost = [name for name in listed if name not in names]
    if lost:
        return f"{lost[0]} is missing from it"
    return _misnamed(archive.read(f"{folder}/METADATA").decode(), file_name)


def _misnamed(metadata: str, file_name: str) -> str:
    name, version, _, _ = parse_wheel_filename(file_name)
    head = message_from_string(metadata)
    try:
        same = canonicalize_name(head["Name"] or "") == name and Version(head["Version"] or "") == version
    except InvalidVersion:
        same = False
    return "" if same else f"inside it calls itself {head['Name']} {head['Version']}"
