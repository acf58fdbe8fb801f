"""Measures an environment, a wheel or a conda package; archives are read without unpacking them."""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import zstandard
from packaging.utils import canonicalize_name

from gpu_tools.file_lists import is_environment
from gpu_tools.sizes.inside import read_parts
from gpu_tools.sizes.installed import measure_environment
from gpu_tools.sizes.tree import Package, Parts, Sizes
from groundwork.archives import entries, explain_damage
from groundwork.errors import UsageError
from groundwork.network.index import parsed


def measure(path: Path) -> Sizes:
    """Measure an environment, a wheel or a conda package.

    Raises UsageError: ``path`` is none of these.
    Raises IntegrityError: The package or wheel is damaged.
    """
    if path.is_dir() and is_environment(path):
        return measure_environment(path)
    if path.is_file() and path.suffix == ".whl":
        return Sizes(subject=path.name, kind="wheel", packages=(measure_wheel(path),))
    if path.is_file() and path.name.endswith((".conda", ".tar.bz2")):
        return Sizes(subject=path.name, kind="package", packages=(measure_conda_package(path),))
    raise UsageError(
        f"{path}: not an environment, wheel or conda package",
        "pass an environment's folder, or a .whl, .conda or .tar.bz2 file",
    )


def measure_wheel(path: Path) -> Package:
    """Measure a wheel.

    Raises IntegrityError: The wheel is damaged.
    """
    name, version, _ = parsed(path.name) or (path.stem, "", ())
    files: dict[str, Parts] = {}
    with explain_damage(path), zipfile.ZipFile(path) as archive:
        # if two members have the same name, installers keep the later one
        members = {member.filename: member for member in archive.infolist() if not member.is_dir()}
        for member in members.values():
            stream = archive.open(member)
            files[member.filename] = read_parts(stream, member.filename, member.file_size)
    return Package(name=name, version=str(version), files=files, download=path.stat().st_size)


def measure_conda_package(path: Path) -> Package:
    """Measure the files that a conda package links into an environment; its ``info`` folder is left out.

    Raises IntegrityError: The package is damaged.
    """
    files: dict[str, Parts] = {}
    index: dict[str, Any] = {}
    with explain_damage(path), ExitStack() as stack:
        for archive in _open_tars(path, stack):
            for member in entries(archive):
                stream = archive.extractfile(member) if member.isreg() else None  # links count as 0 bytes
                if stream is None:
                    continue
                if member.name == "info/index.json":
                    index = dict(json.loads(stream.read()))
                elif not member.name.startswith("info/"):
                    files[member.name] = read_parts(stream, member.name, member.size)
    return Package(
        name=canonicalize_name(str(index.get("name", path.name))),
        version=f"{index.get('version', '')} {index.get('build', '')}".strip(),
        files=files,
        download=path.stat().st_size,
    )


def _open_tars(path: Path, stack: ExitStack) -> Iterator[tarfile.TarFile]:
    """Yield the tar archives of a conda package (one, or two in a .conda file), as streams without seeking."""
    if path.suffix != ".conda":
        yield stack.enter_context(tarfile.open(path, "r|bz2"))  # noqa: SIM115
        return
    outer = stack.enter_context(zipfile.ZipFile(path))
    for name in outer.namelist():
        if name.endswith(".tar.zst"):
            compressed: IO[bytes] = stack.enter_context(outer.open(name))
            plain = stack.enter_context(zstandard.ZstdDecompressor().stream_reader(compressed))
            yield stack.enter_context(tarfile.open(fileobj=plain, mode="r|"))  # noqa: SIM115
