"""Decides by facts whether a build failed for want of memory or disk, or because another program ended it.

Facts are exit statuses and signals, the kernel's counters, free memory and free space, measured around the failure.
Words count only if the failing command itself printed them in the form of a message of its own: a build can print any
text, quote a source line or test how errors are handled.
"""

from __future__ import annotations

import re
import resource
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from groundwork.error_patterns import ErrorKind
from groundwork.error_report import FirstError
from groundwork.exhaustive import assert_never
from groundwork.failed_step import FailedStep
from groundwork.machine import lacked_memory, lacked_space, reached_file_limit, was_killed

#: A shell's exit code for a program that a signal ended is this plus the signal's number.
_SHELL_SIGNAL = 128
#: Exceptions that report a system call, an allocation or another program's end; others may quote any words.
_SYSTEM_EXCEPTION = re.compile(
    r"(?:[\w.]*\.)?(?:\w*MemoryError|OSError|IOError|BlockingIOError|CalledProcessError"
    r"|RuntimeError: .*DefaultCPUAlloc)"
)
#: How errors of googletest, Catch2 and Rust begin; they show the values that a test compared.
_OF_TESTS = ("Failure: ", "FAILED: ", "panicked: ")
#: How a compiler's error begins that is not one in the source line that it names.
_OF_THE_COMPILER = ("fatal error: ", "internal compiler error: ", "CMake Error: ")
_LONGEST_LINE = 2400
#: Lines of a step's end in which its last message is; a step of unknown start has many.
_LAST_LINES = 40
#: Signals that other programs and limits send; crashes (SIGSEGV, SIGABRT …) are the build's own.
_SENT = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU})
_TERMINATED = re.compile(
    r"Terminated signal terminated program|: line \d+: +\d+ Terminated\b|: task \d+: Terminated$"
    r"|<Signals\.SIGTERM: 15>|^Terminated$"
)


class Verdict(Enum):
    """Why a build failed."""

    ORDINARY = "ordinary"  #: an error in sources, recipe or environment
    MEMORY = "memory"  #: memory ran out, as measured: fewer compile jobs can help
    #: a program got no memory, although some was free: a limit, or one huge allocation
    ALLOCATION = "allocation"
    DISK = "disk"  #: a disk is full, as measured
    SPACE = "space"  #: a program got no space where it wrote, although the known disks have some: a quota, another disk
    FILE_LIMIT = "file_limit"  #: a file reached the limit of files' sizes (``ulimit -f``)
    KILLED = "killed"  #: a signal of another program ended it; memory did not run out


class Complaint(Enum):
    """What the failing command itself reports."""

    NONE = "none"
    MEMORY = "memory"
    SPACE = "space"
    FILE_LIMIT = "file_limit"
    KILLED = "killed"  #: by SIGKILL
    TERMINATED = "terminated"  #: by SIGTERM


#: Finds a line's complaint; the first one counts, and in several lines the first of these, too.
_SIGNS: Mapping[Complaint, Callable[[str], object]] = {
    Complaint.SPACE: lacked_space,
    Complaint.FILE_LIMIT: reached_file_limit,
    Complaint.MEMORY: lacked_memory,
    Complaint.KILLED: was_killed,
    Complaint.TERMINATED: _TERMINATED.search,
}


@dataclass(frozen=True, kw_only=True)
class ResourceFacts:
    """Facts measured when a build failed."""

    memory_short: bool  #: the kernel killed for want of memory during the step, or almost none was free
    full_disk: Path | None = None  #: a folder that the build writes, whose file system is full
    exit_codes: Sequence[int] = ()  #: of the failed command and of those that ran it; negative for a signal


def judge(facts: ResourceFacts, complaint: Complaint) -> Verdict:
    """Return the verdict on a failed build."""
    signals = set(ending_signals(facts.exit_codes))
    if facts.full_disk is not None:
        return Verdict.DISK
    if signal.SIGXFSZ in signals:
        return Verdict.FILE_LIMIT
    match complaint:
        case Complaint.FILE_LIMIT:
            return Verdict.FILE_LIMIT
        case Complaint.SPACE:
            return Verdict.SPACE
        case Complaint.MEMORY:
            return _of_memory(facts, Verdict.ALLOCATION)
        case Complaint.KILLED | Complaint.TERMINATED:
            return _of_memory(facts, Verdict.KILLED)
        case Complaint.NONE if signals & _SENT:
            # the kernel sends SIGKILL, a daemon such as earlyoom SIGTERM first
            return _of_memory(facts, Verdict.KILLED)
        case Complaint.NONE:
            return Verdict.ORDINARY
        case never:
            return assert_never(never)


def _of_memory(facts: ResourceFacts, otherwise: Verdict) -> Verdict:
    if facts.memory_short:
        return Verdict.MEMORY
    return otherwise


def ending_signals(exit_codes: Iterable[int]) -> list[signal.Signals]:
    """Return the signals that ended programs, by their exit codes."""
    known = {int(number): number for number in signal.Signals}
    ending = []
    for code in exit_codes:
        number = code - _SHELL_SIGNAL
        if code < 0:
            number = -code
        if number in known:
            ending.append(known[number])
    return ending


def find_complaint(step: FailedStep, error: FirstError | None) -> Complaint:
    """Return what the failing command reports of memory, disk and signals.

    An error in a source, which may quote any words, is no such report, and outweighs one.
    """
    if error is None:
        return _in_last_lines(step)
    if error.message.startswith(_OF_TESTS):
        return Complaint.NONE
    match error.kind:
        case ErrorKind.SHELL | ErrorKind.OTHER:
            return _in_last_lines(step)
        case ErrorKind.PYTHON:
            may_be = bool(_SYSTEM_EXCEPTION.match(error.message))
        case ErrorKind.COMPILER | ErrorKind.LINKER | ErrorKind.CMAKE:
            may_be = not error.line or error.message.startswith(_OF_THE_COMPILER)
        case never:
            return assert_never(never)
    if may_be:
        return _of_line(error.message)
    return Complaint.NONE


def _in_last_lines(step: FailedStep) -> Complaint:
    """Return the most telling complaint in a step's last lines."""
    last = [*step.lines[-_LAST_LINES:], *step.reports]
    complaints = {_of_line(line[:_LONGEST_LINE]) for line in last}
    for complaint in _SIGNS:
        if complaint in complaints:
            return complaint
    return Complaint.NONE


def _of_line(line: str) -> Complaint:
    for complaint, finds in _SIGNS.items():
        if finds(line):
            return complaint
    return Complaint.NONE


def limited_memory() -> str:
    """Return the option of ``ulimit`` that limits each program's memory here, or an empty string."""
    for option, limit in (("-v", resource.RLIMIT_AS), ("-d", resource.RLIMIT_DATA)):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            return option
    return ""
