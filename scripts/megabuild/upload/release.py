"""The packages of a config that are uploaded together, in an order in which nobody is offered half a release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from rattler.package import IndexJson

from groundwork.errors import ConfigError, IntegrityError, UsageError
from groundwork.package_id import PackageId
from megabuild.plan import published


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A package of the release."""

    path: Path
    size: int
    sha256: str
    package: PackageId
    subdir: str
    depends: tuple[str, ...]

    @property
    def needs(self) -> set[str]:
        """Names of the packages that it depends on."""
        return {spec.split()[0] for spec in self.depends if spec.split()}


@dataclass(frozen=True, kw_only=True)
class Release:
    """What is uploaded together."""

    config: str
    artifacts: tuple[Artifact, ...]  #: a package after those that it needs
    former: tuple[str, ...]  #: file names of former builds, which are published here as well and left out
    channels: tuple[str, ...]  #: with which the packages were made, in order of priority

    @property
    def candidate(self) -> bool:
        """Whether PyTorch is a release candidate."""
        return any("rc" in one.package.version for one in self.artifacts if one.package.name == "pytorch")


def of_config(output: Path, config: str) -> Release:
    """Return the newest build of each package that a run has published.

    Raises ConfigError: Nothing is published.
    Raises UsageError: It was a rehearsal.
    Raises IntegrityError: A package cannot be read.
    """
    if config.endswith("-rehearsal"):
        raise UsageError(
            f"{config} holds a scaled model of PyTorch, which is nobody's to upload",
            "name the config of a real run",
        )
    channel = output / "packages" / config
    records = published.records(channel)
    if not records:
        raise ConfigError(
            f"nothing is published for {config!r} below {channel.parent}",
            f"build it: python3 build-locally.py {config.partition('-')[0]}; or name the build's folder with --output",
        )
    newest: dict[tuple[str, str], Artifact] = {}
    former = []
    for record in sorted(records.values(), key=lambda one: one.modified):
        artifact = _read(channel, record)
        key = artifact.package.name, artifact.package.kind
        if key in newest:
            former.append(newest[key].path.name)
        newest[key] = artifact
    beside = published.channels_beside(channel)
    return Release(
        config=config,
        artifacts=in_order(list(newest.values())),
        former=tuple(sorted(former)),
        channels=tuple(map(str, beside[0])) if beside else (),
    )


def in_order(artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """Return packages so that each comes after those that it needs.

    Raises IntegrityError: They need each other.
    """
    names = {one.package.name for one in artifacts}
    graph = {name: set[str]() for name in sorted(names)}
    for one in artifacts:
        graph[one.package.name] |= one.needs & names - {one.package.name}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise IntegrityError(
            f"packages need each other: {' -> '.join(error.args[1])}", "this is a fault of the recipe"
        ) from error
    return tuple(sorted(artifacts, key=lambda one: (order.index(one.package.name), one.path.name)))


def _read(channel: Path, record: published.PublishedPackage) -> Artifact:
    path = channel / record.path
    try:
        index = IndexJson.from_package_archive(path)
    except Exception as error:  # rattler has no common class for what it raises
        raise IntegrityError(
            f"{path} cannot be read: {error}", "run the build again, which makes it anew"
        ) from error
    return Artifact(
        path=path,
        size=record.size,
        sha256=record.sha256,
        package=PackageId(index.name.source, str(index.version), str(index.build)),
        subdir=index.subdir or "",
        depends=tuple(index.depends),
    )
