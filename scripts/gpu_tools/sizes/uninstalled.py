"""Measures what a fresh installation of requirements takes, before anything is downloaded.

uv chooses the wheels; their directories, at the ends of the files, are read by range requests: about 0.1 MB for a wheel
of 0.5 GB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpu_tools.sizes.inside import classify_path
from gpu_tools.sizes.tree import ContentPart, Package, Sizes, find_requirers, sort_by_size
from groundwork.errors import ProviderError, UsageError
from groundwork.files import cache_folder
from groundwork.network import resolver
from groundwork.network.client import NO_PARTS, Client, NetworkError
from groundwork.network.index import Configured, File, configured, local_path
from groundwork.network.wheel_contents import BROKEN, metadata_beside, noted, read_local, read_remote
from groundwork.progress import Notes, Preparing
from groundwork.text import counted

_PYTHON = re.compile(r"3\.\d+")
_AT_ONCE = 8


def parse_requirements(words: Sequence[str]) -> list[str]:
    """Return requirements such as ``torch==2.15.0`` in one spelling.

    Raises UsageError: A word is neither a requirement nor an existing file or folder.
    """
    try:
        return [str(Requirement(word)) for word in words]
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{', '.join(words)}: not an environment, wheel or conda package, nor all requirements ({reason})",
            "pass an environment's folder, a .whl, .conda or .tar.bz2 file, or requirements: torch==2.15.0 jax",
        ) from error


def measure_requirements(requirements: Sequence[str], python: str, note: Notes) -> list[Sizes]:
    """Measure a fresh installation of each requirement and, if there are several, of all together.

    `python`: X.Y. Raises UsageError: It is not. Raises ProviderError: The index does not answer, or no wheels fit.
    """
    if not _PYTHON.fullmatch(python):
        raise UsageError(f"--python: {python}: not a version such as 3.12", "pass X.Y")
    where = configured()
    measure = partial(_measure, python=python, where=where, note=note)
    measured = [measure([text], text) for text in requirements]
    return [*measured, measure(requirements, "all together")] if measured[1:] else measured


def _measure(
    requirements: Sequence[str], subject: str, *, python: str, where: Configured, note: Notes
) -> Sizes:
    note(f"resolving {subject}")
    folder = cache_folder(os.environ) / "wheels" / "locks"
    target = resolver.Target(version=python)
    files = resolver.resolve(requirements, target, where, cache=folder / "uv")
    note(Preparing(what=f"reading {counted(len(files), 'wheel')} of {subject}"))
    remarks: list[str] = []
    read = partial(_read, client=where.client(), folder=folder, remarks=remarks)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        contents = [*zip(files, pool.map(read, files), strict=True)]
    requires = {
        file.project: parse_email(metadata)[0].get("requires_dist", ()) for file, (metadata, _, _) in contents
    }
    roots = [canonicalize_name(Requirement(text).name) for text in requirements]
    requirers = find_requirers(roots, requires, python)
    packages = [
        Package(
            name=file.project,
            version=str(file.version),
            files={path: {ContentPart(classify_path(path)): octets} for path, octets in members.items()},
            download=download,
            required_by=tuple(sorted(requirers.get(file.project, ()))),
        )
        for file, (_, members, download) in contents
    ]
    return Sizes(
        subject=subject, kind="requirements", packages=sort_by_size(packages), remarks=tuple(sorted(remarks))
    )


def _read(
    file: File, *, client: Client, folder: Path, remarks: list[str]
) -> tuple[str, Mapping[str, int], int | None]:
    """Return a wheel's metadata, its members' bytes, and its own; without range requests only the metadata."""
    content = noted(folder, file.sha256) if file.sha256 else None
    try:
        if content is None and file.url.startswith("file:"):
            content = read_local(local_path(file.url), file.sha256)
        elif content is None:
            content = read_remote(client, file)
    except NetworkError as error:
        if error.status not in NO_PARTS:
            raise
        remarks.append(f"{file.name}: not measured: its server sends whole files only")
        metadata = metadata_beside(client, file).decode(errors="replace") if file.metadata else ""
        return metadata, {}, None
    except (*BROKEN, OSError) as error:
        raise ProviderError(f"{file.name}: broken wheel: {error}", "check the file on pip's index") from error
    return content.metadata, content.members, content.size
