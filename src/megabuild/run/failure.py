"""Turns a failed worker's outcome and last lines into an error with a hint."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from groundwork.error_patterns import ErrorKind
from groundwork.error_report import FirstError
from groundwork.errors import (
    BuildError,
    FailureDetails,
    FailureKind,
    MegabuildError,
    OutOfMemoryError,
    OutOfSpaceError,
    PackageTestError,
    PreflightError,
    ProviderError,
    SwapRefused,
    UpstreamTestError,
)
from groundwork.exhaustive import assert_never
from groundwork.failed_step import FailedStep, find_failed_step
from groundwork.first_error import first_error
from groundwork.machine import disk_free, is_full
from groundwork.resources import (
    Complaint,
    ResourceFacts,
    Verdict,
    ending_signals,
    find_complaint,
    judge,
    limited_memory,
)
from groundwork.text import counted, display, size
from megabuild.engine.job import Outcome, OutcomeKind
from megabuild.plan import upstream_tests
from megabuild.run.build_output import SWAP

_PHASE = "::megabuild:: phase "
#: Network errors of libcurl, OpenSSL, glibc, Python (urllib, requests, httpx), conda, and reqwest in rattler-build.
_NETWORK = re.compile(
    r"HTTP(?:/\d(?:\.\d)?| Error| status server error \(| status code:?| error:?|:)? ?(?:5\d\d|429)\b"
    r"|HTTP 000 CONNECTION|\b429 Too Many|status code:? 5\d\d\b|returned error: 5\d\d\b"
    r"|\b50[0234] (?:Internal|Bad|Service|Gateway)"
    r"|error sending request for url|error decoding response body|connection closed before message completed"
    r"|Connection (?:reset by peer|aborted|broken|timed out)|ConnectionResetError|RemoteDisconnected|IncompleteRead"
    r"|not resolve host|failure in name resolution|Name or service not known|lookup address|dns error|getaddrinfo"
    r"|Max retries exceeded with url|Read timed out|(?:Connect|Read)Timeout(?:Error)?\b|operation timed out"
    r"|Network is unreachable|No route to host|TLS handshake|SSL_ERROR_SYSCALL|UNEXPECTED_EOF_WHILE_READING",
    re.IGNORECASE,
)
#: An earlier network error was followed by a successful retry.
_NETWORK_LINES = 60
#: Blank lines, and rattler-build's advice on folders that it has removed.
_NOISE = re.compile(
    r"^\s*$|^Script execution failed|^To run (?:the script|commands) "
    r"|^  (?:cd \"|Work directory: |(?:Build p|P)refix: )"
)
#: rattler-build's table of a solved environment ends at most this many lines before the end.
_TABLE_ENDS = 6
#: rattler-build does not say why it could not create an environment. With less free space, the disk is the cause.
_ENVIRONMENT_BYTES = 200_000_000
#: rattler-build's own report of a script's end, by the outcome's kind; a test's output is above it.
_STATUS = {
    OutcomeKind.BUILD: re.compile(r"Script failed with status (\d+)"),
    OutcomeKind.TEST: re.compile(
        r": PyRattlerBuildError: failed to run test: IO Error: Script failed with status (\d+)"
    ),
}
_KEPT = "finished packages and objects are kept"
_AGAIN = f"correct the cause, then run again: {_KEPT}"
EXCERPT_LINES = 20
#: The most of PyTorch's own tests that an error names.
_NAMED_TESTS = 10


def of_last_phase(lines: Sequence[str]) -> list[str]:
    """Return the last phase's lines without noise, or all lines if that phase printed none."""
    began = 0
    for number, line in enumerate(lines, 1):
        if line.startswith(_PHASE):
            began = number
    printed = lines[began:] or lines
    return [line for line in printed if not _NOISE.match(line)]


def network_failed(lines: Sequence[str]) -> str:
    """Return the last line that reports a network error, or an empty string."""
    for line in reversed(lines[-_NETWORK_LINES:]):
        if _NETWORK.search(line):
            return line.strip()
    return ""


def first_error_below(lines: Sequence[str], *states: Path | str) -> FirstError | None:
    """Return the last phase's first error, with its file relative to tree, work folder or ``$PREFIX``.

    ``states``: the paths of the task's state folder, on the host and as builds see it.
    """
    error = first_error(of_last_phase(lines))
    if error is None:
        return None
    folders = [re.escape(str(folder).rstrip("/")) for folder in states if str(folder)]
    state = f"(?:{'|'.join(folders)})"
    file = re.sub(rf"^{state}/out/bld/[^/]+/host[^/]*/", "$PREFIX/", error.file)
    file = re.sub(rf"^{state}/out/bld/[^/]+/buil[^/]*/", "$BUILD_PREFIX/", file)
    file = re.sub(rf"^{state}/(?:tree|out/bld/[^/]+/work)/|^(?:\.\./)+", "", file)
    return replace(error, file=file)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The facts about a failed worker."""

    outcome: Outcome
    lines: Sequence[str]  #: last lines of the scripts and rattler-build
    what: str  #: failed step for people: ``test of libtorch cpu_0``
    jobs: int  #: parallel compile jobs
    state: Path  #: the task's state folder
    short: bool  #: memory ran out, or nearly so, during the run
    disks: Sequence[Path] = ()  #: folders that the build writes, besides ``state``
    inside: str = ""  #: the state folder as builds see it
    package: str = ""  #: package being built; empty for staging
    phase: str = ""  #: last announced phase
    log: Path | None = None  #: the run's log file, if any
    aside: Path | None = None  #: the folder of packages that failed their tests
    install: str = ""  #: command that makes ./env with the package that failed its test
    on_machine: str = (
        ""  #: " on a linux-aarch64 machine" if that command is for another machine than this one
    )
    enter: Path | None = None  #: program that opens a shell in the failed build's environment, if any
    again: Path | None = None  #: program that repeats the failed step, if any

    @cached_property
    def first(self) -> FirstError | None:
        """The failed phase's first error."""
        return first_error_below(self.lines, self.inside, self.state)

    @property
    def _excerpt(self) -> list[str]:
        """The lines around the first error, else the last ones."""
        if self.first is not None:
            return list(self.first.excerpt)
        return of_last_phase(self.lines)[-EXCERPT_LINES:]

    @property
    def _unlinked(self) -> bool:
        """Whether an environment was solved (rattler-build prints a table) but could not be created."""
        table = any(line.startswith("╰") for line in self.lines[-_TABLE_ENDS:])
        return self.outcome.kind is OutcomeKind.SOLVE and table

    def error(self) -> MegabuildError:
        """Return the error with its hint, and the details for ``--json``."""
        kind, error = self._resource_error() or self._upstream_error() or self._other_error()
        first = self.first or FirstError(kind=ErrorKind.OTHER, message="")
        shown = self._excerpt
        last = shown[-1] if shown else self.outcome.message
        error.failure = FailureDetails(
            kind=kind,
            what=self.what,
            package=self.package,
            phase=self.phase,
            file=first.file,
            line=first.line or None,
            message=first.message or last,
            excerpt=shown,
            command=first.command,
            outputs=first.outputs,
            tests=self._failed_tests,
            log=self.log,
            again=self.again,
            enter=self.enter,
        )
        return error

    @property
    def _tool(self) -> FailureKind:
        """The tool that reported the first error."""
        return FailureKind(self.first.kind.value) if self.first else FailureKind.OTHER

    @cached_property
    def _facts(self) -> ResourceFacts:
        """The facts about memory, disks and signals, measured now."""
        return ResourceFacts(
            memory_short=self.short,
            full_disk=self._find_full_disk(),
            exit_codes=tuple(self._find_exit_codes()),
        )

    def _find_full_disk(self) -> Path | None:
        for folder in (self.state, *self.disks):
            if folder.exists() and is_full(folder):
                return folder
        if self._unlinked and disk_free(self.state) < _ENVIRONMENT_BYTES:
            return self.state
        return None

    def _find_exit_codes(self) -> list[int]:
        """Return the exit codes of the worker, of the failed step, and of the script that rattler-build reports."""
        codes = [self.outcome.returncode, self._step.exit_code or 0]
        pattern = _STATUS.get(self.outcome.kind)
        status = pattern.search(self.outcome.message) if pattern else None
        if status is not None:
            codes.append(int(status[1]))
        return codes

    @cached_property
    def _step(self) -> FailedStep:
        return find_failed_step(of_last_phase(self.lines))

    @property
    def _verdict(self) -> Verdict:
        return judge(self._facts, self._complaint)

    @property
    def _complaint(self) -> Complaint:
        if not self._failed_tests:
            return find_complaint(self._step, self.first)
        # tests of PyTorch print errors of all kinds; memory may have run out elsewhere on the machine
        if self.short and upstream_tests.has_crashed_test(self.lines):
            return Complaint.KILLED
        return Complaint.NONE

    def _resource_error(self) -> tuple[FailureKind, MegabuildError] | None:
        match self._verdict:
            case Verdict.ORDINARY:
                return None
            case Verdict.DISK | Verdict.SPACE | Verdict.FILE_LIMIT as verdict:
                return FailureKind.DISK, self._disk_error(verdict)
            case Verdict.MEMORY | Verdict.ALLOCATION as verdict:
                return FailureKind.MEMORY, self._memory_error(verdict)
            case Verdict.KILLED:
                return FailureKind.KILLED, self._killed_error()
            case never:
                return assert_never(never)

    def _disk_error(
        self, verdict: Literal[Verdict.DISK, Verdict.SPACE, Verdict.FILE_LIMIT]
    ) -> MegabuildError:
        shown = self._cause() + self._shown()
        match verdict:
            case Verdict.DISK:
                return OutOfSpaceError(
                    f"{self.what}: the disk is full, or has no inodes left ({self._facts.full_disk}){shown}",
                    f"free some space, or move --output to another disk, then run again: {_KEPT}",
                )
            case Verdict.SPACE:
                free = f"{size(disk_free(self.state))} free in {self.state}"
                return OutOfSpaceError(
                    f"{self.what}: a program found no space left on its disk or quota ({free}){shown}",
                    f"free some space where that program writes, then run again: {_KEPT}",
                )
            case Verdict.FILE_LIMIT:
                return OutOfSpaceError(
                    f"{self.what}: a file reached the limit of files' sizes{shown}",
                    f"raise the limit (ulimit -f), then run again: {_KEPT}",
                )
            case never:
                return assert_never(never)

    def _memory_error(self, verdict: Literal[Verdict.MEMORY, Verdict.ALLOCATION]) -> MegabuildError:
        shown = self._cause() + self._shown()
        match verdict:
            case Verdict.MEMORY:
                hint = "build on a machine with more memory"
                if self.jobs > 1:
                    hint = f"run again with CPU_COUNT={self.jobs // 2}"
                return OutOfMemoryError(
                    f"{self.what}: out of memory with {counted(self.jobs, 'compile job')}{shown}",
                    f"{hint}: {_KEPT}",
                )
            case Verdict.ALLOCATION:
                limit = limited_memory()
                hint = "build with more memory or swap"
                if limit:
                    hint = f"raise the limit of memory (ulimit {limit})"
                return OutOfMemoryError(
                    f"{self.what}: a program got no memory, although the machine had some free{shown}",
                    f"{hint}, then run again: {_KEPT}",
                    fewer_jobs_help=False,
                )
            case never:
                assert_never(never)

    def _killed_error(self) -> MegabuildError:
        shown = self._cause() + self._shown()
        signals = ending_signals(self._facts.exit_codes)
        if self._complaint is Complaint.TERMINATED:
            signals.append(signal.SIGTERM)
        name = "kill -9?"
        if signals and signals[0] is not signal.SIGKILL:
            name = signals[0].name
        return BuildError(
            f"{self.what}: killed by a signal ({name}); memory did not run out{shown}",
            f"find the program that kills compilers, such as a batch system, then run again: {_KEPT}",
        )

    def _cause(self) -> str:
        """Return the first error, on a line of its own unless the excerpt shows it."""
        first = self.first
        if first is None or not first.headline or any(first.message in line for line in self._excerpt):
            return ""
        return f"\n{first.headline}"

    @cached_property
    def _failed_tests(self) -> list[str]:
        """Those of PyTorch's own tests that failed."""
        if self.package != upstream_tests.PACKAGE or self.outcome.kind is not OutcomeKind.TEST:
            return []
        return upstream_tests.read_failed_tests(self.lines)

    def _upstream_error(self) -> tuple[FailureKind, MegabuildError] | None:
        """Return the error of PyTorch's own tests, whose other words mean nothing."""
        tests = self._failed_tests
        if not tests:
            return None
        count = upstream_tests.count_failed_tests(self.lines)
        named = [f"  {test}" for test in tests[:_NAMED_TESTS]]
        if count > _NAMED_TESTS:
            named.append(f"  and {count - _NAMED_TESTS} more")
        if self.log:
            named.append(f"log: {self.log}")
        headline = f"{self.what}: {count} of PyTorch's own tests failed; its packages are kept"
        message = "\n".join([headline, *named])
        one = f"{upstream_tests.PROGRAM} {shlex.quote(tests[0])}"
        remedy = f"repeat one alone{self.on_machine}: {self.install} && {one}"
        return FailureKind.UPSTREAM_TESTS, UpstreamTestError(message, remedy)

    def _other_error(self) -> tuple[FailureKind, MegabuildError]:
        shown = self._shown()
        line = self._network_line()
        if line:
            return FailureKind.NETWORK, ProviderError(
                f"{self.what}: network error: {line[:300]}{shown}",
                f"run again when the network works: {_KEPT}",
            )
        cause = self._headline()
        match self.outcome.kind:
            case OutcomeKind.TEST:
                reason = cause or f" ({self.outcome.message})"
                return self._tool, PackageTestError(
                    f"{self.what}: the package was built, but its own test failed{reason}{shown}",
                    f"correct the recipe, then run again; the failed package is in {self.aside}",
                )
            case OutcomeKind.SOLVE if self._unlinked:
                return FailureKind.ENVIRONMENT, BuildError(
                    f"{self.what}: rattler-build could not create a solved environment{shown}",
                    f"run again ({_KEPT}); if it recurs: python3 scripts/megabuild clean --kind downloads --apply",
                )
            case OutcomeKind.SOLVE:
                return FailureKind.SOLVE, PreflightError(
                    f"{self.what}: no set of packages satisfies an environment's requirements{shown}",
                    "compare the recipe's requirements with the provider's packages (--plan)",
                )
            case OutcomeKind.BUILD if self.phase == SWAP:
                return self._tool, SwapRefused(
                    f"{self.what}: the Python swap stopped{cause}{shown}",
                    f"{_AGAIN}; as a last resort, delete {self.state}/tree to recompile libtorch",
                )
            case OutcomeKind.BUILD | OutcomeKind.OK:
                reason = cause or ": the build script failed"
                return self._tool, BuildError(f"{self.what}{reason}{shown}", _AGAIN)
            case OutcomeKind.OTHER | OutcomeKind.KILLED:
                return self._tool, BuildError(f"{self.what}: {self.outcome.message}{shown}", _AGAIN)
            case never:
                assert_never(never)

    def _headline(self) -> str:
        """Return the first error after a colon, with ninja's output if the error does not name it."""
        first = self.first
        if first is None:
            return ""
        if first.outputs and first.file.rpartition("/")[2] not in first.outputs:
            # an error in a header or of a linker does not name the object
            return f": {first.headline} ({first.outputs.split()[0]})"
        return f": {first.headline}"

    def _network_line(self) -> str:
        """Return the line with which rattler-build or a test reports a network error, or an empty string."""
        match self.outcome.kind:
            case OutcomeKind.TEST:
                # a package's test may test errors of networks: only what it printed about its failure counts
                printed: Sequence[str] = self._excerpt
            case OutcomeKind.SOLVE | OutcomeKind.OTHER:
                printed = self.lines
            case OutcomeKind.BUILD | OutcomeKind.KILLED | OutcomeKind.OK:
                return ""
            case never:
                assert_never(never)
        return network_failed(of_last_phase([*printed, *self.outcome.message.splitlines()]))

    def _shown(self) -> str:
        """Return the lines below the headline: an excerpt, the log's path, and programs to reproduce the failure."""
        lines = self._excerpt
        if self.log:
            lines.append(f"log: {self.log}")
        if self.again:
            lines.append(f"to repeat this step: {display(self.again)}")
        if self.enter:
            lines.append(f"to open a shell in its environment: {display(self.enter)}")
        return "".join(f"\n{line}" for line in lines)
