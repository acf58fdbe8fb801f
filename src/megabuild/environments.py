"""Creates environments of built packages: rattler solves and installs them, a script activates them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from rattler import Config, PackageCache, RepoDataRecord, Subdir, ValidationMode
from rattler import install as install_records
from rattler.shell import ActivationVariables, PathModificationBehavior, Shell, activate

from groundwork import files, redact
from groundwork.channel import Channel
from groundwork.errors import ConfigError, PreflightError, ProviderError, UsageError, of_text
from groundwork.machine import machine_platform
from groundwork.names import package_name
from groundwork.network.channel_logins import Channels, logins_of_alias, rattler_client, separate_logins
from groundwork.progress import Notes
from groundwork.text import counted
from megabuild.plan.solving import solved
from megabuild.providers.conda_forge.provider import ChannelError
from megabuild.store import published

#: Name of the activation script in an environment's folder.
ACTIVATE = "activate"
_META = "conda-meta"
#: A file in an unfinished environment, and the lock of the process that makes it.
_UNFINISHED = ".megabuild-unfinished"
_LOCK = ".megabuild-lock"
#: Editing a file of an environment must not change the cache or another environment.
_COPIES = "allow-hard-links = false\n"


@dataclass(frozen=True, kw_only=True)
class Solution:
    """The packages of an environment."""

    records: tuple[RepoDataRecord, ...]  #: sorted by name
    platform: str  #: conda's name: ``linux-64``
    channels: Channels

    @property
    def size(self) -> int:
        """Bytes of the package files."""
        return sum(record.size or 0 for record in self.records)


def find_channel(output: Path, name: str) -> Path:
    """Return the published channel of a run: the config's name with the run's suffix, as in ``linux_64_cpu-rehearsal``.

    Raises ConfigError: No packages are published under this name.
    """
    channel = output / "packages" / name
    if published.records(channel):
        return channel
    others = sorted(path.parent.name for path in channel.parent.glob(f"*/{published.RECORDS}"))
    remedy = published.BUILD_FIRST
    if others:
        remedy = f"choose from {', '.join(others)}"
    raise ConfigError(f"{name}: no packages in {channel.parent}", remedy)


def solve(
    channel: Path,
    specs: Sequence[str],
    *,
    more: Sequence[Channel] = (),
    virtual: Mapping[str, str] = MappingProxyType({}),
    platform: str = "",
) -> Solution:
    """Solve an environment from a published channel, ``more`` channels, and the channels that its packages need.

    ``virtual``: facts on the machine for the solver, such as {"__glibc": "2.41"}; ``platform``: default this machine's.

    Raises PreflightError: There is no solution, and the message names the conflicting packages; or the channel's
        packages are for another platform.
    Raises ChannelError: A channel refuses, does not answer, or has an unreadable index.
    Raises UsageError: A requirement cannot be parsed.
    """
    platform = platform or machine_platform()
    _check_platform(channel, platform)
    failure: PreflightError | ChannelError | None = None
    for channels in _channel_lists(channel, more):
        try:
            return _solve(channel, specs, channels, virtual, platform)
        except PreflightError as error:
            failure = failure or PreflightError(error.message, _remedy(error.message, channel))
        except ChannelError as error:  # another run's channels may answer
            failure = failure or error
    raise failure or PreflightError(
        f"{channel}: the channel of its dependencies was removed, or never recorded",
        "run the build again (finished packages are kept); env create also takes the channel with --channel",
    )


def _check_platform(channel: Path, platform: str) -> None:
    """Raise PreflightError if no package of a channel is for a platform."""
    subdirs = {record.path.partition("/")[0] for record in published.records(channel).values()}
    if not subdirs or not subdirs.isdisjoint({platform, "noarch"}):
        return
    others = ", ".join(sorted(subdirs))
    raise PreflightError(
        f"{channel.name}: its packages are for {others}, not for {platform}",
        f"create the environment on a {others} machine, or build a config for {platform}",
    )


def _channel_lists(channel: Path, more: Sequence[Channel]) -> Iterator[Channels]:
    """Yield the channels of each run, the latest run's first: earlier runs may have been for other Pythons."""
    lists = published.channels_beside(channel)
    if more and not lists:
        lists = [()]
    for needed in lists:
        channels = separate_logins([Channel.of_folder(channel), *more, *needed])
        # recorded addresses have no credentials; those of the alias may be theirs
        yield replace(channels, logins=(*channels.logins, *logins_of_alias(os.environ)))


def _solve(
    channel: Path, specs: Sequence[str], channels: Channels, virtual: Mapping[str, str], platform: str
) -> Solution:
    what = f"environment from {channel.name}"
    records = solved(specs, channels, platform, virtual=virtual, what=what, remedy="")
    ordered = sorted(records, key=lambda record: record.name.normalized)
    return Solution(records=tuple(ordered), platform=platform, channels=channels)


def _remedy(reason: str, channel: Path) -> str:
    if "__cuda" in reason:
        version = "12.4"
        cuda = re.search(r"_cuda(\d+)(\d)(?:_|-|$)", channel.name)
        if cuda is not None:
            version = f"{cuda[1]}.{cuda[2]}"
        return f"without an NVIDIA driver, set CONDA_OVERRIDE_CUDA={version}"
    glibc = re.search(r"__glibc >=([\d.]+)", reason)
    if glibc is not None:
        return f"build the packages on this machine, or set CONDA_OVERRIDE_GLIBC={glibc[1]} for use on a newer system"
    names = sorted({package_name(file) for file in published.records(channel)})
    return f"choose from the packages of {channel.name}: {', '.join(names)}"


def check_folder(folder: Path) -> None:
    """Check that an environment can be created in a folder: a new or empty one, or an unfinished environment.

    Raises UsageError: It is a file, or has other files.
    """
    if not os.path.lexists(folder) or _is_unfinished(folder):
        return
    if not folder.is_dir() or any(path.name != _LOCK for path in folder.iterdir()):
        raise UsageError(f"{folder}: not an empty folder", "choose another folder, or delete this one")


def _is_unfinished(folder: Path) -> bool:
    """Return whether :func:`create` began an environment in a folder, and was killed or is still at work."""
    marker = folder / _UNFINISHED
    return marker.is_file() and not marker.is_symlink() and not folder.is_symlink()


def create(folder: Path, solution: Solution, *, cache: Path, report: Notes) -> None:
    """Install a solution into a folder, and write the script that activates it.

    The folder is new or empty, or has an unfinished environment, which is replaced.

    The cache keeps the unpacked packages; each use compares them with their digests and copies them.

    Raises UsageError: As :func:`check_folder`.
    Raises BusyError: Another process is creating an environment there.
    Raises ProviderError: A package cannot be fetched or installed; the unfinished folder is kept.
    Raises OutOfSpaceError: The disk is full.
    """
    folder = folder.absolute()
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with files.sole_user(folder / _LOCK, f"{folder}: another process is creating it"):
        try:
            check_folder(folder)  # again: another process may have finished it
            (folder / _UNFINISHED).touch()
            for path in folder.iterdir():  # of a killed process
                if path.name not in (_LOCK, _UNFINISHED):
                    files.remove(path)
            _install(folder, solution, cache=cache, report=report)
            _write_activation(folder)
            (folder / _UNFINISHED).unlink()
        finally:
            (folder / _LOCK).unlink(missing_ok=True)


def _install(folder: Path, solution: Solution, *, cache: Path, report: Notes) -> None:
    (folder / _META).mkdir()
    report(f"installing {counted(len(solution.records), 'package')}")
    try:
        asyncio.run(_install_records(folder, solution, cache))
    except OSError:
        raise
    except Exception as error:  # rattler has one exception per layer, without a common base
        reason = redact.text(" ".join(str(error).split()))
        remedy = "run the same command again: it replaces the unfinished environment"
        failed = ProviderError(f"{folder}: installation failed: {reason}", remedy)
        raise of_text(reason, str(folder)) or failed from error


async def _install_records(folder: Path, solution: Solution, cache: Path) -> None:
    unpacked = PackageCache.new_layered([cache / "environments"], validation_mode=ValidationMode.full())
    await install_records(
        list(solution.records),
        folder,
        package_cache=unpacked,
        client=rattler_client(solution.channels),
        config=Config.from_toml(_COPIES),
        show_progress=False,
        platform=Subdir(solution.platform),
    )


def _write_activation(folder: Path) -> None:
    variables = ActivationVariables(None, ["$PATH"], PathModificationBehavior.Replace)
    script = activate(folder, variables, Shell.bash).script
    files.write(folder / ACTIVATE, f"# for use in a shell: . {ACTIVATE}\n{script}")
