"""Uploads what a config built to a channel on anaconda.org, in an order in which nobody is offered half a release."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from graphlib import TopologicalSorter
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rattler.package import IndexJson

from groundwork import process
from groundwork.errors import BuildError, ConfigError, IntegrityError, UsageError
from groundwork.names import PackageId
from megabuild.plan import published

#: A process of its own: while the engine uploads, Ctrl-C would not be heard.
_UPLOAD = """
import os, sys, rattler_build
key, url = os.environ.get("ANACONDA_API_KEY"), os.environ.get("ANACONDA_SERVER_URL")
rattler_build.upload_package_to_anaconda(sys.argv[3:], sys.argv[1], channel=[sys.argv[2]], api_key=key, url=url)
"""


class Artifact(NamedTuple):
    """A package of a release."""

    name: str
    path: Path
    size: int


def find_release(output: Path, config: str) -> list[Artifact]:
    """Return the newest build of each package that a config has published, a package after those that it needs.

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
    newest: dict[tuple[str, str], Artifact] = {}
    graph: dict[str, set[str]] = {}
    for record in records:
        path = channel / record.path
        try:
            index = IndexJson.from_package_archive(path)
        except Exception as error:  # rattler has no common class for what it raises
            raise IntegrityError(f"{path} cannot be read: {error}", "run the build again") from error
        name = index.name.source
        newest[name, PackageId(name, str(index.version), str(index.build)).kind] = Artifact(
            name, path, record.size
        )
        graph.setdefault(name, set()).update(spec.split()[0] for spec in index.depends if spec.split())
    order = list(TopologicalSorter(graph).static_order())
    return sorted(newest.values(), key=lambda artifact: (order.index(artifact.name), artifact.path.name))


def upload(artifacts: Sequence[Artifact], user: str, label: str) -> None:
    """Upload packages one name after the other; the engine replaces no file.

    Raises IntegrityError: A package is not what was published; then nothing is uploaded.
    Raises BuildError: The server refuses; what came before is uploaded.
    """
    for artifact in artifacts:
        published.check(artifact.path)
    for name, group in groupby(artifacts, key=lambda artifact: artifact.name):
        argv = [sys.executable, "-c", _UPLOAD, user, label, *(str(artifact.path) for artifact in group)]
        done = process.run(argv, timeout=None)
        if done.returncode:
            why = done.stderr.strip().rpartition("\n")[2]
            raise BuildError(
                f"{name} was not uploaded: {why}", "correct the cause, and give the same line again"
            )
