"""What lies in an environment, and which package put it there."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from gpu_tools.site_packages import find_metadata, find_site_packages
from gpu_tools.sizes.inside import read_parts
from gpu_tools.sizes.tree import (
    NO_PACKAGE,
    ContentPart,
    File,
    Kind,
    Package,
    Sizes,
    find_requirers,
    sort_by_size,
)

_BYTE_CODE = re.compile(r"(.*)__pycache__/([^/]+?)\.(?:cpython|pypy)[^/]*\.pyc", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class _Installed:
    """What metadata say of a package; files are paths in the environment, and only as good as the metadata."""

    name: str
    version: str
    files: tuple[str, ...]
    #: As wheels' metadata write them.
    requires: tuple[str, ...] = ()
    #: Names of conda packages.
    depends: tuple[str, ...] = ()
    download: int | None = None


def is_environment(prefix: Path) -> bool:
    """Say whether a folder is a conda environment, a venv, or what ``pip install --target`` makes."""
    return (prefix / "conda-meta").is_dir() or any(map(find_metadata, _folders(prefix)))


def measure_environment(prefix: Path) -> Sizes:
    """Measure an environment. Symbolic links are not followed and take no room; hard links count once.

    Nothing of it is imported or run. What its metadata claim outside of it is not looked at.
    """
    remarks: list[str] = []
    records = [*_conda(prefix, remarks), *_pip(prefix, remarks)]
    installed = {record.name: record for record in records}
    owners = {path: record.name for record in records for path in record.files}
    files: dict[str, list[File]] = {}
    for owner, file in _files(prefix, owners, remarks):
        files.setdefault(owner, []).append(file)
    if "torch" in files and (others := [name for name in ("pytorch", "libtorch") if name in files]):
        torches = " and ".join(f"{name} {installed[name].version}" for name in ("torch", *others))
        remarks.append(
            f"two PyTorches: {torches}; Python loads torch's own libraries, not those of {others[-1]}"
        )
    required = _requirers(installed, prefix)
    packages = [
        Package(
            name=record.name,
            version=record.version,
            files=tuple(files.pop(record.name, ())),
            download=record.download,
            required_by=tuple(sorted(required.get(record.name, ()))),
        )
        for record in installed.values()
    ]
    packages += [Package(name=NO_PACKAGE, files=tuple(rest)) for rest in files.values()]
    return Sizes(
        subject=str(prefix), kind="environment", packages=sort_by_size(packages), remarks=tuple(remarks)
    )


def _requirers(installed: Mapping[str, _Installed], prefix: Path) -> dict[str, set[str]]:
    pythons = [site.python.rstrip("t") for site in find_site_packages(prefix)]
    python = pythons[0] if pythons else f"3.{sys.version_info.minor}"
    requirers = find_requirers(
        installed, lambda name: installed[name].requires if name in installed else (), python
    )
    for record in installed.values():
        for name in record.depends:
            requirers.setdefault(name, set()).add(record.name)
    return requirers


def source_of(path: str) -> str:
    """Return the source that byte code was made from; empty for what is none."""
    byte_code = _BYTE_CODE.fullmatch(path)
    return f"{byte_code[1]}{byte_code[2]}.py" if byte_code else ""


def _conda(prefix: Path, remarks: list[str]) -> Iterator[_Installed]:
    for path in sorted((prefix / "conda-meta").glob("*.json")):
        try:
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            size = record.get("size")
            yield _Installed(
                name=canonicalize_name(record["name"]),
                version=str(record["version"]),
                files=(*map(str, record["files"]), f"conda-meta/{path.name}"),
                depends=tuple(canonicalize_name(str(spec).split()[0]) for spec in record["depends"]),
                download=size if isinstance(size, int) else None,
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            remarks.append(f"conda-meta/{path.name} cannot be read: {error}")


def _pip(prefix: Path, remarks: list[str]) -> Iterator[_Installed]:
    """Return what pip, uv and the like installed; conda's packages have such metadata, too, and are not theirs."""
    for site in _folders(prefix):
        for path in find_metadata(site):
            distribution = Distribution.at(path)
            try:
                if (distribution.read_text("INSTALLER") or "").strip() != "conda":
                    yield _distribution(distribution, site, prefix)
            # metadata may be anything, and importlib has no errors of its own
            except Exception as error:
                remarks.append(f"{path} cannot be read: {error or type(error).__name__}")


def _folders(prefix: Path) -> list[Path]:
    """Return the folders with Python packages; ``pip install --target`` puts them into the environment itself."""
    return [prefix, *(site.folder for site in find_site_packages(prefix))]


def _distribution(distribution: Distribution, site: Path, prefix: Path) -> _Installed:
    if not (name := distribution.metadata["Name"]):
        raise ValueError("its metadata have no name")
    files = (os.path.relpath(os.path.normpath(site / str(file)), prefix) for file in distribution.files or ())
    return _Installed(
        name=canonicalize_name(name),
        version=distribution.version,
        files=tuple(files),
        requires=tuple(distribution.requires or ()),
    )


def _files(prefix: Path, owners: Mapping[str, str], remarks: list[str]) -> Iterator[tuple[str, File]]:
    unread: Counter[str] = Counter()

    def refused(error: OSError) -> None:
        unread[error.strerror or str(error)] += 1

    files: list[tuple[str, str, os.stat_result]] = []
    for folder, _, names in os.walk(prefix, onerror=refused):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), prefix)
            with suppress(OSError):  # gone since
                owner = owners.get(path if path in owners else source_of(path), NO_PACKAGE)
                files.append((owner, path, os.lstat(prefix / path)))
    # of hard links, one that belongs to a package counts: conda's cache may lie in the same folder
    files.sort(key=lambda file: file[0] == NO_PACKAGE)
    seen: set[tuple[int, int]] = set()
    for owner, path, status in files:
        inode = (status.st_dev, status.st_ino)
        if not stat.S_ISREG(status.st_mode) or inode in seen:
            continue
        if status.st_nlink > 1:
            seen.add(inode)
        try:
            parts = read_parts(prefix / path, path, status.st_size)
        except OSError as error:
            refused(error)
            parts = {ContentPart(Kind.UNKNOWN): status.st_size}
        yield owner, File(path=path, parts=parts)
    remarks += [f"{count} files or folders cannot be read: {reason}" for reason, count in unread.items()]
