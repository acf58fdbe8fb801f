"""Uploads a config's packages to a channel on anaconda.org, dependencies first: no client sees half a release."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from rattler.package import IndexJson

from groundwork import files, process
from groundwork.archives import explain_damage
from groundwork.errors import BuildError, ConfigError, UsageError
from groundwork.names import PackageId
from megabuild.plan import published

#: Runs in a separate process, since the engine ignores Ctrl-C while it uploads. One file each: it stops at the first
#: file that the channel already has.
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
    """Return the newest build of each package that a config has published, dependencies first.

    Raises UsageError: The run was a rehearsal.
    Raises ConfigError: No packages are published.
    Raises IntegrityError: A package cannot be read.
    """
    if config.endswith("-rehearsal"):
        raise UsageError(
            f"{config}: its packages contain a scaled model of PyTorch", "choose the config of a real run"
        )
    channel = output / "packages" / config
    records = sorted(published.records(channel).values(), key=lambda record: record.modified)
    if not records:
        raise ConfigError(f"{config}: no packages in {channel.parent}", published.BUILD_FIRST)
    newest: dict[tuple[str, str], Artifact] = {}
    graph: dict[str, set[str]] = {}
    for record in records:
        path = channel / record.path
        with explain_damage(path):
            index = IndexJson.from_package_archive(path)
        name = index.name.source
        newest[name, PackageId(name, str(index.version), str(index.build)).kind] = Artifact(
            name, path, record.size
        )
        graph.setdefault(name, set()).update(spec.split()[0] for spec in index.depends if spec.split())
    order = list(TopologicalSorter(graph).static_order())
    return sorted(newest.values(), key=lambda artifact: (order.index(artifact.name), artifact.path.name))


def upload(artifacts: Sequence[Artifact], user: str, label: str, *, scratch: Path) -> list[str]:
    """Upload packages in their order, without replacing files in the channel; return the names of files already there.

    Unpacked copies go to a temporary folder in ``scratch``: the engine would leave them in /tmp if killed.

    Raises IntegrityError: A package was damaged since it was published; no package is uploaded.
    Raises BuildError: The server refuses a package; earlier packages are uploaded.
    """
    for artifact in artifacts:
        published.check(artifact.path)
    present = []
    with files.scratch(scratch) as folder:
        environ = {**os.environ, "TMPDIR": str(folder)}
        for artifact in artifacts:
            argv = [sys.executable, "-c", _UPLOAD, user, label, str(artifact.path)]
            with process.start_guarded(argv, env=environ, stderr=subprocess.PIPE, text=True) as upload:
                why = upload.stderr.read().strip().rpartition("\n")[2] if upload.stderr else ""
            if upload.returncode and f"{artifact.path.name} already exists" in why:
                present.append(artifact.path.name)
            elif upload.returncode:
                raise BuildError(
                    f"{artifact.name}: upload failed: {why}",
                    "correct the cause, then run the same command again",
                )
    return present
