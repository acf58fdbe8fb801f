"""Creates and updates environments, without losing files of the user's.

Nothing of conda is needed for it, nor afterwards: ``bin/python`` works as it is, and ``activate`` sets what packages
want to have set.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from filelock import Timeout
from rattler import Config, PackageCache, Subdir, ValidationMode
from rattler import install as link
from rattler.install import InstallerReporter
from rattler.shell import ActivationVariables, PathModificationBehavior, Shell, activate

from groundwork import files
from groundwork.errors import (
    BusyError,
    IntegrityError,
    MegabuildError,
    OutOfSpaceError,
    ProviderError,
    UsageError,
)
from megabuild.environments.prefix import EnvironmentRequest, Solution

#: Says that an environment is ours, and finished.
MARKER = Path("conda-meta", "megabuild")  # JSON, but all that is named so there is taken for a package
#: Folder in an environment's in which it is made for the first time, and the names that are moved up from there.
UNFINISHED, _MOVING = ".megabuild-unfinished", "moving.json"
#: An edited file in one environment may not reach the cache or another environment.
_COPIES = "allow-hard-links = false\n"
#: Where an environment has its script.
ACTIVATE = "activate"
# How long rattler's threads are waited for after a failure: empty this often in a row is empty for good.
_ROUNDS, _QUIET_ROUNDS, _ROUND_SECONDS = 100, 3, 0.1


def check_place(folder: Path) -> None:
    """Check whether an environment can be created or updated in a folder.

    Raises UsageError: It holds something else.
    Raises IntegrityError: The marker that this command made it cannot be read.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", "name another one")
    if not folder.is_dir() or _is_ours(folder) or (folder / UNFINISHED / _MOVING).is_file():
        return
    if {path.name for path in folder.iterdir()} - {UNFINISHED}:
        raise UsageError(
            f"{folder} is not empty, and was not made by this command",
            "name another folder, or delete this one",
        )


def create(
    folder: Path,
    wanted: EnvironmentRequest,
    solution: Solution,
    *,
    cache: Path,
    report: Callable[[str], None],
) -> None:
    """Install a solution, and write the script that activates it.

    What this command made before is brought up to date. What is made for the first time is installed into a folder in
    the environment's, whose content is moved up when it is whole; so all that is ever removed lies in there.

    ``cache`` is shared by all configs: unpacked packages are kept there, compared with their digests whenever they are
    used, and copied to environments, which share blocks with them where the file system can.

    Raises ProviderError: A package cannot be fetched or installed.
    Raises OutOfSpaceError: The disk is full.
    Raises BusyError: Another process is making it.
    Raises UsageError, IntegrityError: As :func:`check_place`.
    """
    check_place(folder)
    folder = folder.absolute()
    marker = {"specs": list(wanted.specs), "channels": [str(channel) for channel in solution.channels]}

    def install(place: Path) -> None:
        _install(place, solution, wanted.platform, folder, cache, report)
        files.write(place / MARKER, json.dumps(marker, indent=1))

    if _is_ours(folder) or not _install_first(folder, install):
        install(folder)
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
    _write_activation(folder)


def _install_first(folder: Path, install: Callable[[Path], None]) -> bool:
    """Make an environment for the first time; or end what was cut short as it was moved up, and return False."""
    existed = folder.is_dir()
    within = folder / UNFINISHED
    within.mkdir(parents=True, exist_ok=True)
    lock = files.FileLock(within / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(
            f"another process is making {folder}", "wait for it, or name another folder"
        ) from None
    with lock:
        lock.release()  # counted: the context holds it once more
        whole = within / "whole"
        anew = not (within / _MOVING).is_file()
        if anew:
            try:
                shutil.rmtree(whole, ignore_errors=True)
                install(whole)
                files.write(within / _MOVING, json.dumps([path.name for path in whole.iterdir()]))
            except BaseException:
                _clear(within)
                if not existed:
                    with contextlib.suppress(OSError):  # something of somebody else's came into it
                        folder.rmdir()
                raise
        # the marker that it is finished comes last
        for name in sorted(
            json.loads((within / _MOVING).read_text()), key=lambda one: one == MARKER.parts[0]
        ):
            if os.path.lexists(whole / name):
                if os.path.lexists(folder / name):
                    raise UsageError(
                        f"{folder / name} appeared while the environment was being made",
                        "move it away and run again",
                    )
                os.rename(whole / name, folder / name)
    return anew


def _install(
    place: Path,
    solution: Solution,
    platform: str,
    folder: Path,
    cache: Path,
    report: Callable[[str], None],
) -> None:
    """Install packages in a place, for a folder that may be another one."""
    try:
        asyncio.run(
            link(
                list(solution.records),
                place,
                alternative_target_prefix=folder,
                package_cache=PackageCache.new_layered(
                    [cache / "environments"], validation_mode=ValidationMode.full()
                ),
                config=Config.from_toml(_COPIES),
                show_progress=False,
                platform=Subdir(platform),
                # its methods have defaults, but look abstract
                reporter=_Progress(len(solution.records), report),  # type: ignore[abstract]
            )
        )
    except (MegabuildError, OSError):
        raise
    except Exception as error:
        raise _translate(folder, error) from error


def _translate(folder: Path, error: Exception) -> MegabuildError:
    """Translate an exception of rattler's, which has one per layer, into an error of ours."""
    reason = " ".join(str(error).split())
    if "No space left" in reason or "os error 28" in reason:
        return OutOfSpaceError(
            f"{folder}: {reason}", "free some space, or choose other places for DIR and MEGABUILD_CACHE"
        )
    return ProviderError(f"{folder} cannot be made: {reason}", "correct the cause and run again")


def _is_ours(folder: Path) -> bool:
    """Return whether this command made an environment, and finished it.

    Raises IntegrityError: There is a marker, and it cannot be read.
    """
    try:
        found = json.loads((folder / MARKER).read_text())
        if not isinstance(found, dict) or "specs" not in found:
            raise ValueError("it names no specs")
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise IntegrityError(
            f"{folder / MARKER} cannot be read: {getattr(error, 'strerror', None) or error}",
            'name another folder; or, if `megabuild env create` did make this one, write {"specs": []} into that file',
        ) from error
    return True


def _clear(folder: Path) -> None:
    """Remove a folder until it stays away: threads of rattler's that link other packages outlive its error."""
    quiet = 0
    for _ in range(_ROUNDS):
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_ROUND_SECONDS)
        quiet = 0 if folder.exists() else quiet + 1
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
        self._report(f"unpacking {package_name}")
        return 0

    def on_link_start(self, operation: int, package_name: str) -> int:
        self._done += 1
        self._report(f"installing {self._done}/{self._total} {package_name}")
        return 0
