"""Measures what a fresh installation of requirements takes, before anything is downloaded.

uv chooses the wheels; their directories, at the ends of the files, are read by range requests: about 0.1 MB for a wheel
of 0.5 GB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
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
from groundwork.result import Result
from groundwork.text import Sign, counted, size, table, wrapped

_PYTHON = re.compile(r"3\.\d+")
_AT_ONCE, _LARGEST = 8, 10
_HEADS = ("package", "version", "installed", "download", "required by")
#: Packages and libraries that are of use on GPUs only, by their names.
_FOR_GPUS = re.compile(r"(nvidia|cuda|cupy|triton|pytorch-triton|jax-cuda\d+)\b", re.IGNORECASE)
_GPU_LIBRARY = re.compile(r"[^/]*(?:cuda|cudnn|cublas|nccl|tensorrt)[^/]*\.so", re.IGNORECASE)


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
    requires = {file.project: _requires(metadata) for file, (metadata, _, _) in contents}
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


def _requires(metadata: str) -> Sequence[str]:
    return parse_email(metadata)[0].get("requires_dist", ())


def requirements_result(measured: Sequence[Sizes], python: str) -> Result:
    """Return the command's result: for each subject its sum, GPU code by name, and the ten largest packages."""
    lines = [line for sizes in measured for line in ("", *_lines(sizes, python))]
    document = {
        "python": python,
        "subjects": [{**sizes.to_json(), "for_gpus": for_gpus(sizes)} for sizes in measured],
    }
    return Result(format="sizes", document=document, lines=lines[1:])


def for_gpus(sizes: Sizes) -> int:
    """Return the installed bytes of packages and libraries that are of use on GPUs only, judged by their names."""
    return sum(
        sum(parts.values())
        for package in sizes.packages
        for path, parts in package.files.items()
        if _FOR_GPUS.match(package.name) or _GPU_LIBRARY.search(path)
    )


def _lines(sizes: Sizes, python: str) -> Iterator[str]:
    yield from wrapped(
        f"{sizes.subject}, Python {python}: {size(sizes.installed)} installed, {size(sizes.download or 0)} to download,"
        f" {counted(len(sizes.packages), 'package')}; {size(for_gpus(sizes))} of it for GPUs only, by names"
    )
    rows = [_row(package.name, package.version, [package]) for package in sizes.packages[:_LARGEST]]
    if others := sizes.packages[_LARGEST:]:
        rows.append(_row(f"{len(others)} smaller", "", others))
    yield ""
    yield from table(_HEADS, rows, right=frozenset({2, 3}))
    for remark in sizes.remarks:
        yield from wrapped(f"{Sign.warning} {remark}")


def _row(name: str, version: str, packages: Sequence[Package]) -> tuple[str, ...]:
    installed = sum(package.installed for package in packages)
    download = sum(package.download or 0 for package in packages)
    by = packages[0].required_by if len(packages) == 1 else ()
    shown = by[0] if len(by) == 1 else f"{len(by)} packages" if by else ""
    return name, version, size(installed), size(download), shown
