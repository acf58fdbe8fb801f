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
        (ResourceFacts(memory_short=False), Complaint.none, Verdict.ordinary),
        # a machine that was short of memory is no reason by itself
        (ResourceFacts(memory_short=True), Complaint.none, Verdict.ordinary),
        (ResourceFacts(memory_short=True, exit_codes=(1, 137)), Complaint.none, Verdict.memory),
        (ResourceFacts(memory_short=False, exit_codes=(1, 137)), Complaint.none, Verdict.killed),
        (ResourceFacts(memory_short=True, exit_codes=(-9,)), Complaint.none, Verdict.memory),
        (ResourceFacts(memory_short=False, exit_codes=(-15,)), Complaint.none, Verdict.killed),
        (ResourceFacts(memory_short=True, exit_codes=(143,)), Complaint.none, Verdict.memory),  # earlyoom
        (ResourceFacts(memory_short=True), Complaint.killed, Verdict.memory),
        (ResourceFacts(memory_short=False), Complaint.killed, Verdict.killed),
        (ResourceFacts(memory_short=False), Complaint.terminated, Verdict.killed),
        (ResourceFacts(memory_short=True), Complaint.memory, Verdict.memory),
        (ResourceFacts(memory_short=False), Complaint.memory, Verdict.allocation),
        (ResourceFacts(memory_short=False), Complaint.space, Verdict.space),
        (ResourceFacts(memory_short=True, full_disk=FULL, exit_codes=(137,)), Complaint.killed, Verdict.disk),
        (ResourceFacts(memory_short=False, exit_codes=(153,)), Complaint.none, Verdict.file_limit),
        (ResourceFacts(memory_short=True), Complaint.file_limit, Verdict.file_limit),
        # crashes are the build's own
        (ResourceFacts(memory_short=True, exit_codes=(139,)), Complaint.none, Verdict.ordinary),
        (ResourceFacts(memory_short=True, exit_codes=(134, -6)), Complaint.none, Verdict.ordinary),
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
        (f"{_STEP}c++: fatal error: Killed signal terminated program cc1plus", Complaint.killed),
        (f"{_STEP}a.cpp:9:1: internal compiler error: Killed (program cc1plus)", Complaint.killed),
        (f"{_STEP}nvcc error   : 'cicc' died due to signal 9 (Kill signal)", Complaint.killed),
        (f"{_STEP}ptxas fatal   : Memory allocation failure", Complaint.memory),
        (f"{_STEP}terminate called after throwing an instance of 'std::bad_alloc'", Complaint.memory),
        (f"{_STEP}cc1plus: out of memory allocating 65536 bytes after a total of 8 bytes", Complaint.memory),
        (f"{_STEP}a.cpp:9:1: fatal error: error writing to /tmp/cc.s: No space left on device", Complaint.space),
        (f"{_STEP}/usr/bin/ld: final link failed: No space left on device", Complaint.space),
        ("+ tar xf a.tar\ntar: x: Cannot write: No space left on device", Complaint.space),
        ('Traceback (most recent call last):\n  File "/a.py", line 3\nOSError: [Errno 28] No space left on device',
         Complaint.space),
        ('Traceback (most recent call last):\n  File "/a.py", line 3\nMemoryError', Complaint.memory),
        ("Compiling  a.cu\nmake: *** [Makefile:70: a.o] Error 137", Complaint.killed),
        ("/w/conda_build.sh: line 12: 4711 Terminated              cmake --build build", Complaint.terminated),
        ("head: error writing 'standard output': File too large", Complaint.file_limit),
        # the same words in sources, tests, checks, warnings and of another step
        (f"{_STEP}a.cpp:3:9: error: 'bad_alloc' is no member of 'std'\n 3 | throw std::bad_alloc();", Complaint.none),
        (f"{_STEP}a.cpp:3:9: error: static assertion failed: No space left on device", Complaint.none),
        (f"{_STEP}a.cpp:3:9: error: use of undeclared 'x::Killed'", Complaint.none),
        (f"ld: final link failed: No space left on device\n[2/3] b.o\n{_STEP}a.cpp:3: error: no", Complaint.none),
        ("checking whether ENOSPC is declared... yes\n-- Looking for SIGKILL - found\ncp: no", Complaint.none),
        ("a.cpp:3: Failure\nValue of: text\n  Which is: open: No space left on device", Complaint.none),
        ("test_kill: exited with code -9 as expected\nok\nfalse: no", Complaint.none),
        ("E   AssertionError: assert 'x' == 'Cannot allocate memory'", Complaint.none),
        ("E   RuntimeError: CUDA_ERROR_OUT_OF_MEMORY: out of memory", Complaint.none),
        ("cudaErrorMemoryAllocation: out of memory", Complaint.none),
        (f"a.cpp:1:1: warning: 'throw std::bad_alloc' will always call terminate\n{_STEP}no", Complaint.none),
    ],
)  # fmt: skip
def test_only_the_failing_command_s_own_message_counts(text: str, complaint: Complaint) -> None:
    lines = text.splitlines()
    assert find_complaint(find_failed_step(lines), first_error(lines)) is complaint
