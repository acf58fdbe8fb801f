"""A run's summary, as text and as JSON; ``run.json`` has the last run's."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import megabuild
from groundwork import files
from groundwork.errors import BuildError, FailureDetails, MegabuildError
from groundwork.exhaustive import assert_never
from groundwork.names import PackageId
from groundwork.result import Result
from groundwork.text import Sign, counted, display, duration, size, table
from megabuild.plan.plan import Plan
from megabuild.plan.tree_reuse import TreeUse
from megabuild.run.progress import Progress
from megabuild.store.published import is_published, records

#: In a state folder: the summary of the last run with work to do.
LATEST = "run.json"
_HASH_DIGITS = 12
#: Added to a rehearsal's summary, because its packages have PyTorch's names and versions.
_MODEL = "These packages are a small model, not PyTorch."


class ResultStatus(str, Enum):
    """The end of a planned package."""

    BUILT = "built"
    SKIPPED = "skipped"  #: it was published before
    FAILED = "failed"
    MISSING = "missing"  #: not built: the run ended before

    @property
    def is_published(self) -> bool:
        return self in (ResultStatus.BUILT, ResultStatus.SKIPPED)

    @property
    def mark(self) -> str:
        """The word of the closing table, with its sign."""
        match self:
            case ResultStatus.BUILT:
                return f"{Sign.done} built"
            case ResultStatus.SKIPPED:
                return f"{Sign.kept} reused"
            case ResultStatus.FAILED:
                return f"{Sign.failed} failed"
            case ResultStatus.MISSING:
                return f"{Sign.dash} not built"
            case never:
                assert_never(never)


def name_of_test(file_name: str) -> str:
    """Return the name of the task that tests a package."""
    return f"test {file_name}"


@dataclass(frozen=True, kw_only=True)
class PackageResult:
    """One row of the closing table."""

    package: PackageId
    status: ResultStatus
    size: int = 0  #: bytes of the package file, 0 if there is none
    sha256: str = ""
    seconds: float = 0.0  #: duration of the build script, 0 for skipped packages
    path: str = ""
    note: str = ""  #: one-line reason of the failure

    def to_dict(self) -> dict[str, Any]:
        """Return the row for JSON, with the identity's fields at its top level."""
        fields = {key: value for key, value in vars(self).items() if key != "package"}
        return {**self.package._asdict(), **fields}


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The result and figures of a run."""

    ok: bool  #: every planned package is published
    config: str  #: the run's name
    packages: tuple[PackageResult, ...]  #: a row per planned package, in build order
    seconds: float  #: duration of the run
    log: Path  #: the run's log file
    channel: Path  #: the channel of published packages
    staging: TreeUse = TreeUse.NONE  #: the use of the former compile
    staging_seconds: float = 0.0  #: duration of libtorch's compile, 0 if it was reused
    #: per Python: ninja steps after the swap and core objects among them
    swaps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    error: str = ""  #: the run's error, or empty
    use: str = ""  #: command that installs the packages, or empty
    failures: tuple[FailureDetails, ...] = ()  #: of each failed task

    def to_dict(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        values = {
            "packages": [row.to_dict() for row in self.packages],
            "log": str(self.log),
            "channel": str(self.channel),
            "staging": self.staging.value,
            "failures": [failure.to_dict() for failure in self.failures],
        }
        return asdict(self) | values

    def write(self, path: Path) -> None:
        """Write the summary as JSON, atomically."""
        files.write(path, json.dumps(self.result().to_json(), indent=1) + "\n")

    def result(self, *, rehearsal: bool = False) -> Result:
        """Return the command's result."""
        lines = [""]
        if self.staging_seconds:
            lines.append(f"the compile for all Pythons took {duration(self.staging_seconds)}")
        lines += [f"{Sign.failed} {self.error}"] if self.error else []
        lines += [f"log: {display(self.log)}", f"channel: {display(self.channel)}"]
        lines += ["to install the packages:", f"  {self.use}"] if self.use else []
        lines += ["", _MODEL] if rehearsal else []
        lines += ["", f"{self.config}: {self._end()}"]
        return Result(
            format="run",
            format_version=2,
            document=self.to_dict(),
            lines=[*lines, *package_lines(self.packages)],
            exit_code=0 if self.ok else BuildError.exit_code,
        )

    def _end(self) -> str:
        """Return how the run ended and how long it took; a run that continued earlier ones names their part."""
        took = duration(self.seconds)
        end = f"done in {took}" if self.ok else f"incomplete after {took}"
        statuses = [row.status for row in self.packages]
        if ResultStatus.BUILT not in statuses:
            return end
        earlier = []
        if self.staging is TreeUse.RESUME:
            earlier.append("compiled objects")
        reused = statuses.count(ResultStatus.SKIPPED)
        if reused:
            earlier.append(f"built {counted(reused, 'package')}")
        return f"{end} in this run; earlier ones {' and '.join(earlier)}" if earlier else end


def package_lines(packages: Sequence[PackageResult]) -> list[str]:
    """Return the reasons of failed packages, then the closing table, which fits 80 columns."""
    rows = [
        (
            row.package.label,
            size(row.size) if row.size else "",
            row.sha256[:_HASH_DIGITS],
            duration(row.seconds) if row.seconds >= 1 else "",
            row.status.mark,
        )
        for row in packages
    ]
    lines = table(("package", "size", "sha256", "time", "status"), rows, right=frozenset({1, 3}))
    notes = [
        f"  {row.package.name} {row.package.kind}".rstrip() + f": {row.note}" for row in packages if row.note
    ]
    return [*(["failed:", *notes, ""] if notes else []), *lines]


def package_results(start: Progress, failed: Mapping[str, MegabuildError]) -> tuple[PackageResult, ...]:
    """Return a row for each package, in build order; ``start``: what existed before the run.

    ``failed`` maps failed tasks to their errors.
    """
    channel = start.plan.options.packages
    published = records(channel)
    notes: dict[str, str] = {}  # by file name of a package that failed
    for error in failed.values():
        notes |= dict.fromkeys(error.packages, error.message.splitlines()[0])
    rows = []
    for item in start.plan.all_items:
        name = item.package.file_name
        record = published.get(name)
        existed = name in start.existing
        if record is None or not is_published(channel, record, item.fingerprint):
            status = ResultStatus.FAILED if name in notes else ResultStatus.MISSING
            rows.append(PackageResult(package=item.package.id, status=status, note=notes.get(name, "")))
            continue
        row = PackageResult(
            package=item.package.id,
            status=ResultStatus.SKIPPED if existed else ResultStatus.BUILT,
            size=record.size,
            sha256=record.sha256,
            seconds=0.0 if existed else record.seconds,
            path=str(channel / record.path),
        )
        rows.append(row)
    return tuple(rows)


def install_line(plan: Plan, rows: Iterable[PackageResult]) -> str:
    """Return the command that creates an environment of the built packages; empty if PyTorch is not published.

    It takes the newest Python with its extensions, or with PyTorch if it has none. For another feedstock's recipe, it
    takes all packages for that Python or for none. Variables name the virtual packages that they were built for, such
    as a GPU, which this machine may lack.
    """
    options, foreign = plan.options, not plan.options.config.torch_version
    ids = {row.package for row in rows if row.status.is_published}
    packages = [item.package for item in plan.all_items if item.package.id in ids]
    # a package for all Pythons has the Python that it is built with, and its task has none
    extensions = [(package, task.python) for task in plan.extensions for package in task.packages]
    own = {package.name for package, _ in extensions}
    pythons = [package.python for package in packages if package.python and package.name not in own]
    if not packages or not (pythons or foreign):
        return ""
    order = options.config.pythons
    python = max(pythons, key=lambda name: (not name.endswith("t"), order.index(name))) if pythons else None
    chosen = (None, python) if foreign else (python,)
    names = dict.fromkeys(
        [package.name for package, serves in extensions if package.id in ids and serves in (None, python)]
        or [package.name for package in packages if package.python in chosen]
    )
    words = ["python3", display(Path(megabuild.__file__).resolve().parent)]
    words += ["env", "create", "./env", *names, *(["--python", python] if python else [])]
    words += ["--from", options.run_name]
    if not options.own or options.output != options.root / "output":
        words += ["-o", str(options.output)]
    needed = plan.environment.virtual_packages.items()
    variables = [f"CONDA_OVERRIDE_{name.removeprefix('__').upper()}={version}" for name, version in needed]
    return " ".join([*variables, shlex.join(words)])
