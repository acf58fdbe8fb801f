"""Uploads what a config built to a channel on anaconda.org, in an order in which nobody is offered half a release."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import groupby
from pathlib import Path

from rattler import MatchSpec
from rattler.package import IndexJson

from groundwork import process
from groundwork.errors import BuildError, ConfigError, IntegrityError, UsageError
from groundwork.names import PackageId
from megabuild.engine import archive
from megabuild.plan import published
from megabuild.providers.specs import satisfied

CONDA_FORGE = "conda-forge"
#: Labels: what CFEP-03 recommends for packages that somebody of conda-forge copies; of conda-forge's own channel.
DELEGATE, MAIN, CANDIDATES = "cfep03", "main", "pytorch_rc"
#: By name or address; mirrors keep the name.
_CONDA_FORGE = re.compile(r"(?:https?://.*/)?conda-forge/?")
#: A process of its own: while the engine uploads, Ctrl-C would not be heard.
_UPLOAD = """
import os, sys, rattler_build
key, url = os.environ.get("ANACONDA_API_KEY"), os.environ.get("ANACONDA_SERVER_URL")
rattler_build.upload_package_to_anaconda(sys.argv[3:], sys.argv[1], channel=[sys.argv[2]], api_key=key, url=url)
"""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A package of a release."""

    path: Path
    size: int
    sha256: str
    package: PackageId
    licence: str
    depends: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Release:
    """The newest build of each package that a config has published, a package after those that it needs."""

    artifacts: tuple[Artifact, ...]
    channels: tuple[str, ...]  #: with which the packages were made

    @property
    def label(self) -> str:
        """The label on conda-forge's own channel."""
        return CANDIDATES if any("rc" in artifact.package.version for artifact in self.artifacts) else MAIN


def find_release(output: Path, config: str) -> Release:
    """Return what there is to upload of a config.

    Raises UsageError: It was a rehearsal.
    Raises ConfigError: Nothing is published.
    Raises IntegrityError: A package cannot be read.
    """
    if config.endswith("-rehearsal"):
        raise UsageError(f"{config} holds a scaled model of PyTorch", "name the config of a real run")
    channel = output / "packages" / config
    records = sorted(published.records(channel).values(), key=lambda record: record.modified)
    if not records:
        hint = f"build it: python3 build-locally.py {config}; or name the build's folder with --output"
        raise ConfigError(f"nothing is published for {config!r} below {channel.parent}", hint)
    built = [_read(channel, record) for record in records]
    newest = {(artifact.package.name, artifact.package.kind): artifact for artifact in built}
    graph: dict[str, set[str]] = {}
    for artifact in newest.values():
        graph.setdefault(artifact.package.name, set()).update(spec.split()[0] for spec in artifact.depends)
    order = list(TopologicalSorter(graph).static_order())
    artifacts = sorted(
        newest.values(), key=lambda artifact: (order.index(artifact.package.name), artifact.path.name)
    )
    beside = published.channels_beside(channel)
    return Release(artifacts=tuple(artifacts), channels=tuple(map(str, beside[0])) if beside else ())


def _read(channel: Path, record: published.PublishedPackage) -> Artifact:
    path = channel / record.path
    try:
        index = IndexJson.from_package_archive(path)
    except Exception as error:  # rattler has no common class for what it raises
        raise IntegrityError(
            f"{path} cannot be read: {error}", "run the build again, which makes it anew"
        ) from error
    package = PackageId(index.name.source, str(index.version), str(index.build))
    depends = tuple(spec for spec in index.depends if spec.split())
    return Artifact(
        path=path,
        size=record.size,
        sha256=record.sha256,
        package=package,
        licence=index.license or "",
        depends=depends,
    )


def find_faults(release: Release, label: str) -> Iterator[str]:
    """Yield why conda-forge would refuse a release, by names and dependencies."""
    if {label, release.label} == {MAIN, CANDIDATES}:
        yield f"a release like this belongs to the label {release.label}, not {label}"
    foreign = [channel for channel in release.channels if not _CONDA_FORGE.fullmatch(channel)]
    if foreign or not release.channels:
        others = ", ".join(foreign) or "unknown ones"
        yield f"conda-forge takes only what was made with its own packages, not with {others}"
    for artifact in release.artifacts:
        for spec in artifact.depends:
            own = [other.package for other in release.artifacts if other.package.name == spec.split()[0]]
            if own and not any(satisfied([MatchSpec(spec)], package) for package in own):
                yield f"{artifact.path.name} needs {spec}, which is not part of the release"


def find_faults_inside(release: Release) -> Iterator[str]:
    """Read every package, and yield what is wrong inside or between them.

    Raises IntegrityError: A package is not what was published.
    """
    archives = []
    for artifact in release.artifacts:
        published.check(artifact.path)
        archives.append(archive.read(artifact.path))
        if not artifact.licence:
            yield f"{artifact.path.name} names no licence"
    for path, names in sorted(archive.owners(archives).items()):
        yield f"{' and '.join(sorted(names))} both install {path}"


def upload(release: Release, user: str, label: str) -> None:
    """Upload packages one name after the other; the engine replaces no file.

    Raises BuildError: The server refuses; what came before is uploaded.
    """
    for name, group in groupby(release.artifacts, key=lambda artifact: artifact.package.name):
        done = process.run(
            [sys.executable, "-c", _UPLOAD, user, label, *(artifact.path for artifact in group)], timeout=None
        )
        if done.returncode:
            why = done.stderr.strip().rpartition("\n")[2]
            raise BuildError(
                f"{name} was not uploaded: {why}", "correct the cause, and give the same line again"
            )


def copy_commands(release: Release, user: str, label: str) -> list[str]:
    """Return the lines with which conda-forge's core team copies what was uploaded to another channel (CFEP-03)."""
    labels = ["--from-label", label, "--to-label", release.label]
    packages = [artifact.package for artifact in release.artifacts]
    names = dict.fromkeys(f"{user}/{package.name}/{package.version}" for package in packages)
    return [shlex.join(["anaconda", "copy", *labels, "--to-owner", CONDA_FORGE, name]) for name in names]
