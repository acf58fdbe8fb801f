"""Environments of what was built: solved and installed by rattler, with a script that activates them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rattler import Config, PackageCache, RepoDataRecord, Subdir, ValidationMode
from rattler import install as install_records
from rattler.install import InstallerReporter
from rattler.shell import ActivationVariables, PathModificationBehavior, Shell, activate

from groundwork import files
from groundwork.errors import ConfigError, OutOfSpaceError, PreflightError, ProviderError, UsageError
from megabuild.plan import published
from megabuild.plan.solving import solved
from megabuild.providers.environment import machine_platform

#: The script that activates an environment, in its folder.
ACTIVATE = "activate"
_META = "conda-meta"
#: An edited file in one environment may not reach the cache or another environment.
_COPIES = "allow-hard-links = false\n"


@dataclass(frozen=True, kw_only=True)
class Solution:
    """The packages of an environment."""

    records: tuple[RepoDataRecord, ...]  #: by name
    platform: str  #: conda's name of it

    @property
    def size(self) -> int:
        """Bytes of the package files."""
        return sum(record.size or 0 for record in self.records)


def find_channel(output: Path, name: str) -> Path:
    """Return the published channel of a config, whose name has what its run added: ``linux_64_cpu-rehearsal``.

    Raises ConfigError: Nothing of that name was built.
    """
    channel = output / "packages" / name
    if published.records(channel):
        return channel
    others = sorted(path.parent.name for path in channel.parent.glob(f"*/{published.RECORDS}"))
    remedy = f"name one of: {', '.join(others)}" if others else "build it first, or name its --output"
    raise ConfigError(f"{channel.parent} has no packages of {name}", remedy)


def solve(
    channel: Path,
    specs: Sequence[str],
    *,
    more: Sequence[Path | str] = (),
    virtual: Mapping[str, str] | None = None,
    platform: str = "",
) -> Solution:
    """Find the packages of an environment, in a published channel, ``more`` channels and those that it needs.

    ``virtual``: what the solver must believe of the machine, such as {"__glibc": "2.41"}; ``platform``: this
    machine's where none is named.

    Raises PreflightError: There is no solution; the message says which packages are in the way.
    """
    # those of the latest run, or of a former one, which was for another Python perhaps
    lists = published.channels_beside(channel) or ([()] if more else [])
    failure: PreflightError | None = None
    platform = platform or machine_platform()
    for beside in lists:
        channels = (channel, *more, *beside)
        try:
            records = solved(
                specs, channels, platform, virtual=virtual or {}, what="the environment", remedy=""
            )
        except PreflightError as error:
            failure = failure or PreflightError(error.message, _remedy(error.message, channel))
        else:
            ordered = sorted(records, key=lambda record: record.name.normalized)
            return Solution(records=tuple(ordered), platform=platform)
    raise failure or PreflightError(
        f"the channel that the packages in {channel} need is gone, or was never recorded",
        "run the build again (finished packages stay), or name it with --channel",
    )


def _remedy(reason: str, channel: Path) -> str:
    if "__cuda" in reason:
        cuda = re.search(r"_cuda(\d+)(\d)(?:_|-|$)", channel.name)
        version = f"{cuda[1]}.{cuda[2]}" if cuda else "12.4"
        return f"without an NVIDIA driver, name the version to make it for: CONDA_OVERRIDE_CUDA={version}"
    if glibc := re.search(r"__glibc >=([\d.]+)", reason):
        return f"build them here, or make the environment for a newer system: CONDA_OVERRIDE_GLIBC={glibc[1]}"
    names = sorted({name.rsplit("-", 2)[0] for name in published.records(channel)})
    return f"{channel.name} has {', '.join(names)}"


def check_folder(folder: Path) -> None:
    """Check that a folder is free for an environment.

    Raises UsageError: It holds something, or is a file.
    """
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder", "name another folder, or delete this one")


def create(folder: Path, solution: Solution, *, cache: Path, report: Callable[[str], None]) -> None:
    """Install a solution into a new or empty folder, and write the script that activates it.

    Unpacked packages are kept in the cache, compared with their digests whenever they are used, and copied.

    Raises UsageError: As :func:`check_folder`.
    Raises ProviderError: A package cannot be fetched or installed; the folder stays as it is then.
    Raises OutOfSpaceError: The disk is full.
    """
    folder = folder.absolute()
    check_folder(folder)
    try:
        (folder / _META).mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"another process makes {folder}", "name another folder") from None
    try:
        asyncio.run(
            install_records(
                list(solution.records),
                folder,
                package_cache=PackageCache.new_layered(
                    [cache / "environments"], validation_mode=ValidationMode.full()
                ),
                config=Config.from_toml(_COPIES),
                show_progress=False,
                platform=Subdir(solution.platform),
                # its methods have defaults, but look abstract
                reporter=_Progress(len(solution.records), report),  # type: ignore[abstract]
            )
        )
    except OSError:
        raise
    except Exception as error:  # rattler has one exception per layer, without a common base
        reason, remedy = " ".join(str(error).split()), f"delete {folder}, and run again"
        if "No space left" in reason or "os error 28" in reason:
            raise OutOfSpaceError(f"{folder}: {reason}", f"free some space, {remedy}") from error
        raise ProviderError(f"{folder} cannot be made: {reason}", f"correct the cause, {remedy}") from error
    variables = ActivationVariables(None, ["$PATH"], PathModificationBehavior.Replace)
    script = activate(folder, variables, Shell.bash).script
    files.write(folder / ACTIVATE, f"# to be read by a shell: . {ACTIVATE}\n{script}")


class _Progress(InstallerReporter):
    def __init__(self, total: int, report: Callable[[str], None]) -> None:
        self._total, self._report, self._done = total, report, 0

    def on_link_start(self, operation: int, package_name: str) -> int:
        self._done += 1
        self._report(f"installing {self._done}/{self._total} {package_name}")
        return 0
