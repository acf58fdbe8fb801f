"""Why a build failed: by facts, and by the failing command's own messages."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from groundwork.failed_step import find_failed_step
from groundwork.first_error import first_error
from groundwork.resources import (
    Complaint,
    ResourceFacts,
    Verdict,
    ending_signals,
    find_complaint,
    judge,
)

FULL = Path("/full")


@pytest.mark.parametrize(
    ("facts", "complaint", "verdict"),
    [
        (ResourceFacts(memory_short=False), Complaint.NONE, Verdict.ORDINARY),
        # a machine that was short of memory is no reason by itself
        (ResourceFacts(memory_short=True), Complaint.NONE, Verdict.ORDINARY),
        (ResourceFacts(memory_short=True, exit_codes=(1, 137)), Complaint.NONE, Verdict.MEMORY),
        (ResourceFacts(memory_short=False, exit_codes=(1, 137)), Complaint.NONE, Verdict.KILLED),
        (ResourceFacts(memory_short=True, exit_codes=(-9,)), Complaint.NONE, Verdict.MEMORY),
        (ResourceFacts(memory_short=False, exit_codes=(-15,)), Complaint.NONE, Verdict.KILLED),
        (ResourceFacts(memory_short=True, exit_codes=(143,)), Complaint.NONE, Verdict.MEMORY),  # earlyoom
        (ResourceFacts(memory_short=True), Complaint.KILLED, Verdict.MEMORY),
        (ResourceFacts(memory_short=False), Complaint.KILLED, Verdict.KILLED),
        (ResourceFacts(memory_short=False), Complaint.TERMINATED, Verdict.KILLED),
        (ResourceFacts(memory_short=True), Complaint.MEMORY, Verdict.MEMORY),
        (ResourceFacts(memory_short=False), Complaint.MEMORY, Verdict.ALLOCATION),
        (ResourceFacts(memory_short=False), Complaint.SPACE, Verdict.SPACE),
        (ResourceFacts(memory_short=True, full_disk=FULL, exit_codes=(137,)), Complaint.KILLED, Verdict.DISK),
        (ResourceFacts(memory_short=False, exit_codes=(153,)), Complaint.NONE, Verdict.FILE_LIMIT),
        (ResourceFacts(memory_short=True), Complaint.FILE_LIMIT, Verdict.FILE_LIMIT),
        # crashes are the build's own
        (ResourceFacts(memory_short=True, exit_codes=(139,)), Complaint.NONE, Verdict.ORDINARY),
        (ResourceFacts(memory_short=True, exit_codes=(134, -6)), Complaint.NONE, Verdict.ORDINARY),
    ],
)
def test_a_verdict_follows_from_facts(facts: ResourceFacts, complaint: Complaint, verdict: Verdict) -> None:
    assert judge(facts, complaint) is verdict


def test_exit_codes_of_shells_and_of_python_name_signals() -> None:
    assert ending_signals([0, 1, 2, 127, 128, 255, 137, -15]) == [signal.SIGKILL, signal.SIGTERM]


_STEP = "FAILED: a.o\nc++ -c a.cpp\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        # a tool's own message in the failed step
        (f"{_STEP}c++: fatal error: Killed signal terminated program cc1plus", Complaint.KILLED),
        (f"{_STEP}a.cpp:9:1: internal compiler error: Killed (program cc1plus)", Complaint.KILLED),
        (f"{_STEP}nvcc error   : 'cicc' died due to signal 9 (Kill signal)", Complaint.KILLED),
        (f"{_STEP}ptxas fatal   : Memory allocation failure", Complaint.MEMORY),
        (f"{_STEP}terminate called after throwing an instance of 'std::bad_alloc'", Complaint.MEMORY),
        (f"{_STEP}cc1plus: out of memory allocating 65536 bytes after a total of 8 bytes", Complaint.MEMORY),
        (f"{_STEP}a.cpp:9:1: fatal error: error writing to /tmp/cc.s: No space left on device", Complaint.SPACE),
        (f"{_STEP}/usr/bin/ld: final link failed: No space left on device", Complaint.SPACE),
        ("+ tar xf a.tar\ntar: x: Cannot write: No space left on device", Complaint.SPACE),
        ('Traceback (most recent call last):\n  File "/a.py", line 3\nOSError: [Errno 28] No space left on device',
         Complaint.SPACE),
        ('Traceback (most recent call last):\n  File "/a.py", line 3\nMemoryError', Complaint.MEMORY),
        ("Compiling  a.cu\nmake: *** [Makefile:70: a.o] Error 137", Complaint.KILLED),
        ("/w/conda_build.sh: line 12: 4711 Terminated              cmake --build build", Complaint.TERMINATED),
        ("head: error writing 'standard output': File too large", Complaint.FILE_LIMIT),
        # the cause, whatever the end of the programs around it
        ("+ x\ntar: x: Cannot write: No space left on device\n/w/b.sh: line 1: 47 Killed         tar", Complaint.SPACE),
        ("+ x\n/w/b.sh: line 1: 47 Killed         tar\ntar: x: Cannot write: No space left on device", Complaint.SPACE),
        ("+ x\ncc1: out of memory allocating 6 bytes\n/w/b.sh: line 1: 47 Terminated      cc", Complaint.MEMORY),
        ("+ x\n/w/b.sh: line 1: 47 Killed         cc\ncc1: out of memory allocating 6 bytes", Complaint.MEMORY),
        ("+ x\n/w/b.sh: line 1: 47 Terminated      cc\n/w/b.sh: line 1: 48 Killed         cc", Complaint.KILLED),
        # the same words in sources, tests, checks, warnings and of another step
        (f"{_STEP}a.cpp:3:9: error: 'bad_alloc' is no member of 'std'\n 3 | throw std::bad_alloc();", Complaint.NONE),
        (f"{_STEP}a.cpp:3:9: error: static assertion failed: No space left on device", Complaint.NONE),
        (f"{_STEP}a.cpp:3:9: error: use of undeclared 'x::Killed'", Complaint.NONE),
        (f"ld: final link failed: No space left on device\n[2/3] b.o\n{_STEP}a.cpp:3: error: no", Complaint.NONE),
        ("checking whether ENOSPC is declared... yes\n-- Looking for SIGKILL - found\ncp: no", Complaint.NONE),
        ("a.cpp:3: Failure\nValue of: text\n  Which is: open: No space left on device", Complaint.NONE),
        ("test_kill: exited with code -9 as expected\nok\nfalse: no", Complaint.NONE),
        ("E   AssertionError: assert 'x' == 'Cannot allocate memory'", Complaint.NONE),
        ("E   RuntimeError: CUDA_ERROR_OUT_OF_MEMORY: out of memory", Complaint.NONE),
        ("cudaErrorMemoryAllocation: out of memory", Complaint.NONE),
        (f"a.cpp:1:1: warning: 'throw std::bad_alloc' will always call terminate\n{_STEP}no", Complaint.NONE),
    ],
)  # fmt: skip
def test_only_the_failing_command_s_own_message_counts(text: str, complaint: Complaint) -> None:
    lines = text.splitlines()
    assert find_complaint(find_failed_step(lines), first_error(lines)) is complaint
