"""Creates and updates environments, without losing files of the user's.

Nothing of conda is needed for it, nor afterwards: ``bin/python`` works as it is, and ``activate`` sets what packages
want to have set.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rattler import Config, PackageCache, Subdir, ValidationMode
from rattler import install as link
from rattler.install import InstallerReporter
from rattler.shell import ActivationVariables, PathModificationBehavior, Shell, activate

from groundwork import files
from groundwork.errors import (
    LOCKLESS,
    BusyError,
    IntegrityError,
    OutOfSpaceError,
    ProviderError,
    UsageError,
    of_system,
)
from megabuild.environments.prefix import EnvironmentRequest, Solution

#: Says that an environment is ours, and finished.
MARKER = Path("conda-meta", "megabuild")  # JSON, but all that is named so there is taken for a package
#: Folder in an environment's in which it is made for the first time, with the lock of whoever is at work on it.
UNFINISHED = ".megabuild-unfinished"
#: Where an environment has its script.
ACTIVATE = "activate"
#: An edited file in one environment may not reach the cache or another environment.
_COPIES = "allow-hard-links = false\n"
#: Threads of rattler's outlive its error: removed this often with nothing new in between, a folder stays away.
_QUIET_ROUNDS, _ROUND_SECONDS = 3, 0.1


def check_folder(folder: Path) -> bool:
    """Return whether this command made an environment in a folder before, or has a free folder for one.

    Raises UsageError: The folder holds something else.
    Raises IntegrityError: The marker that this command made it cannot be read.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", "name another one")
    try:
        if "specs" in dict(json.loads((folder / MARKER).read_text())):
            return True
        raise ValueError("it names no specs")
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError) as error:
        raise IntegrityError(
            f"{folder / MARKER} cannot be read: {getattr(error, 'strerror', None) or error}",
            'name another folder; or, if `megabuild env create` did make this one, write {"specs": []} into that file',
        ) from error
    if folder.is_dir() and set(os.listdir(folder)) - {UNFINISHED}:
        raise UsageError(
            f"{folder} is not empty, and holds no finished environment of this command",
            "name another folder, or delete this one",
        )
    return False


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
    the environment's, whose content is moved up when it is whole; so all that is ever removed is in there.

    ``cache`` is shared by all configs: unpacked packages are kept there, compared with their digests whenever they are
    used, and copied to environments, which share blocks with them where the file system can.

    Raises ProviderError: A package cannot be fetched or installed.
    Raises OutOfSpaceError: The disk is full.
    Raises BusyError: Another process is at work on it.
    Raises UsageError, IntegrityError: As :func:`check_folder`.
    """
    check_folder(folder)
    folder = folder.absolute()
    marker = {"specs": list(wanted.specs), "channels": [str(channel) for channel in solution.channels]}
    with _exclusive(folder) as within:
        whole = folder if check_folder(folder) else within / "whole"
        try:
            _install(whole, solution, wanted.platform, folder, cache, report)
        except BaseException:
            if whole != folder:
                _clear(whole)
            raise
        files.write(whole / MARKER, json.dumps(marker, indent=1))
        _write_activation(folder, whole)
        if whole != folder:
            _move_up(whole, folder)


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[Path]:
    """Give the folder of unfinished work to one process at a time; it is gone afterwards."""
    existed, within = folder.is_dir(), folder / UNFINISHED
    within.mkdir(parents=True, exist_ok=True)
    lock = within / "lock"
    busy = BusyError(f"another process is at work on {folder}", "wait for it, or name another folder")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    except FileNotFoundError:  # it was at its end
        raise busy from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not lock.exists() or not os.path.samestat(os.fstat(descriptor), lock.stat()):
            raise busy
        try:
            yield within
        finally:
            shutil.rmtree(within, ignore_errors=True)
            if not existed:
                with contextlib.suppress(OSError):  # there is something in it
                    folder.rmdir()
    except BlockingIOError:
        raise busy from None
    except OSError as error:
        refused = (
            of_system(OSError(error.errno, error.strerror, str(lock))) if error.errno in LOCKLESS else None
        )
        raise refused or error from None
    finally:
        os.close(descriptor)


def _move_up(whole: Path, folder: Path) -> None:
    """Move an environment to its folder; the marker that it is finished comes last."""
    names = sorted(os.listdir(whole), key=lambda name: name == MARKER.parts[0])
    if taken := [name for name in names if os.path.lexists(folder / name)]:
        raise UsageError(
            f"{folder / taken[0]} appeared while the environment was being made", "move it away and run again"
        )
    for name in names:
        os.rename(whole / name, folder / name)


def _install(
    place: Path, solution: Solution, platform: str, folder: Path, cache: Path, report: Callable[[str], None]
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
    except OSError:
        raise
    except Exception as error:  # rattler has one exception per layer, without a common base
        reason = " ".join(str(error).split())
        if "No space left" in reason or "os error 28" in reason:
            remedy = "free some space, or choose other places for DIR and MEGABUILD_CACHE"
            raise OutOfSpaceError(f"{folder}: {reason}", remedy) from error
        raise ProviderError(
            f"{folder} cannot be made: {reason}", "correct the cause and run again"
        ) from error


def _clear(folder: Path) -> None:
    quiet = 0
    while quiet < _QUIET_ROUNDS:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_ROUND_SECONDS)
        quiet = 0 if folder.exists() else quiet + 1


def _write_activation(folder: Path, place: Path) -> None:
    made = activate(place, ActivationVariables(None, ["$PATH"], PathModificationBehavior.Replace), Shell.bash)
    script = made.script.replace(str(place), str(folder))
    files.write(place / ACTIVATE, f"# to be read by a shell: . {ACTIVATE}\n{script}")


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
