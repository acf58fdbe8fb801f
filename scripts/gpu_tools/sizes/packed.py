"""What wheels, conda packages and channels of them install, read without unpacking them anywhere."""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import zstandard
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from gpu_tools.sizes.inside import read_stream_parts
from gpu_tools.sizes.tree import File, Package, Sizes, sort_by_size
from groundwork.errors import IntegrityError, of_system

CONDA = (".conda", ".tar.bz2")


def measure_wheel(path: Path) -> Package:
    """Measure a wheel.

    Raises IntegrityError: It cannot be read.
    """
    name, version = path.stem, ""
    with suppress(InvalidWheelFilename, InvalidVersion):
        name, parsed, *_ = parse_wheel_filename(path.name)
        version = str(parsed)
    with explain_damage(path), zipfile.ZipFile(path) as archive:
        # of two members of one name the later one is installed
        members = {member.filename: member for member in archive.infolist() if not member.is_dir()}
        files = []
        for member in members.values():
            with archive.open(member) as stream:
                parts = read_stream_parts(stream, member.filename, member.file_size)
            files.append(File(path=member.filename, parts=parts))
    return Package(name=name, version=version, files=tuple(files), download=path.stat().st_size)


def measure_conda_package(path: Path) -> tuple[Package, tuple[str, ...]]:
    """Measure a conda package, and return the names that it depends on, too.

    What it links into an environment counts, not its own ``info`` folder.

    Raises IntegrityError: It cannot be read.
    """
    files: dict[str, File] = {}
    index: dict[str, Any] = {}
    with explain_damage(path), ExitStack() as stack:
        for archive in tars(path, stack):
            for member in archive:
                stream = archive.extractfile(member) if member.isreg() else None  # links take no room
                if stream is None:
                    continue
                if member.name == "info/index.json":
                    index = dict(json.loads(stream.read()))
                elif not member.name.startswith("info/"):
                    parts = read_stream_parts(stream, member.name, member.size)
                    files[member.name] = File(path=member.name, parts=parts)
        depends = tuple(str(spec).split()[0] for spec in index.get("depends") or () if str(spec).strip())
    package = Package(
        name=canonicalize_name(str(index.get("name", path.name))),
        version=f"{index.get('version', '')} {index.get('build', '')}".strip(),
        files=tuple(files.values()),
        download=path.stat().st_size,
    )
    return package, depends


def measure_channel(folder: Path) -> Sizes:
    """Measure every package of a channel; one that cannot be read is a remark."""
    measured, remarks = [], []
    for path in find_packages(folder):
        try:
            measured.append(measure_conda_package(path))
        except IntegrityError as error:
            remarks.append(error.message)
    requirers: dict[str, set[str]] = {}
    for package, depends in measured:
        for name in depends:
            requirers.setdefault(canonicalize_name(name), set()).add(package.name)
    packages = (
        replace(package, required_by=tuple(sorted(requirers.get(package.name, ()))))
        for package, _ in measured
    )
    return Sizes(subject=str(folder), kind="channel", packages=sort_by_size(packages), remarks=tuple(remarks))


def find_packages(folder: Path) -> list[Path]:
    """Return the package files of a channel; none for another folder."""
    return sorted(path for path in folder.glob("*/*") if path.name.endswith(CONDA) and path.is_file())


def tars(path: Path, stack: ExitStack) -> Iterator[tarfile.TarFile]:
    """Open the one or two tar archives of a conda package, to be read from start to end."""
    if path.suffix != ".conda":
        yield stack.enter_context(tarfile.open(path, "r|bz2"))  # noqa: SIM115
        return
    outer = stack.enter_context(zipfile.ZipFile(path))
    for name in outer.namelist():
        if name.endswith(".tar.zst"):
            compressed: IO[bytes] = stack.enter_context(outer.open(name))
            plain = stack.enter_context(zstandard.ZstdDecompressor().stream_reader(compressed))
            yield stack.enter_context(tarfile.open(fileobj=plain, mode="r|"))  # noqa: SIM115


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Turn what a damaged archive raises into one sentence; each format has errors of its own.

    Raises IntegrityError: It is damaged.
    """
    try:
        yield
    except (MemoryError, IntegrityError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and (
            error.filename or of_system(error)
        ):  # a system's refusal, told as such
            raise
        raise IntegrityError(
            f"{path} cannot be read: {error or type(error).__name__}", "get or build it again"
        ) from error
