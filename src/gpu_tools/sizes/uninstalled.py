"""Measures what a fresh installation of requirements takes, before anything is downloaded.

uv chooses the wheels; their directories, at the ends of the files, are read by range requests: about 0.1 MB for a wheel
of 0.5 GB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpu_tools.sizes.inside import classify_path
from gpu_tools.sizes.tree import ContentPart, Package, Sizes, find_requirers, sort_by_size
from gpu_tools.subject_kind import SubjectKind
from groundwork.errors import ProviderError, UsageError
from groundwork.network import resolver
from groundwork.network.client import NO_PARTS, Client, NetworkError
from groundwork.network.index import Configured, File, configured, local_path
from groundwork.network.wheel_contents import BROKEN, Content, metadata_beside, noted, read_local, read_remote
from groundwork.progress import Notes, preparing
from groundwork.text import counted
from groundwork.user_folders import cache_folder

_PYTHON = re.compile(r"3\.\d+")
_AT_ONCE = 8


def parse_requirements(words: Sequence[str]) -> list[str]:
    """Return requirements such as ``torch==2.15.0`` in one spelling.

    Raises UsageError: A word is neither a requirement nor an existing file or folder, or has an address.
    """
    try:
        requirements = [Requirement(word) for word in words]
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{', '.join(words)}: not an environment, wheel or conda package, nor all requirements ({reason})",
            "pass an environment's folder, a .whl, .conda or .tar.bz2 file, or requirements: torch==2.15.0 jax",
        ) from error
    for requirement in requirements:
        if requirement.url:
            raise UsageError(
                f"{requirement}: sizes takes versions of an index, not addresses",
                "download the file, and pass its path",
            )
    return [str(requirement) for requirement in requirements]


def measure_requirements(requirements: Sequence[str], python: str, note: Notes) -> list[Sizes]:
    """Measure a fresh installation of each requirement and, if there are several, of all together.

    `python`: X.Y. Raises UsageError: It is not. Raises ProviderError: The index does not answer, or no wheels fit.
    """
    if not _PYTHON.fullmatch(python):
        raise UsageError(f"--python: {python}: not a version such as 3.12", "pass X.Y")
    where = configured()
    measure = partial(_measure, python=python, where=where, note=note)
    measured = [measure([text], text) for text in requirements]
    if len(measured) > 1:
        measured.append(measure(requirements, "all together"))
    return measured


def _measure(
    requirements: Sequence[str], subject: str, *, python: str, where: Configured, note: Notes
) -> Sizes:
    note(f"resolving {subject}")
    folder = cache_folder(os.environ) / "wheels" / "locks"
    target = resolver.Target(version=python)
    files = resolver.resolve(requirements, target, where, cache=folder / "uv")
    remarks: list[str] = []
    read = partial(_read, client=where.client(), folder=folder, remarks=remarks)
    what = f"reading {counted(len(files), 'wheel')} of {subject}"
    with preparing(note, what), ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        wheels = list(pool.map(read, files))
    requires = {wheel.file.project: wheel.requires for wheel in wheels}
    roots = [canonicalize_name(Requirement(text).name) for text in requirements]
    requirers = find_requirers(roots, requires, python)
    packages = []
    for wheel in wheels:
        name = wheel.file.project
        packages.append(
            Package(
                name=name,
                version=str(wheel.file.version),
                files={
                    path: {ContentPart(classify_path(path)): size} for path, size in wheel.members.items()
                },
                download=wheel.download,
                required_by=tuple(sorted(requirers.get(name, ()))),
            )
        )
    return Sizes(
        subject=subject,
        kind=SubjectKind.REQUIREMENTS,
        packages=sort_by_size(packages),
        remarks=tuple(sorted(remarks)),
    )


@dataclass(frozen=True, kw_only=True)
class _Wheel:
    """A wheel on an index; without range requests only its metadata are known."""

    file: File
    metadata: str
    members: Mapping[str, int]  #: Unpacked bytes by path.
    download: int | None

    @property
    def requires(self) -> Sequence[str]:
        """Requirements in the metadata."""
        return parse_email(self.metadata)[0].get("requires_dist", ())


def _read(file: File, *, client: Client, folder: Path, remarks: list[str]) -> _Wheel:
    try:
        content = _read_content(file, client, folder)
    except NetworkError as error:
        if error.status not in NO_PARTS:
            raise
        remarks.append(f"{file.name}: not measured: its server sends whole files only")
        metadata = ""
        if file.metadata:
            metadata = metadata_beside(client, file).decode(errors="replace")
        return _Wheel(file=file, metadata=metadata, members={}, download=None)
    except (*BROKEN, OSError) as error:
        raise ProviderError(f"{file.name}: broken wheel: {error}", "check the file on pip's index") from error
    return _Wheel(file=file, metadata=content.metadata, members=content.members, download=content.size)


def _read_content(file: File, client: Client, folder: Path) -> Content:
    """Return a wheel's content: noted earlier, or read from a local or remote file."""
    if file.sha256:
        content = noted(folder, file.sha256)
        if content is not None:
            return content
    if file.url.startswith("file:"):
        return read_local(local_path(file.url), file.sha256)
    return read_remote(client, file)
