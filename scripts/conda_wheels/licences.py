"""Collect the licences of a wheel's contents: its own packages, and the libraries vendored into it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

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
    folder = unpacked / "info" / "licenses"
    # the recipes gather licences in a folder of this name, which is inside info/licenses
    inner = folder / "licenses" if (folder / "licenses").is_dir() else folder
    # a repacked wheel of PyPI has its texts in its metadata only
    metadata = (path for path in unpacked.glob("site-packages/*.dist-info/**/*") if _TEXT.match(path.name))
    texts = {f"{name}/{path.name}": path for path in metadata}
    texts |= {f"{name}/{path.relative_to(inner)}": path for path in inner.rglob("*")}
    return {text: path for text, path in texts.items() if path.is_file()}


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
    below = notice.parts[2:] if notice.parts[:2] == ("share", "doc") else notice.parts
    return PurePosixPath(*below)


def of_vendored(tree: Path, records: Mapping[str, CondaRecord], root: Path | None) -> dict[str, Path]:
    """Return the licence texts of the libraries that auditwheel vendored from an environment or from the system.

    ``root`` is the Debian root, if any, that auditwheel searched before this system. auditwheel lists the system's
    packages in the unpacked wheel (a CycloneDX document).
    """
    names = {_HASH.sub("", path.name) for path in tree.glob("*.libs/*")} | {"libgomp.so.1"}
    owned = {
        name: names & {path.removeprefix("lib/") for path in record["files"]}
        for name, record in records.items()
    }
    texts = of_records(records, (name for name, libraries in owned.items() if libraries))
    missing = names.difference(*owned.values())
    if root:
        for listing in sorted((root / "var/lib/dpkg/info").glob("lib*.list")):
            package = listing.name.removesuffix(".list").partition(":")[0]
            if not missing.isdisjoint(
                path.rpartition("/")[2] for path in listing.read_text(errors="surrogateescape").splitlines()
            ):
                texts[f"system/{package}/copyright"] = root / "usr/share/doc" / package / "copyright"
    for listing in tree.glob("*.dist-info/sboms/*.json"):
        with reading(listing):
            components = json.loads(listing.read_text(encoding="utf-8"))["components"]
        for component in components:
            notice = _SYSTEMS / component["name"] / "copyright"
            texts.setdefault(f"system/{component['name']}/copyright", notice)
    return {name: notice for name, notice in texts.items() if notice.is_file()}
