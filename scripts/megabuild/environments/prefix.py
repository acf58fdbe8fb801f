"""Solves environments from a published channel and the channels that it needs besides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rattler import RepoDataRecord

from groundwork.errors import ConfigError, PreflightError
from groundwork.network.channels import channel_url
from megabuild.plan import published
from megabuild.plan.solving import solved
from megabuild.providers.environment import machine_platform


@dataclass(frozen=True, kw_only=True)
class EnvironmentRequest:
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
    """Return the published channel of a config, whose name has what its run added: ``linux_64_cpu-rehearsal``.

    Raises ConfigError: Nothing of that name was built.
    """
    channel = output / "packages" / name
    if published.records(channel):
        return channel
    there = sorted(path.parent.name for path in channel.parent.glob(f"*/{published.RECORDS}"))
    other = f"take what is there: {', '.join(there)}" if there else "name its --output"
    build = f"python3 build-locally.py {name.replace('-rehearsal', ' --rehearse')}"
    raise ConfigError(f"{channel.parent} has no packages of {name}", f"build it first: {build}; or {other}")


def requested(
    output: Path, config: str, packages: Sequence[str], *, python: str | None, channels: Sequence[str]
) -> EnvironmentRequest:
    """Return the environment that somebody asks for: match specs, a Python (``3.14t``), channels by any name.

    Raises ConfigError: As :func:`find`.
    """
    specs = [*packages]
    if python:
        free_threaded = f" *_cp{python.replace('.', '')}" if python.endswith("t") else ""
        specs.append(f"python {python.removesuffix('t')}.*{free_threaded}")
    more = (
        Path(channel).absolute() if Path(channel).is_dir() else channel_url(channel) for channel in channels
    )
    return EnvironmentRequest(specs=tuple(specs), published=find(output, config), more=tuple(more))


def solve(wanted: EnvironmentRequest) -> Solution:
    """Find the packages that an environment needs.

    Raises PreflightError: There is no solution; the message says which packages are in the way.
    """
    # those of the latest run, or of a former one, which was for another Python perhaps
    lists = published.channels_beside(wanted.published) or ([()] if wanted.more else [])
    if not lists:
        raise PreflightError(
            f"the channel that the packages in {wanted.published} need besides is gone, or was never recorded",
            "run the build again (nothing that is there is built again), or name it with --channel",
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
                records=tuple(sorted(records, key=lambda record: record.name.normalized)), channels=channels
            )
    assert failure is not None
    raise PreflightError(failure.message, _remedy(failure.message, wanted)) from failure


def _remedy(reason: str, wanted: EnvironmentRequest) -> str:
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


def cuda_of(run_name: str) -> str | None:
    """Return the CUDA version in a config's name: ``13.2`` for ``linux_64_cuda132_wheel``."""
    version = re.search(r"_cuda(\d+)(\d)(?:_|-|$)", run_name)
    return f"{version[1]}.{version[2]}" if version else None
