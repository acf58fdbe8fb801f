"""The end of a run in figures, and ``run.json``, where the last run's are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from megabuild import files


@dataclass(frozen=True, kw_only=True)
class PackageResult:
    """One row of the closing table."""

    name: str
    version: str
    build_string: str
    status: str  #: ``built``, ``skipped`` (it was there), ``failed`` or ``missing``
    size: int = 0  #: bytes of the package file, 0 where there is none
    sha256: str = ""
    seconds: float = 0.0  #: duration of the build script, 0 for skipped packages
    path: str = ""
    note: str = ""  #: why it failed, in a line


@dataclass(frozen=True, kw_only=True)
class DiskUse:
    """What a run took on disk, in bytes."""

    peak: int = 0  #: most that the state folder held at one time, allocated blocks
    peak_apparent: int = 0  #: the same, as the sum of file sizes (shared blocks counted each time)
    tree: int = 0  #: allocated by the CMake tree at most
    #: size of what the engine keeps of staging (work folder and prefix), which it copies for every inheriting package
    staged: int = 0
    #: ``staged`` times the number of such copies: one into the cache, one per inheriting package
    copied: int = 0


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a run did."""

    ok: bool  #: every planned package is published
    config: str  #: the run's name
    packages: tuple[PackageResult, ...]  #: a row per planned package, in build order
    seconds: float  #: duration of the run
    log: Path  #: the run's log file
    channel: Path  #: the published channel, to give to a solver
    staging: str = ""  #: the decision about staging, as in ``StagingDecided``
    staging_seconds: float = 0.0  #: duration of libtorch's compile, 0 where it was reused
    compiles: bool = True  #: it was compiled, and not taken out of a wheel
    #: per Python: ninja steps after the swap and core objects among them
    swaps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: objects that did not have to be compiled, by source
    reused: Mapping[str, int] = field(default_factory=dict)
    disk: DiskUse = field(default_factory=DiskUse)
    memory: int = 0  #: bytes of the largest process that this machine ran for it, 0 where nobody knows
    #: what the plan said of duration and memory, 0 where what it spoke of was not done as a whole
    estimated_seconds: float = 0.0
    estimated_memory: int = 0
    error: str = ""  #: what went wrong, empty when nothing did

    def to_dict(self) -> dict[str, object]:
        """The summary as JSON knows it."""
        data = asdict(self)
        data["log"], data["channel"] = str(self.log), str(self.channel)
        return data

    def write(self, path: Path) -> None:
        """Write ``run.json`` so that a reader sees the former or the new one, never half of it."""
        files.write(path, json.dumps(self.to_dict(), indent=1) + "\n")
