"""Turn a failed worker's outcome and its last lines into an error with a remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from groundwork.errors import (
    BuildError,
    MegabuildError,
    OutOfMemoryError,
    OutOfSpaceError,
    PackageTestError,
    PreflightError,
    ProviderError,
    SwapRefused,
)
from groundwork.machine import disk_free, is_full, lacked_memory, was_killed
from groundwork.text import counted, display
from megabuild.engine.job import Outcome
from megabuild.run.failure_shell import FailureShell
from megabuild.run.first_error import FirstError, first_error
from megabuild.run.log_tail import PHASE

_SPACE = re.compile(r"No space left on device|ENOSPC|Disk quota exceeded", re.IGNORECASE)
_SWAP = re.compile(r"^::megabuild:: swap-?refused\b|swap refused|refus\w+ the (Python )?swap", re.IGNORECASE)
#: As libcurl, OpenSSL, glibc, Python (urllib, requests, httpx), conda and Rust's reqwest, which the engine has, put it.
_NETWORK = re.compile(
    r"HTTP(?:/\d(?:\.\d)?| Error| status server error \(| status code:?| error:?|:)? ?(?:5\d\d|429)\b"
    r"|HTTP 000 CONNECTION FAILED|\b429 Too Many Requests|status code:? 5\d\d\b|returned error: 5\d\d\b"
    r"|\b50[0234] (?:Internal Server Error|Bad Gateway|Service Unavailable|Gateway Time-?out)"
    r"|error sending request for url|error decoding response body|connection closed before message completed"
    r"|Connection (?:reset by peer|aborted|broken|timed out)|ConnectionResetError|RemoteDisconnected|IncompleteRead"
    r"|Could not resolve host|Temporary failure in name resolution|Name or service not known"
    r"|failed to lookup address information|dns error|getaddrinfo failed"
    r"|Max retries exceeded with url|Read timed out|(?:Connect|Read)Timeout(?:Error)?\b|operation timed out"
    r"|Network is unreachable|No route to host|TLS handshake|SSL_ERROR_SYSCALL|UNEXPECTED_EOF_WHILE_READING",
    re.IGNORECASE,
)
#: A network error further from the end was followed by a successful attempt.
_NETWORK_LINES = 60
#: Blank lines, a shell's trace, and the engine's advice on folders that it has removed.
_NOISE = re.compile(
    r"^\s*$|^\++ |^Script execution failed|^To run (?:the script|commands) "
    r"|^  (?:cd \"|Work directory: |(?:Build p|P)refix: )"
)
#: The engine's table of a solved environment ends at most so many lines before the end.
_TABLE_ENDS = 6
#: The engine does not say why it could not create an environment; below this much free space it is the disk.
_ENVIRONMENT_BYTES = 200_000_000
_KEPT = "finished objects and packages are kept"
_PREFIXES = {"host": "$PREFIX", "buil": "$BUILD_PREFIX"}
EXCERPT_LINES = 20


def of_last_phase(lines: Sequence[str]) -> list[str]:
    """Return the lines of the phase that failed, without noise; of the one before where it printed nothing."""
    began = max((number for number, line in enumerate(lines) if line.startswith(PHASE)), default=-1)
    return [line for line in lines[began + 1 :] or lines if not _NOISE.match(line)]


def network_failed(lines: Sequence[str]) -> str:
    """Return the last line that reports a failed network, or an empty string."""
    return next((line.strip() for line in reversed(lines[-_NETWORK_LINES:]) if _NETWORK.search(line)), "")


def excerpt(lines: Sequence[str]) -> str:
    """Return the lines around the first error of the last phase, or simply the last ones."""
    last = of_last_phase(lines)
    error = first_error(last)
    return "\n".join(error.excerpt if error else last[-EXCERPT_LINES:])


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failed worker and what is known of it."""

    outcome: Outcome
    lines: Sequence[str]  #: the last ones of the scripts and the engine
    what: str  #: what was being built or tested
    jobs: int  #: compile jobs at once
    state: Path  #: the task's state folder
    short: bool  #: memory ran out, or nearly so, while it was running
    inside: str = ""  #: the state folder as builds see it
    package: str = ""  #: what it was built for, none for staging
    phase: str = ""  #: the last one announced
    log: Path | None = None  #: the run's log file, where it has one
    aside: Path | None = None  #: the folder of packages that failed their tests
    shell: FailureShell | None = None  #: programs that lead to where it failed

    @cached_property
    def first(self) -> FirstError | None:
        """The first error of the phase that failed, its file below the tree, the work folder or ``$PREFIX``."""
        error = first_error(of_last_phase(self.lines))
        if error is None:
            return None
        for state in filter(None, (self.inside, str(self.state))):
            folder = re.escape(state.rstrip("/"))
            if match := re.match(rf"{folder}/out/bld/[^/]+/(host|buil)[^/]*/", error.file):
                return replace(error, file=f"{_PREFIXES[match[1]]}/{error.file[match.end() :]}")
            if match := re.match(rf"{folder}/(?:tree|out/bld/[^/]+/work)/", error.file):
                return replace(error, file=error.file[match.end() :])
        return replace(error, file=re.sub(r"^(?:\.\./)+", "", error.file))

    @property
    def network(self) -> str:
        """The line that reports a failed network, while an environment was created or a package tested."""
        if self.outcome.kind not in ("test", "solve", "other"):
            return ""
        return network_failed(of_last_phase([*self.lines, *self.outcome.message.splitlines()]))

    @property
    def unlinked(self) -> bool:
        """Whether an environment was solved, which the engine shows as a table, and then could not be created."""
        return self.outcome.kind == "solve" and any(
            line.startswith("╰") for line in self.lines[-_TABLE_ENDS:]
        )

    def error(self) -> MegabuildError:
        """Return the error, with its remedy and the details for scripts."""
        error = self.of_resources() or self._other_error()
        kinds = {
            OutOfSpaceError: "disk", OutOfMemoryError: "memory", ProviderError: "network",
            PreflightError: "solve",
        }  # fmt: skip
        first = self.first or FirstError(kind="environment" if self.unlinked else "other", message="")
        last = of_last_phase(self.lines)[-EXCERPT_LINES:]
        error.failure = {
            "kind": kinds.get(type(error)) or self._kind(error, first),
            "what": self.what,
            "package": self.package,
            "phase": self.phase,
            "file": first.file,
            "line": first.line or None,
            "message": first.message or next(iter(reversed(last)), self.outcome.message),
            "excerpt": list(first.excerpt or last),
            "command": first.command,
            "outputs": first.outputs,
            "log": str(self.log) if self.log else None,
            "again": str(self.shell.again) if self.shell and self.shell.again else None,
            "enter": str(self.shell.enter) if self.shell else None,
        }
        return error

    @property
    def _killed(self) -> bool:
        return was_killed("\n".join(self.lines)) or self.outcome.returncode in (-9, 137)

    def _kind(self, error: MegabuildError, first: FirstError) -> str:
        if self._killed and isinstance(error, BuildError):
            return "killed"
        return "environment" if self.unlinked else first.kind

    def of_resources(self) -> MegabuildError | None:
        """Return the error for a full disk, exhausted memory or a SIGKILL; None where it was none of them."""
        text, last = "\n".join(self.lines), excerpt(self.lines)
        where = f"\nlog: {self.log}" if self.log else ""
        cramped = self.unlinked and disk_free(self.state) < _ENVIRONMENT_BYTES
        if _SPACE.search(text) or is_full(self.state) or cramped:
            telling = next((f"\n{line}" for line in reversed(self.lines) if _SPACE.search(line)), "")
            return OutOfSpaceError(
                f"{self.what}: the disk is full, or has no room for further files ({self.state}){telling}{where}",
                f"free some space, or put --output on another disk, and run again: {_KEPT}",
            )
        killed = self._killed
        shown = f"\n{last}{where}" if last else where
        if lacked_memory(text) or (killed and self.short):
            fewer = f"run again with fewer: CPU_COUNT={self.jobs // 2}"
            return OutOfMemoryError(
                f"{self.what}: killed for want of memory with {counted(self.jobs, 'compile job')}{shown}",
                f"{fewer if self.jobs > 1 else 'build where there is more memory'}; {_KEPT}",
            )
        if killed:
            return BuildError(
                f"{self.what}: killed by a signal (kill -9?); memory did not run out{shown}",
                "find out who sends it: a person, a batch system's limit, a service manager. Then run again: "
                + _KEPT,
            )
        return None

    def _other_error(self) -> MegabuildError:
        outcome, first = self.outcome, self.first
        shown, cause = self._shown(), f": {first.headline}" if first else ""
        if first and first.outputs and first.file.rpartition("/")[2] not in first.outputs:
            cause += (
                f" ({first.outputs.split()[0]})"  # a header's or a linker's line does not name its object
            )
        if line := self.network:
            return ProviderError(
                f"{self.what}: the network failed: {line[:300]}{shown}",
                f"run again when it is back; nothing has to be corrected, and {_KEPT}",
            )
        if outcome.kind == "test":
            return PackageTestError(
                f"{self.what}: the package was built, but its own test failed"
                f"{cause or f' ({outcome.message})'}{shown}",
                f"correct the recipe and run again; a package that failed lies in {self.aside}",
            )
        if self.unlinked:
            return BuildError(
                f"{self.what}: an environment was solved, and could not be made{shown}",
                f"run again; where that does not help, `megabuild clean --kind downloads --apply`. {_KEPT}",
            )
        if outcome.kind == "solve":
            return PreflightError(
                f"{self.what}: the engine found no solution for an environment{shown}",
                "compare the recipe's requirements with what the provider has (--plan)",
            )
        if self.phase == "swap" and (_SWAP.search("\n".join(self.lines)) or outcome.kind == "build"):
            return SwapRefused(
                f"{self.what}: the Python swap stopped{cause}{shown}",
                "correct the cause and run again: objects that fit are kept. Where nothing else helps, remove the "
                "config's tree folder, which compiles libtorch anew",
            )
        reason = outcome.message if outcome.kind in ("other", "killed") else "the build script failed"
        cause = cause if outcome.kind == "build" and cause else f": {reason}"
        return BuildError(f"{self.what}{cause}{shown}", f"correct the cause and run again: {_KEPT}")

    def _shown(self) -> str:
        """Return the lines below the headline: an excerpt, where the rest is, and how to get where it failed."""
        first = self.first
        lines = list(first.excerpt if first else of_last_phase(self.lines)[-EXCERPT_LINES:])
        lines.append(f"log: {self.log}")
        if self.shell and self.shell.again:
            lines.append(f"this step alone, in its environment: {display(self.shell.again)}")
        if self.shell:
            lines.append(f"a shell in that environment: {display(self.shell.enter)}")
        return "".join(f"\n{line}" for line in lines)
