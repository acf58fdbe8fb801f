"""Collect the licences of a wheel's contents: its own packages, and the libraries vendored into it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Set
from pathlib import Path, PurePosixPath
from typing import Any

from groundwork import files
from groundwork.damage import reading

#: auditwheel adds this hash to the name of a library that it vendors.
_HASH = re.compile(r"-[0-9a-f]{8}(?=\.)")
_TEXT = re.compile(r"(?:LICEN[CS]E|COPYING|NOTICE)", re.IGNORECASE)
_SYSTEMS = Path("/usr/share/doc")
#: conda's record of an installed package, from conda-meta.
CondaRecord = Mapping[str, Any]


def installed(environment: Path) -> dict[str, CondaRecord]:
    """Return the records of the packages in an environment, by name."""
    records: dict[str, CondaRecord] = {}
    for path in sorted((environment / "conda-meta").glob("*.json")):
        with reading(path):
            record = json.loads(path.read_text(encoding="utf-8"))
        records[record["name"]] = record
    return records


def of_package(name: str, unpacked: Path) -> dict[str, Path]:
    """Return the licence texts of an unpacked package, by their paths below ``licenses``."""
    texts: dict[str, Path] = {}
    # a repacked wheel of PyPI has its texts in its metadata only
    for metadata in unpacked.glob("site-packages/*.dist-info"):
        for path in files.below(metadata):
            if _TEXT.match(path.name):
                texts[f"{name}/{_place(path.relative_to(metadata))}"] = path
    folder = unpacked / "info" / "licenses"
    # the recipes gather licences in a folder of this name, which is inside info/licenses
    gathered = folder / "licenses"
    if gathered.is_dir():
        folder = gathered
    for path in files.below(folder):
        texts[f"{name}/{path.relative_to(folder)}"] = path
    return _existing(texts)


def _place(path: Path) -> Path:
    """Return a path in a wheel's metadata without the folder for licences, which newer wheels have (PEP 639)."""
    if path.parts[0] == "licenses":
        return path.relative_to("licenses")
    return path


def _existing(texts: Mapping[str, Path]) -> dict[str, Path]:
    return {name: path for name, path in texts.items() if path.is_file()}


def of_records(records: Mapping[str, CondaRecord], names: Iterable[str]) -> dict[str, Path]:
    """Return the licence texts of installed packages, as :func:`of_package`, and the notices among their files."""
    texts: dict[str, Path] = {}
    for name in names:
        unpacked = Path(records[name]["extracted_package_dir"])
        texts |= of_package(name, unpacked)
        for file in records[name]["files"]:
            path = PurePosixPath(file)
            if path.name == "copyright" and path.parent.name:
                texts[f"{name}/{_below_doc(path)}"] = unpacked / path
    return texts


def _below_doc(notice: PurePosixPath) -> PurePosixPath:
    """Return a notice's path without ``share/doc``, as its licence text is named."""
    if notice.is_relative_to("share/doc"):
        return notice.relative_to("share/doc")
    return notice


def of_vendored(tree: Path, records: Mapping[str, CondaRecord], root: Path | None) -> dict[str, Path]:
    """Return the licence texts of the libraries that auditwheel vendored from an environment or from the system.

    ``root`` is the Debian root, if any, that auditwheel searched before this system. auditwheel lists the system's
    packages in the unpacked wheel (a CycloneDX document).
    """
    missing = {_HASH.sub("", path.name) for path in tree.glob("*.libs/*")} | {"libgomp.so.1"}
    vendored = frozenset(missing)
    owners: list[str] = []
    for name, record in records.items():
        owned = vendored.intersection(path.removeprefix("lib/") for path in record["files"])
        if owned:
            owners.append(name)
            missing -= owned
    texts = _of_system(tree)
    if root:
        texts |= _of_root(root, missing)
    return _existing(texts | of_records(records, owners))


def _of_root(root: Path, libraries: Set[str]) -> dict[str, Path]:
    """Return the notices of a Debian root's packages that have one of these libraries."""
    texts: dict[str, Path] = {}
    for listing in sorted((root / "var/lib/dpkg/info").glob("lib*.list")):
        paths = listing.read_text(errors="surrogateescape").splitlines()
        if libraries.isdisjoint(path.rpartition("/")[2] for path in paths):
            continue
        package = listing.name.removesuffix(".list").partition(":")[0]
        texts[f"system/{package}/copyright"] = root / "usr/share/doc" / package / "copyright"
    return texts


def _of_system(tree: Path) -> dict[str, Path]:
    """Return the notices of the system's packages that auditwheel lists in a wheel."""
    texts: dict[str, Path] = {}
    for listing in tree.glob("*.dist-info/sboms/*.json"):
        with reading(listing):
            components = json.loads(listing.read_text(encoding="utf-8"))["components"]
        for component in components:
            package = component["name"]
            texts[f"system/{package}/copyright"] = _SYSTEMS / package / "copyright"
    return texts
