"""What conda-forge asks of packages that were not built by its own machines, as far as it can be told here.

The rules on names are those of its copying service (conda-forge-webservices, conda-forge-ci-setup); those on content
are its linter's, or what CFEP-03 leaves to whoever looks at the packages.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO

from rattler import MatchSpec
from rattler.package import PathsJson

from gpu_tools.sizes import packed
from groundwork.wording import counted
from megabuild.engine import archive
from megabuild.providers.specs import satisfied
from megabuild.upload.release import Artifact, Release

#: Labels of conda-forge's channel; the second one is where the feedstock's channel_targets put release candidates.
MAIN, CANDIDATES = "main", "pytorch_rc"
#: The feedstock that a package belongs to; others may not bring it to conda-forge's channel.
FEEDSTOCKS = {
    **dict.fromkeys(
        ("libtorch", "libtorch-cuda-linalg", "pytorch", "pytorch-cpu", "pytorch-gpu"), "pytorch-cpu"
    ),
    **{
        name: name
        for name in ("pytorch_cluster", "pytorch_scatter", "pytorch_sparse", "pytorch_spline_conv", "pyg-lib")
    },
}
#: Not on conda-forge's channel so far: to be registered for the feedstock.
_NEW = frozenset({"libtorch-cuda-linalg"})
#: By name or address; mirrors keep the name.
_CONDA_FORGE = re.compile(r"(?:\w+://.*/)?conda-forge/?")
#: Folders of rattler-build and conda-build that are gone after the build.
_BUILD_FOLDER = re.compile(rb"/(?:_h_env_placehold|host_env_placehold|_?build_env/)")
_CHUNK, _OVERLAP, _TEXT = 1 << 20, 32, 8192


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something about a package, or about all of them."""

    rule: str  #: a word that docs/upload.md explains
    subject: str  #: a package's file name, or the config
    text: str
    refused: bool = True  #: so it cannot be uploaded; else it is only worth knowing


def of_release(release: Release, label: str | None) -> Iterator[Finding]:
    """Yield what names, versions and dependencies tell; the packages are not read."""
    for artifact in release.artifacts:
        yield from _named(artifact)
        yield from _satisfied(artifact, release)
    if release.candidate and label == MAIN:
        yield Finding(
            rule="label", subject=release.config,
            text=f"a release candidate belongs to the label {CANDIDATES}, where only who asks for it gets it",
        )  # fmt: skip
    elif label == CANDIDATES and not release.candidate:
        yield Finding(rule="label", subject=release.config, text=f"a release belongs to the label {MAIN}")
    local = [channel for channel in release.channels if not _CONDA_FORGE.fullmatch(channel)]
    if local or not release.channels:
        made = f"was made with {local[0]}" if local else "has no record of the channels it was made with"
        yield Finding(
            rule="channels", subject=release.config,
            text=f"{made}, and conda-forge takes only what was made with its own packages",
        )  # fmt: skip


def _named(artifact: Artifact) -> Iterator[Finding]:
    name = artifact.path.name
    place = f"{artifact.subdir}/{artifact.package.file_name}"
    if f"{artifact.path.parent.name}/{name}" != place:
        yield Finding(rule="name", subject=name, text=f"is {place} by its own metadata")
    if artifact.package.name not in FEEDSTOCKS:
        text = (
            "is taken where it is registered as an output of your feedstock (conda-forge/feedstock-outputs)"
        )
        yield Finding(rule="output", subject=name, text=text, refused=False)
    elif artifact.package.name in _NEW:
        text = f"must be registered as an output of {FEEDSTOCKS[artifact.package.name]} (conda-forge/feedstock-outputs)"
        yield Finding(rule="output", subject=name, text=text, refused=False)


def _satisfied(artifact: Artifact, release: Release) -> Iterator[Finding]:
    """Yield dependencies on packages of the release that none of these satisfies, so that nobody could install it."""
    for spec in artifact.depends:
        there = [one.package for one in release.artifacts if [one.package.name] == spec.split()[:1]]
        if there and not any(satisfied([MatchSpec(spec)], package) for package in there):
            yield Finding(
                rule="whole", subject=artifact.path.name, text=f"needs {spec}, which is not uploaded with it"
            )


def of_packages(release: Release, report: Callable[[str], None]) -> Iterator[Finding]:
    """Read every package to its end, and yield what is wrong in it or between it and others; ``report`` is told each.

    Raises IntegrityError: A package is damaged.
    """
    read = []
    for artifact in release.artifacts:
        report(f"reading {artifact.path.name}")
        read.append(archive.read(artifact.path))
        yield from _of_package(artifact)
    for path, names in sorted(archive.owners(read).items()):
        yield Finding(rule="clobber", subject=" and ".join(sorted(names)), text=f"both install {path}")


@dataclass(kw_only=True)
class _Contents:
    """What was met on the way through a package."""

    digests: dict[str, str] = field(default_factory=dict)  #: of regular files
    members: set[str] = field(default_factory=set)
    licences: int = 0  #: files that are not empty
    about: dict[str, object] = field(default_factory=dict)
    built_in: dict[str, bool] = field(default_factory=dict)  #: files that name a build's folder; is it text?


def _of_package(artifact: Artifact) -> Iterator[Finding]:
    name = artifact.path.name
    yield from (Finding(rule="archive", subject=name, text=text) for text in _parts(artifact))
    contents = _Contents()
    with packed.readable(artifact.path), ExitStack() as stack:
        for tar in packed.tars(artifact.path, stack):
            for member in tar:
                _meet(member, tar, contents)
    entries = {
        str(entry.relative_path): entry
        for entry in PathsJson.from_package_archive(artifact.path).paths
        if not entry.path_type.directory
    }
    wrong = sorted(contents.members ^ entries.keys()) + sorted(
        path
        for path, digest in contents.digests.items()
        if path in entries and entries[path].sha256 not in (None, bytes.fromhex(digest))
    )
    if wrong:
        yield Finding(
            rule="contents", subject=name, text=f"does not hold what its paths.json says: {_some(wrong)}"
        )
    if not contents.about.get("license"):
        yield Finding(rule="licence", subject=name, text="names no licence")
    if not contents.licences:
        yield Finding(rule="licence", subject=name, text="holds no licence file")
    folded: dict[str, str] = {}
    same = [path for path in sorted(contents.members) if folded.setdefault(path.casefold(), path) != path]
    if same:
        yield Finding(rule="case", subject=name, text=f"holds paths that differ in case only: {_some(same)}")
    recorded = {path for path, entry in entries.items() if entry.prefix_placeholder is not None}
    text = sorted(path for path, is_text in contents.built_in.items() if is_text and path not in recorded)
    binary = sorted(
        path for path, is_text in contents.built_in.items() if not is_text and path not in recorded
    )
    if text:
        yield Finding(rule="prefix", subject=name, text=f"names folders of the build: {_some(text)}")
    if binary:
        yield Finding(
            rule="prefix",
            subject=name,
            text=f"binaries name folders of the build: {_some(binary)}",
            refused=False,
        )


def _parts(artifact: Artifact) -> Iterator[str]:
    """Yield what is wrong with the outer archive (https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/packages.html)."""
    stem = artifact.path.name.removesuffix(".conda")
    wanted = ["metadata.json", f"info-{stem}.tar.zst", f"pkg-{stem}.tar.zst"]
    with packed.readable(artifact.path), zipfile.ZipFile(artifact.path) as outer:
        if sorted(outer.namelist()) != sorted(wanted):
            yield f"holds {_some(sorted(outer.namelist()))}, not {', '.join(wanted)}"
        elif json.loads(outer.read("metadata.json")).get("conda_pkg_format_version") != 2:
            yield "is not of package format 2"


def _meet(member: tarfile.TarInfo, tar: tarfile.TarFile, contents: _Contents) -> None:
    info = member.name.startswith("info/")
    if not info and not member.isdir():
        contents.members.add(member.name)
    file = tar.extractfile(member) if member.isreg() else None
    if file is None:
        return
    if member.name == "info/about.json" and member.size < _CHUNK:
        about = json.loads(file.read())
        contents.about = about if isinstance(about, dict) else {}
    elif member.name.startswith("info/licenses/") and member.size:
        contents.licences += 1
    elif not info:
        contents.digests[member.name], found, is_text = _digest(file)
        if found:
            contents.built_in[member.name] = is_text


def _digest(file: IO[bytes]) -> tuple[str, bool, bool]:
    """Return a file's sha256, whether it names a folder of the build, and whether it is text."""
    digest, found, is_text, end = hashlib.sha256(), False, None, b""
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        is_text = b"\0" not in chunk[:_TEXT] if is_text is None else is_text
        found = found or _BUILD_FOLDER.search(end + chunk) is not None
        end = chunk[-_OVERLAP:]
    return digest.hexdigest(), found, bool(is_text)


def _some(paths: list[str]) -> str:
    rest = len(paths) - 3
    return ", ".join(paths[:3]) + (f" and {counted(rest, 'other')}" if rest > 0 else "")
