"""A run's summary, as text and as JSON; ``run.json`` has the last run's."""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from groundwork import files
from groundwork.errors import BuildError, FailureDetails, MegabuildError
from groundwork.exhaustive import assert_never
from groundwork.machine import machine_platform
from groundwork.names import PackageId
from groundwork.program_words import program_words
from groundwork.result import Result
from groundwork.text import Sign, counted, display, duration, size, table
from megabuild.configs.render import PlannedPackage
from megabuild.plan import upstream_tests
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.plan.tree_reuse import TreeUse
from megabuild.plan.virtual_packages import override_variable
from megabuild.run.progress import Progress, is_finished
from megabuild.store.published import PublishedPackage, records

#: In a state folder: the summary of the last run with work to do.
LATEST = "run.json"
_HASH_DIGITS = 12
_HEADS = ("package", "size", "sha256", "time", "status")
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


def on_machine(platform: str) -> str:
    """Return the words after a command that only a machine of another platform can run; empty for this one's."""
    if platform == machine_platform():
        return ""
    return f" on a {platform} machine"


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
    tested: bool = False  #: whether its own tests ran and passed

    def to_dict(self) -> dict[str, Any]:
        """Return the row for JSON, with the identity's fields at its top level."""
        fields = dict(vars(self))
        package = fields.pop("package")
        return {**package._asdict(), **fields}


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
    untested: str = ""  #: why packages of the run were not tested, or empty
    platform: str = ""  #: conda's, of the packages
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
        if self.error:
            lines.append(f"{Sign.failed} {self.error}")
        if self.untested:
            lines.append(f"{Sign.warning} packages not tested: {self.untested}")
        lines += [f"log: {display(self.log)}", f"channel: {display(self.channel)}"]
        if self.use:
            lines += [f"to install the packages{on_machine(self.platform)}:", f"  {self.use}"]
        if rehearsal:
            lines += ["", _MODEL]
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
        end = f"{'done in' if self.ok else 'incomplete after'} {duration(self.seconds)}"
        statuses = [row.status for row in self.packages]
        if ResultStatus.BUILT not in statuses:
            return end
        earlier = []
        if self.staging is TreeUse.RESUME:
            earlier.append("compiled objects")
        reused = statuses.count(ResultStatus.SKIPPED)
        if reused:
            earlier.append(f"built {counted(reused, 'package')}")
        if not earlier:
            return end
        return f"{end} in this run; earlier ones {' and '.join(earlier)}"


def package_lines(packages: Sequence[PackageResult]) -> list[str]:
    """Return the reasons of failed packages, then the closing table, which fits 80 columns."""
    rows = []
    notes = []
    for row in packages:
        took = duration(row.seconds) if row.seconds >= 1 else ""
        bytes_ = size(row.size) if row.size else ""
        rows.append((row.package.label, bytes_, row.sha256[:_HASH_DIGITS], took, row.status.mark))
        if row.note:
            label = f"{row.package.name} {row.package.kind}".rstrip()
            notes.append(f"  {label}: {row.note}")
    lines = table(_HEADS, rows, right=frozenset({1, 3}))
    return ["failed:", *notes, "", *lines] if notes else lines


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
        name = item.file_name
        package = item.package.id
        record = published.get(name)
        if record is not None and is_finished(start.plan, record, item):
            rows.append(_published_row(package, record, channel, existed=name in start.existing))
        elif name in notes:
            rows.append(PackageResult(package=package, status=ResultStatus.FAILED, note=notes[name]))
        else:
            rows.append(PackageResult(package=package, status=ResultStatus.MISSING))
    return tuple(rows)


def _published_row(
    package: PackageId, record: PublishedPackage, channel: Path, *, existed: bool
) -> PackageResult:
    row = PackageResult(
        package=package,
        status=ResultStatus.BUILT,
        size=record.size,
        sha256=record.sha256,
        seconds=record.seconds,
        path=str(channel / record.path),
        tested=record.is_tested,
    )
    return replace(row, status=ResultStatus.SKIPPED, seconds=0.0) if existed else row


def install_line(plan: Plan, rows: Iterable[PackageResult]) -> str:
    """Return the command that creates an environment of the built packages; empty if PyTorch is not published.

    It takes the newest Python with its extensions, or with PyTorch if it has none. For another feedstock's recipe, it
    takes all packages for that Python or for none. Variables name the virtual packages that they were built for, such
    as a GPU, which this machine may lack.
    """
    published = {row.package for row in rows if row.status.is_published}
    packages = []
    for item in plan.items:
        if item.package.id in published and item.package.name != upstream_tests.PACKAGE:
            packages.append(item.package)
    python = _newest_python(plan, packages)
    if not packages or (python is None and not plan.is_foreign):
        return ""
    names = _extension_names(plan, python, published)
    if not names:
        pythons = (None, python) if plan.is_foreign else (python,)
        names = [package.name for package in packages if package.python in pythons]
    return _with_variables(plan, _words(plan.options, names, python))


def install_command(plan: Plan, package: PlannedPackage, channel: Path) -> str:
    """Return the command that creates an environment of a package that is in a channel of its own."""
    words = _words(plan.options, [package.name], package.python)
    return _with_variables(plan, [*words, "--channel", display(channel)])


def _with_variables(plan: Plan, words: Sequence[str]) -> str:
    """Return a command with the virtual packages of the build, such as Debian's glibc, which this machine may lack."""
    variables = []
    for name, version in plan.environment.virtual_packages.items():
        variables.append(f"{override_variable(name)}={version}")
    return " ".join([*variables, shlex.join(words)])


def follow_command(options: Options) -> str:
    """Return the command that shows a run until it ends."""
    words = [*program_words(), "status", options.run_name, "--follow", *_output_words(options)]
    return shlex.join(words)


def _words(options: Options, names: Iterable[str], python: str | None) -> list[str]:
    """Return the words of the command that creates an environment of these packages."""
    words = [*program_words(), "env", "create", "./env", *dict.fromkeys(names)]
    if python is not None:
        words += ["--python", python]
    return [*words, "--from", options.run_name, *_output_words(options)]


def _output_words(options: Options) -> list[str]:
    """Return the option that names a run's output folder, if a command would look in another one."""
    if options.own and options.output == options.root / "output":
        return []
    return ["-o", str(options.output)]


def _newest_python(plan: Plan, packages: Iterable[PlannedPackage]) -> str | None:
    """Return the newest Python of these packages, one with a GIL if there is any."""
    order = plan.options.config.pythons
    pythons = [package.python for package in packages if package.python]
    return max(pythons, key=lambda name: (not name.endswith("t"), order.index(name)), default=None)


def _extension_names(plan: Plan, python: str | None, published: Container[PackageId]) -> list[str]:
    """Return the names of the published extensions for a Python; a task for all Pythons has none itself."""
    names = []
    for task in plan.extensions:
        if task.python in (None, python):
            names += [package.name for package in task.packages if package.id in published]
    return names
