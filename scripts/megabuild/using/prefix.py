"""Environments of what was built: solved from the published channel and what it needs besides, and installed.

Nothing of conda is needed for that, nor afterwards: ``bin/python`` works as it is, and ``activate`` sets what packages
want to have set.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rattler import RepoDataRecord, Subdir
from rattler import install as link
from rattler.install import InstallerReporter
from rattler.shell import ActivationVariables, PathModificationBehavior, Shell, activate

from megabuild import files
from megabuild.errors import (
    BusyError,
    ConfigError,
    MegabuildError,
    OutOfSpaceError,
    PreflightError,
    ProviderError,
    UsageError,
)
from megabuild.plan import published
from megabuild.plan.solving import solved
from megabuild.providers.environment import machine_platform
from megabuild.using.image import cuda_of

#: Says that an environment is ours, and whether it is finished.
MARKER = Path("conda-meta", "megabuild")  # JSON, but all that is named so there is taken for a package
#: Where an environment has its script.
ACTIVATE = "activate"
# How long rattler's threads are waited for after a failure: empty this often in a row is empty for good.
_ROUNDS, _QUIET_ROUNDS, _ROUND_SECONDS = 100, 3, 0.1


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An environment that somebody wants."""

    specs: tuple[str, ...]  #: Match specs.
    published: Path  #: The channel of published packages.
    more: tuple[Path | str, ...] = ()  #: Further channels, before those that the published one needs.
    #: What the solver must believe of the machine in place of what it finds here, such as {"__glibc": "2.41"}.
    virtual: Mapping[str, str] = field(default_factory=dict)
    #: conda's name of the platform that it is for
    platform: str = field(default_factory=machine_platform)


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What an environment will consist of."""

    records: tuple[RepoDataRecord, ...]  #: Packages, by name.
    channels: tuple[Path | str, ...]  #: Channels in order of priority.

    @property
    def size(self) -> int:
        """Bytes of the package files."""
        return sum(record.size or 0 for record in self.records)


def find(output: Path, name: str) -> Path:
    """Return the published channel of a config.

    Parameters
    ----------
    output:
        The output folder of builds.
    name:
        The config's name, with what the run added to it: ``linux_64_cpu-rehearsal``.

    Raises
    ------
    ConfigError
        Nothing of that name was built.
    """
    channel = output / "packages" / name
    if published.records(channel):
        return channel
    there = sorted(path.parent.name for path in channel.parent.glob(f"*/{published.RECORDS}"))
    remedy = f"build it first: python3 build-locally.py {name}"
    raise ConfigError(
        f"{channel.parent} has no packages of {name}",
        f"{remedy}; or take what is there: {', '.join(there)}"
        if there
        else f"{remedy}, or name its --output",
    )


def solve(wanted: Wanted) -> Solution:
    """Find the packages that an environment needs.

    Raises
    ------
    PreflightError
        There is no solution; the message says which packages are in the way.
    """
    # those of the latest run, or of a former one, which was for another Python perhaps
    lists = published.channels_beside(wanted.published) or ([()] if wanted.more else [])
    if not lists:
        raise PreflightError(
            f"the channel that the packages in {wanted.published} need besides is gone, or was never noted",
            "run the build again (what is built is not built again), or name it with --channel",
        )
    failure: PreflightError | None = None
    for beside in lists:
        channels = (wanted.published, *wanted.more, *beside)
        try:
            records = solved(
                wanted.specs,
                channels,
                wanted.platform,
                virtual=wanted.virtual,
                what="the environment",
                remedy="",
            )
        except PreflightError as error:
            failure = failure or error
        else:
            return Solution(
                records=tuple(sorted(records, key=lambda one: one.name.normalized)), channels=channels
            )
    assert failure is not None
    raise PreflightError(failure.message, _remedy(failure.message, wanted)) from failure


def _remedy(reason: str, wanted: Wanted) -> str:
    if "__cuda" in reason:
        version = cuda_of(wanted.published.name) or "12.4"
        return (
            f"no NVIDIA driver for it was found here: with CONDA_OVERRIDE_CUDA={version} in front, the environment is "
            "made for a machine that has one"
        )
    if glibc := re.search(r"__glibc >=([\d.]+)", reason):
        return (
            f"this machine's glibc is too old for them: build them here, or, with CONDA_OVERRIDE_GLIBC={glibc[1]} in "
            "front, make the environment for a newer system"
        )
    names = sorted({name.rsplit("-", 2)[0] for name in published.records(wanted.published)})
    return f"{wanted.published.name} has {', '.join(names)}"


def check_place(folder: Path) -> None:
    """Look whether an environment can be made in a folder, or brought up to date.

    Raises
    ------
    UsageError
        It holds something else.
    BusyError
        Another process is making it.
    """
    marker = _marker(folder)
    if folder.is_dir() and any(folder.iterdir()) and marker is None:
        raise UsageError(
            f"{folder} is not empty, and no environment made by this command",
            "name another folder, or delete this one",
        )
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", "name another one")
    maker = (marker or {}).get("unfinished")
    if isinstance(maker, int) and maker != os.getpid() and psutil.pid_exists(maker):
        raise BusyError(f"process {maker} is making {folder}", "wait for it, or name another folder")


def create(
    folder: Path, wanted: Wanted, solution: Solution, *, cache: Path, report: Callable[[str], None]
) -> None:
    """Install a solution, and write the script that activates it.

    What this command made before is brought up to date. What it made for the first time and could not finish is
    removed, at once, or by the next attempt where the process was killed.

    Parameters
    ----------
    folder, wanted, solution:
        The environment's folder, what was asked for, and its packages.
    cache:
        Folder that is shared by all configs: unpacked packages are kept there, and linked from environments.
    report:
        Told what is being done, a line at a time.

    Raises
    ------
    ProviderError
        A package cannot be fetched or installed.
    OutOfSpaceError
        The disk is full.
    UsageError, BusyError
        As :func:`check_place`.
    """
    check_place(folder)
    folder = folder.absolute()
    new = (_marker(folder) or {"unfinished": 0}).get("unfinished") is not None
    existed = folder.is_dir() and not (folder / MARKER).is_file()
    if new:
        _empty(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files.write(folder / MARKER, json.dumps({"unfinished": os.getpid()}))
    try:
        asyncio.run(
            link(
                list(solution.records),
                folder,
                cache_dir=cache / "environments",
                show_progress=False,
                platform=Subdir(wanted.platform),
                # its methods have defaults, but look abstract
                reporter=_Progress(len(solution.records), report),  # type: ignore[abstract]
            )
        )
        _write_activation(folder)
        told = {"specs": list(wanted.specs), "channels": [str(channel) for channel in solution.channels]}
        files.write(folder / MARKER, json.dumps(told, indent=1))
    except BaseException as error:
        if new:
            _clear(folder)
            if not existed:
                folder.rmdir()
        if isinstance(error, Exception) and not isinstance(error, (MegabuildError, OSError)):
            raise _explained(folder, error) from error
        raise


def _explained(folder: Path, error: Exception) -> MegabuildError:
    """Return what rattler says, which has one exception per layer, as an error of ours."""
    reason = " ".join(str(error).split())
    if "No space left" in reason or "os error 28" in reason:
        return OutOfSpaceError(
            f"{folder}: {reason}", "free some space, or choose other places for DIR and MEGABUILD_CACHE"
        )
    return ProviderError(f"{folder} cannot be made: {reason}", "correct the cause and run again")


def _marker(folder: Path) -> dict[str, object] | None:
    try:
        found = json.loads((folder / MARKER).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {"unfinished": 0}
    return found if isinstance(found, dict) else {"unfinished": 0}


def _empty(folder: Path) -> None:
    """Remove everything in a folder, the marker last."""
    if folder.is_dir():
        for path in sorted(folder.iterdir(), key=lambda one: one.name == MARKER.parts[0]):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _clear(folder: Path) -> None:
    """Remove everything until it stays away: threads of rattler's that link other packages outlive its error."""
    quiet = 0
    for _ in range(_ROUNDS):
        with contextlib.suppress(OSError):  # something came into a folder that was being removed
            _empty(folder)
        time.sleep(_ROUND_SECONDS)
        quiet = 0 if any(folder.iterdir()) else quiet + 1
        if quiet == _QUIET_ROUNDS:
            return


def _write_activation(folder: Path) -> None:
    made = activate(
        folder, ActivationVariables(None, ["$PATH"], PathModificationBehavior.Replace), Shell.bash
    )
    (folder / ACTIVATE).write_text(f"# to be read by a shell: . {ACTIVATE}\n{made.script}")


class _Progress(InstallerReporter):
    """Tells of packages as they are unpacked and linked."""

    def __init__(self, total: int, report: Callable[[str], None]) -> None:
        self._total, self._report, self._done = total, report, 0

    def on_populate_cache_start(self, operation: int, package_name: str) -> int:
        """Take a package that is fetched and unpacked."""
        self._report(f"unpacking {package_name}")
        return 0

    def on_link_start(self, operation: int, package_name: str) -> int:
        """Take a package that is linked."""
        self._done += 1
        self._report(f"installing {self._done}/{self._total} {package_name}")
        return 0
