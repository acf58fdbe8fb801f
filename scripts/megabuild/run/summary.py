"""The end of a run in figures, as text and as JSON; ``run.json`` has those of the last run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from groundwork import files
from groundwork.errors import BuildError
from groundwork.names import PackageId
from groundwork.result import Result
from groundwork.text import UNICODE, counted, display, duration, size, table

#: In a state folder: the summary of the last run that did something, and the folder of those of all.
LATEST, RECORDS = "run.json", "runs"
_HASH_DIGITS = 12
#: Shorter steps are not worth a line.
_SLOW_SECONDS = 10.0
#: What a rehearsal's packages are: they have PyTorch's names and versions.
MODEL = "These packages are a small model and not PyTorch."
_MARKS = {
    "built": f"{UNICODE.done} built",
    "skipped": f"{UNICODE.kept} was there",
    "failed": f"{UNICODE.failed} failed",
    "missing": f"{UNICODE.dash} not built",
}


@dataclass(frozen=True, kw_only=True)
class PackageResult:
    """One row of the closing table."""

    package: PackageId
    status: str  #: ``built``, ``skipped`` (it was there), ``failed`` or ``missing``
    size: int = 0  #: bytes of the package file, 0 where there is none
    sha256: str = ""
    seconds: float = 0.0  #: duration of the build script, 0 for skipped packages
    path: str = ""
    note: str = ""  #: why it failed, in a line

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON knows it, the identity's fields among the others."""
        rest = {key: value for key, value in vars(self).items() if key != "package"}
        return {**self.package._asdict(), **rest}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> PackageResult:
        """Read a row that JSON kept; raises a KeyError or a TypeError where it is not one."""
        rest = dict(row)
        return cls(package=PackageId(*(rest.pop(field) for field in PackageId._fields)), **rest)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a run did."""

    ok: bool  #: every planned package is published
    config: str  #: the run's name
    packages: tuple[PackageResult, ...]  #: a row per planned package, in build order
    seconds: float  #: duration of the run
    log: Path  #: the run's log file
    channel: Path  #: the published channel, to give to a solver
    staging: str = ""  #: the decision about staging, ``fresh``, ``reuse``, ``resume`` or ``recompile``
    staging_seconds: float = 0.0  #: duration of libtorch's compile, 0 where it was reused
    staged: str = "libtorch"  #: what that compiles, by the staging output's name
    compiles: bool = True  #: it was compiled, and not taken out of a wheel
    #: per Python: ninja steps after the swap and core objects among them
    swaps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: objects that did not have to be compiled, by source
    reused: Mapping[str, int] = field(default_factory=dict)
    #: what the object cache was asked for by PyTorch's compilers: ``hits``, of them ``shared`` by others, ``misses``
    object_cache: Mapping[str, int] = field(default_factory=dict)
    estimated_seconds: float = 0.0  #: what the plan said, 0 where nothing was built
    #: seconds of the ten steps of ninja's that took longest, by what they made
    slowest_steps: Mapping[str, float] = field(default_factory=dict)
    error: str = ""  #: what went wrong, empty when nothing did
    #: what failed and where, by task, as scripts want it (docs/json.md)
    failures: tuple[Mapping[str, object], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON knows it."""
        packages = [row.to_dict() for row in self.packages]
        return {**asdict(self), "packages": packages, "log": str(self.log), "channel": str(self.channel)}

    def write(self, path: Path) -> None:
        """Write a record so that a reader sees the former or the new one, never half of it."""
        files.write(
            path, json.dumps(Result(format="run", document=self.to_dict()).to_json(), indent=1) + "\n"
        )

    def result(self, use: str, upload: str = "", *, rehearsal: bool = False) -> Result:
        """Return the command's result; ``use`` is a line that installs the packages, ``upload`` one for uploading."""
        lines = ["", *figure_lines(self)]
        lines += ["to use it:", f"  {use}"] if use else []
        lines += ["to upload it:", f"  {upload}"] if upload else []
        lines += ["", MODEL] if rehearsal else []
        took = duration(self.seconds)
        took += f", estimated {duration(self.estimated_seconds)}" if self.estimated_seconds else ""
        lines += ["", f"{self.config}: {'done' if self.ok else 'not everything was built'} in {took}"]
        return Result(
            format="run",
            document={**self.to_dict(), "use": use},
            lines=[*lines, *package_lines(self.packages)],
            exit_code=0 if self.ok else BuildError.exit_code,
        )


def packages_of_last_run(state: Path) -> list[PackageResult]:
    """Return the rows that the last run left in ``run.json``; none where it ended before there was anything to tell."""
    try:
        document = json.loads((state / LATEST).read_text())
        return [PackageResult.from_dict(row) for row in document["packages"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def package_lines(packages: Sequence[PackageResult]) -> list[str]:
    """Return the closing table, which fits 80 columns, after the reasons of failed packages."""
    rows = [
        (
            row.package.label,
            size(row.size) if row.size else "",
            row.sha256[:_HASH_DIGITS],
            duration(row.seconds) if row.seconds >= 1 else "",
            _MARKS.get(row.status, f"  {row.status}"),
        )
        for row in packages
    ]
    lines = table(("package", "size", "sha256", "time", "status"), rows, right=frozenset({1, 3}))
    notes = [
        f"  {row.package.name} {row.package.kind}".rstrip() + f": {row.note}" for row in packages if row.note
    ]
    return [*(["failed:", *notes, ""] if notes else []), *lines]


def figure_lines(summary: Summary) -> list[str]:
    """Return what a run reused, took and left, for people."""
    lines = []
    if summary.staging_seconds:
        how = "compiled" if summary.compiles else "unpacked"
        lines.append(f"{summary.staged} was {how} in {duration(summary.staging_seconds)}")
    for python, figures in summary.swaps.items():
        counts = ", ".join(
            f"{count} {what.removesuffix('s') if count == 1 else what}" for what, count in figures.items()
        )
        lines.append(f"swap to Python {python}: {counts}")
    asked = sum(summary.object_cache.get(what, 0) for what in ("hits", "misses"))
    shared = summary.object_cache.get("shared", 0)
    for source, count in summary.reused.items():
        cached = source == "ccache" and asked
        what = f"{count} of {counted(asked, 'object')}" if cached else counted(count, "object")
        others = f", {shared} of them from what others share" if cached and shared else ""
        lines.append(f"{what} reused from {source}{others}")
    if summary.object_cache and not asked:
        lines.append("no object cache: what was compiled is not kept for another run")
    if slow := {name: seconds for name, seconds in summary.slowest_steps.items() if seconds >= _SLOW_SECONDS}:
        lines += ["slowest steps:", *(f"{duration(seconds):>10}  {name}" for name, seconds in slow.items())]
    if summary.error:
        lines.append(f"{UNICODE.failed} {summary.error}")
    return [*lines, f"log: {display(summary.log)}", f"channel: {display(summary.channel)}"]
