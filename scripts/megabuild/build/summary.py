"""The end of a run in figures, and ``run.json``, where the last run's are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from megabuild import files


@dataclass(frozen=True, kw_only=True)
class PackageResult:
    """One row of the closing table.

    Parameters
    ----------
    status:
        ``built``, ``skipped`` (it was there), ``failed`` or ``missing``.
    seconds:
        Duration of the build script, 0 for skipped packages.
    size:
        Bytes of the package file, 0 where there is none.
    note:
        Why it failed, in a line.
    """

    name: str
    version: str
    build_string: str
    status: str
    size: int = 0
    sha256: str = ""
    seconds: float = 0.0
    path: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class DiskUse:
    """What a run took on disk, in bytes.

    Parameters
    ----------
    peak:
        Most that the state folder held at one time, allocated blocks.
    peak_apparent:
        The same, as the sum of file sizes (shared blocks counted each time).
    tree:
        Allocated by the CMake tree at most.
    staged:
        Size of what the engine keeps of staging (work folder and prefix), which it copies for every inheriting package.
    copied:
        ``staged`` times the number of such copies: one into the cache, one per inheriting package.
    """

    peak: int = 0
    peak_apparent: int = 0
    tree: int = 0
    staged: int = 0
    copied: int = 0


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a run did.

    Parameters
    ----------
    ok:
        Every planned package is published.
    config:
        The run's name.
    packages:
        A row per planned package, in build order.
    seconds:
        Duration of the run.
    log:
        The run's log file.
    channel:
        The published channel, to give to a solver.
    staging:
        The decision about staging, as in ``StagingDecided``.
    staging_seconds:
        Duration of libtorch's compile, 0 where it was reused.
    swaps:
        Per Python: ninja steps after the swap and core objects among them.
    reused:
        Objects that did not have to be compiled, by source.
    error:
        What went wrong, empty when nothing did.
    """

    ok: bool
    config: str
    packages: tuple[PackageResult, ...]
    seconds: float
    log: Path
    channel: Path
    staging: str = ""
    staging_seconds: float = 0.0
    swaps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    reused: Mapping[str, int] = field(default_factory=dict)
    disk: DiskUse = field(default_factory=DiskUse)
    error: str = ""

    def to_dict(self) -> dict[str, object]:
        """The summary as JSON knows it."""
        data = asdict(self)
        data["log"], data["channel"] = str(self.log), str(self.channel)
        return data

    def write(self, path: Path) -> None:
        """Write ``run.json`` so that a reader sees the former or the new one, never half of it."""
        files.write(path, json.dumps(self.to_dict(), indent=1) + "\n")
