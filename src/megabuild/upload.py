"""Uploads a config's packages to a channel on anaconda.org, dependencies first: no client sees half a release."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from rattler.package import IndexJson

from groundwork import files, process, redact
from groundwork.address import is_on_server
from groundwork.damage import reading_archive
from groundwork.errors import BuildError, ConfigError, UsageError
from megabuild.store import published
from megabuild.store.published import MissingTests

#: Runs in a separate process, since the engine ignores Ctrl-C while it uploads. One file each: it stops at the first
#: file that the channel already has.
_UPLOAD = """
import os, sys, rattler_build
key, url = os.environ.get("ANACONDA_API_KEY"), os.environ.get("ANACONDA_SERVER_URL")
rattler_build.upload_package_to_anaconda(sys.argv[3:], sys.argv[1], channel=[sys.argv[2]], api_key=key, url=url)
"""
#: Packages that a requirement on Python names.
_PYTHON = ("python", "python_abi")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One of a recipe's packages of a name; a later build of it replaces an earlier one."""

    name: str
    build: str  #: the build string without hash and number
    python: tuple[str, ...]  #: its requirements on Python: some recipes write no Python into the build string


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A published package."""

    variant: Variant
    path: Path
    size: int
    depends: tuple[str, ...]  #: names of the packages that it requires

    @property
    def name(self) -> str:
        return self.variant.name


@dataclass(frozen=True, kw_only=True)
class Release:
    """The packages that a config has published."""

    artifacts: tuple[Artifact, ...]  #: the newest build of each variant, dependencies first
    replaced: tuple[Artifact, ...]  #: earlier builds of these
    missing_tests: MissingTests  #: of the packages to upload


def find_release(output: Path, config: str) -> Release:
    """Return the packages that a config has published.

    Raises UsageError: The run was a rehearsal.
    Raises ConfigError: No packages are published.
    Raises IntegrityError: A package cannot be read.
    """
    channel = output / "packages" / config
    # the folder's own name: a shell completes it with a slash
    if channel.resolve().name.endswith("-rehearsal"):
        raise UsageError(
            f"{config}: its packages contain a scaled model of PyTorch", "choose the config of a real run"
        )
    records = sorted(published.records(channel).values(), key=lambda record: record.modified)
    if not records:
        raise ConfigError(f"{config}: no packages in {channel.parent}", published.BUILD_FIRST)
    every = [_read(channel / record.path, record.size) for record in records]
    newest: dict[Variant, Artifact] = {}
    requirements: dict[str, set[str]] = {}
    for artifact in every:
        newest[artifact.variant] = artifact
        requirements.setdefault(artifact.name, set()).update(artifact.depends)
    order = list(TopologicalSorter(requirements).static_order())
    artifacts = sorted(newest.values(), key=lambda one: (order.index(one.name), one.path.name))
    replaced = [artifact for artifact in every if artifact not in artifacts]
    return Release(
        artifacts=tuple(artifacts),
        replaced=tuple(replaced),
        missing_tests=published.find_missing_tests(channel, (one.path.name for one in artifacts)),
    )


def _read(path: Path, size: int) -> Artifact:
    with reading_archive(path):
        index = IndexJson.from_package_archive(path)
    depends = []
    python = []
    for spec in dict.fromkeys(index.depends):
        if spec.strip():
            name = spec.split()[0]
            depends.append(name)
            if name in _PYTHON:
                python.append(spec)
    build = published.HASH_AND_NUMBER.sub("", str(index.build))
    variant = Variant(name=index.name.source, build=build, python=tuple(sorted(python)))
    return Artifact(variant=variant, path=path, size=size, depends=tuple(depends))


def upload(artifacts: Sequence[Artifact], user: str, label: str, *, scratch: Path) -> list[str]:
    """Upload packages in their order, without replacing files in the channel; return the names of files already there.

    Unpacked copies go to a temporary folder in ``scratch``: the engine would leave them in /tmp if killed.

    Raises UsageError: ``ANACONDA_SERVER_URL`` is no address.
    Raises IntegrityError: A package was damaged since it was published; no package is uploaded.
    Raises BuildError: The server refuses a package; earlier packages are uploaded.
    """
    _check_server(os.environ.get("ANACONDA_SERVER_URL", ""))
    for artifact in artifacts:
        published.check(artifact.path)
    present = []
    with files.scratch(scratch) as folder:
        environ = {**os.environ, "TMPDIR": str(folder)}
        for artifact in artifacts:
            if not _upload_one(artifact, user, label, environ):
                present.append(artifact.path.name)
    return present


def _upload_one(artifact: Artifact, user: str, label: str, environ: Mapping[str, str]) -> bool:
    """Upload a package; return whether it was not in the channel yet."""
    argv = [sys.executable, "-c", _UPLOAD, user, label, str(artifact.path)]
    with process.start_guarded(argv, env=environ, stderr=subprocess.PIPE, text=True) as upload:
        printed = upload.stderr.read() if upload.stderr else ""
    if not upload.returncode:
        return True
    why = printed.strip().rpartition("\n")[2]
    if f"{artifact.path.name} already exists" in why:
        return False
    reason = redact.text(why) or process.describe_end(upload.returncode)
    raise BuildError(
        f"{artifact.path.name}: upload failed: {reason}",
        "correct the cause, then run the same command again",
    )


def _check_server(address: str) -> None:
    if address and not is_on_server(address, ("http", "https")):
        raise UsageError(
            f"ANACONDA_SERVER_URL: not an address: {redact.text(address)}",
            "set it to the server's API, as in https://HOST/api, or unset it for anaconda.org",
        )
