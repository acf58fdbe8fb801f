"""The lists of files that installers keep: RECORD of a wheel, conda-meta of an environment, paths.json of a package."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from gpu_tools.site_packages import find_metadata, find_site_packages
from groundwork.errors import IntegrityError
from groundwork.files import sha256
from groundwork.wheel_file import recorded

#: What a conda package says of its own files; not linked into environments.
PATHS = "info/paths.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class FileList:
    """A list of files."""

    path: str  #: Of the list itself, in the environment or package.
    owner: str  #: The package's name in canonical form.
    files: tuple[str, ...]  #: In the environment or package.


def read_lists(root: Path, original: Callable[[str], Path]) -> Iterator[FileList]:
    """Return the lists of an environment or of an unpacked package; those of a wheel first.

    ``original`` tells where a file's content lies that was there before anything was slimmed, by its path.

    Raises IntegrityError: A list cannot be read.
    """
    # the second is where conda's packages for every Python have theirs
    for folder in (root, root / "site-packages", *(site.folder for site in find_site_packages(root))):
        for information in find_metadata(folder):
            listed_in = (information / "RECORD").relative_to(root).as_posix()
            if (file := original(listed_in)).is_file():
                inside = (_inside(listed_in, row[0]) for row in _rows(file) if row)
                owner = canonicalize_name(information.name.partition("-")[0])
                yield FileList(path=listed_in, owner=owner, files=tuple(path for path in inside if path))
    for path in [*sorted((root / "conda-meta").glob("*.json")), root / PATHS]:
        name = path.relative_to(root).as_posix()
        if (file := original(name)).is_file():
            document = _read(file)
            try:
                if name == PATHS:
                    listed = [str(entry["_path"]) for entry in document["paths"]]
                    document = _read(root / "info" / "index.json")
                else:
                    listed = [str(path) for path in document["files"]]
                owner = canonicalize_name(str(document["name"]))
            except (LookupError, TypeError) as error:
                raise _unreadable(file, error) from error
            yield FileList(path=name, owner=owner, files=tuple(listed))


def metadata_path(record: str) -> str:
    """Return the file that says what a package requires, by the path of its list."""
    if record == PATHS:
        return "info/index.json"
    return record if record.endswith(".json") else f"{os.path.dirname(record)}/METADATA"


def read_requirements(file: Path) -> set[str]:
    """Return the names of the packages that one requires, with whatever extra.

    The file is the one that `metadata_path` names.
    """
    if file.suffix == ".json":
        specs = [str(spec) for spec in _read(file).get("depends", ())]
    else:
        headers = file.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        lines = (line.partition(":") for line in headers.splitlines())
        specs = [spec for name, _, spec in lines if name == "Requires-Dist"]
    names = (_NAME.match(spec.strip()) for spec in specs)
    return {canonicalize_name(name[0]) for name in names if name}


def correct_list(file: Path, path: str, gone: Collection[str], changed: Mapping[str, Path]) -> str | None:
    """Return a list without what is gone, with the hashes and sizes of what changed; None where it stays as it is.

    ``changed`` has new files by their path; lists among them are those that come before this one.
    """
    if not path.endswith(".json"):
        return _correct_rows(file, path, gone, changed)
    document = _read(file)
    details = document.get("paths_data") or {} if path != PATHS else document
    entries = details.get("paths", [])
    kept = [entry for entry in entries if entry["_path"] not in gone]
    files = [path for path in document.get("files", ()) if path not in gone]
    touched = [entry for entry in kept if entry["_path"] in changed]
    if len(kept) == len(entries) and not touched and len(files) == len(document.get("files", ())):
        return None
    for entry in touched:
        new = changed[entry["_path"]]
        entry["size_in_bytes"] = new.stat().st_size
        entry["sha256"] = sha256(new)
        if "sha256_in_prefix" in entry:
            entry["sha256_in_prefix"] = entry["sha256"]
    if entries:
        details["paths"] = kept
    if "files" in document:
        document["files"] = files
    return json.dumps(document, indent=2)


def _correct_rows(file: Path, path: str, gone: Collection[str], changed: Mapping[str, Path]) -> str | None:
    rows, touched = [], False
    for row in _rows(file):
        inside = _inside(path, row[0]) if row else ""
        if inside in gone:
            touched = True
        elif inside in changed and len(row) == 3 and row[1]:
            new = changed[inside]
            rows.append([row[0], recorded(bytes.fromhex(sha256(new))), str(new.stat().st_size)])
            touched = True
        else:
            rows.append(row)
    if not touched:
        return None
    written = io.StringIO()
    with file.open("rb") as stream:
        ending = "\r\n" if stream.readline().endswith(b"\r\n") else "\n"
    csv.writer(written, lineterminator=ending).writerows(rows)
    return written.getvalue()


def _rows(file: Path) -> list[list[str]]:
    try:
        # as pip reads and writes it; a name may hold any byte
        with file.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            return list(csv.reader(stream))
    except csv.Error as error:
        raise _unreadable(file, error) from error


def _inside(record: str, listed: str) -> str:
    """Return a RECORD's entry as a path in the environment; empty where it lies outside."""
    site = os.path.dirname(os.path.dirname(record))
    path = os.path.normpath(os.path.join(site, listed))
    return "" if os.path.isabs(path) or path.startswith("../") else path


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> IntegrityError:
    return IntegrityError(
        f"{file} cannot be read: {error or type(error).__name__}", "install its package again"
    )
