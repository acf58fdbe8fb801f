"""The commands that upload a release, for people to run: nothing here talks to a server or knows a token."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from groundwork import log_archive
from groundwork.errors import UsageError
from groundwork.redact import Mask
from groundwork.text import display
from megabuild.upload.release import Release

CONDA_FORGE = "conda-forge"
#: The label that CFEP-03 recommends for packages that somebody of conda-forge will look at and copy.
DELEGATE = "cfep03"


def uploads(release: Release, user: str, label: str) -> list[str]:
    """Return a line for each package name, to be run one after the other."""
    start = ["anaconda", "upload", "--user", user, "--label", label, "--skip-existing"]
    return [
        shlex.join([*start, *(display(one.path) for one in group)])
        for _, group in groupby(release.artifacts, key=lambda one: one.package.name)
    ]


def copies(release: Release, user: str, label: str, target: str) -> list[str]:
    """Return the lines with which a member of conda-forge's core team copies what was uploaded to its channel."""
    start = ["anaconda", "copy", "--from-label", label, "--to-label", target, "--to-owner", CONDA_FORGE]
    names = dict.fromkeys(f"{user}/{one.package.name}/{one.package.version}" for one in release.artifacts)
    return [shlex.join([*start, name]) for name in names]


def logs(state: Path) -> list[Path]:
    """Return the logs of a config's runs, the oldest first; ``latest.log``, a link to one of them, is none."""
    found = (path for path in (state / "logs").glob("*.log") if path.is_file() and not path.is_symlink())
    return sorted(found, key=lambda path: path.name)


def pack(logs: Sequence[Path], archive: Path, environ: Mapping[str, str]) -> None:
    """Put logs into a zip file; what is a secret now is masked, as it was when they were written.

    Raises UsageError: There are none, or the file exists.
    """
    if not logs:
        raise UsageError("there are no logs to pack", "leave out --logs")
    if archive.exists():
        raise UsageError(f"{archive} exists", "remove it, or name another file")
    log_archive.pack({log.name: log for log in logs}, archive, Mask(environ))
