"""Reads and corrects installers' file lists: RECORD of wheels, conda-meta of environments, info/paths.json."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name

from gpu_tools.site_packages import find_metadata, find_site_packages
from groundwork.errors import IntegrityError
from groundwork.files import read_text, sha256
from groundwork.wheel_file import recorded

#: A conda package's list of its own files; not linked into environments.
_PATHS = "info/paths.json"
_RECORD = "RECORD"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BYTE_CODE = re.compile(r"(.*)__pycache__/([^/]+?)\.(?:cpython|pypy)[^/]*\.pyc", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class FileList:
    """An installer's list of a package's files."""

    path: str  #: Path of the list itself, in the environment or package.
    owner: str  #: The package's name in canonical form.
    version: str
    files: tuple[str, ...]  #: Paths in the environment or package; some may not exist.
    requires: tuple[str, ...]  #: Requirements, as written in the metadata; conda's names only.

    @property
    def is_condas(self) -> bool:
        """Whether conda wrote this list, not an installer of wheels."""
        return self.path.endswith(".json")

    @property
    def required_names(self) -> frozenset[str]:
        """Names of all required packages, including those that only an extra requires."""
        names = filter(None, (_NAME.match(text.strip()) for text in self.requires))
        return frozenset(canonicalize_name(name[0]) for name in names)


def source_of(path: str) -> str:
    """Return the source file of byte code, or an empty string if ``path`` is not byte code."""
    byte_code = _BYTE_CODE.fullmatch(path)
    if byte_code is None:
        return ""
    return f"{byte_code[1]}{byte_code[2]}.py"


def find_metadata_folders(root: Path) -> list[Path]:
    """Return the packages' metadata folders; ``pip install --target`` puts them directly into ``root``."""
    # conda's noarch packages have theirs in site-packages
    folders = [root, root / "site-packages"]
    folders += [site.folder for site in find_site_packages(root)]
    return list(chain.from_iterable(map(find_metadata, folders)))


def is_environment(prefix: Path) -> bool:
    """Return whether a folder is a conda environment, a venv, or a ``pip install --target`` folder."""
    return (prefix / "conda-meta").is_dir() or bool(find_metadata_folders(prefix))


def find_lists(root: Path) -> Iterator[Path]:
    """Yield the list files of an environment or an unpacked package; RECORDs first."""
    records = (information / _RECORD for information in find_metadata_folders(root))
    for path in (*records, *sorted((root / "conda-meta").glob("*.json")), root / _PATHS):
        if path.is_file():
            yield path


def read_list(root: Path, file: Path) -> FileList:
    """Read a list file.

    Raises IntegrityError: The file is malformed.
    """
    path = file.relative_to(root).as_posix()
    if file.name == _RECORD:
        return _read_record(root, file, path)
    document = _read_json(file)
    try:
        if path == _PATHS:
            about = _read_json(root / "info" / "index.json")
            files = [entry["_path"] for entry in document["paths"]]
        else:
            about = document
            files = document["files"]
        return FileList(
            path=path,
            owner=canonicalize_name(about["name"]),
            version=str(about["version"]),
            files=(*map(str, files), path),
            requires=tuple(str(spec).split()[0] for spec in about.get("depends") or ()),
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise _unreadable(file, error) from error


def _read_record(root: Path, file: Path, path: str) -> FileList:
    """Read a wheel's list, and its requirements from the METADATA next to it."""
    metadata = file.with_name("METADATA")
    text = ""
    if metadata.is_file():
        text = read_text(metadata, errors="replace")
    name, _, version = file.parent.name.removesuffix(".dist-info").partition("-")
    files = [_locate(root, path, row[0]) for row in _read_rows(file) if row]
    return FileList(
        path=path,
        owner=canonicalize_name(name),
        version=version,
        files=tuple(filter(None, files)),
        requires=tuple(parse_email(text)[0].get("requires_dist", ())),
    )


def correct_list(file: Path, path: str, gone: Collection[str], changed: Mapping[str, Path]) -> str | None:
    """Return the text of a list without removed files and with new hashes and sizes; None if nothing changes.

    ``changed`` maps paths to their new files. It may contain lists that were corrected before this one.
    """
    if not path.endswith(".json"):
        return _correct_record(file, path, gone, changed)
    document = _read_json(file)
    before = json.dumps(document)
    details = document
    if path != _PATHS:
        details = document.get("paths_data") or {}
    try:
        if "paths" in details:
            details["paths"] = [entry for entry in details["paths"] if entry["_path"] not in gone]
        if "files" in document:
            document["files"] = [name for name in document["files"] if name not in gone]
        for entry in details.get("paths", ()):
            new = changed.get(entry["_path"])
            if new:
                _correct_entry(entry, new)
    except (LookupError, TypeError, AttributeError) as error:
        raise _unreadable(file, error) from error
    if json.dumps(document) == before:
        return None
    return json.dumps(document, indent=2)


def _correct_entry(entry: dict[str, Any], new: Path) -> None:
    """Write a new file's size and hash into the entry of a conda package's list."""
    entry["size_in_bytes"] = new.stat().st_size
    entry["sha256"] = sha256(new)
    if "sha256_in_prefix" in entry:
        entry["sha256_in_prefix"] = entry["sha256"]


def _correct_record(file: Path, path: str, gone: Collection[str], changed: Mapping[str, Path]) -> str | None:
    root = file.parents[path.count("/")]
    before = _read_rows(file)
    rows = []
    for row in before:
        located = _locate(root, path, row[0]) if row else ""
        if located in gone:
            continue
        new = changed.get(located)
        if new and len(row) == 3 and row[1]:
            row = [row[0], recorded(bytes.fromhex(sha256(new))), str(new.stat().st_size)]
        rows.append(row)
    if rows == before:
        return None
    written = io.StringIO()
    ending = "\n"
    with file.open("rb") as stream:
        if stream.readline().endswith(b"\r\n"):
            ending = "\r\n"
    csv.writer(written, lineterminator=ending).writerows(rows)
    return written.getvalue()


def _read_rows(file: Path) -> list[list[str]]:
    try:
        # pip uses surrogateescape too: a file name may contain any byte
        with file.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            return list(csv.reader(stream))
    except csv.Error as error:
        raise _unreadable(file, error) from error


def _locate(root: Path, record: str, listed: str) -> str:
    """Return a RECORD entry as a path in the environment ``root``, or an empty string if it is outside.

    Entries are relative to the folder of the ``.dist-info`` folder, or absolute (PEP 627).
    """
    site = os.path.dirname(os.path.dirname(record))
    paths = [os.path.normpath(os.path.join(site, listed))]
    if os.path.isabs(listed):  # an installer may have resolved links of the environment's path
        paths = [os.path.relpath(listed, top) for top in (os.path.abspath(root), os.path.realpath(root))]
    for path in paths:
        if path != os.pardir and not path.startswith("../"):
            return path
    return ""


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(read_text(file)))
    except (ValueError, TypeError, RecursionError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> IntegrityError:
    return IntegrityError(
        f"{file}: malformed file list: {error or type(error).__name__}", "reinstall the package that owns it"
    )
