"""Runs the selected tests with the installed torch, each file in a pytest process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from upstream_tests.gather import TESTS
from upstream_tests.selection import Selection, installed_build

#: The folder of the package: its tests and this program.
HERE = Path(__file__).resolve().parents[1]
MEMORY = 2.5  # of one test process, in GB: the maximum, measured with test_nn
PATIENCE = 6  # hours for one file
TEST_PATIENCE = 1200  # seconds for one test
#: Begins the line of a failed test; the driver reads it (megabuild/plan/upstream_tests.py).
FAILED_TEST = "failed test: "
#: Begins the line of a failed test whose process ended, as by the kernel for want of memory.
CRASHED_TEST = "crashed test: "
_MOST_NAMED = 50
#: pytest-xdist's text in the report.
_CRASH = re.compile(r"worker '\w+' crashed while running ")
_QUIET = (0, 5)  # pytest's exit codes if all tests are skipped, or none is selected


class Outcome(str, Enum):
    """How a test ends."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Result:
    """The results of one file, or of one test of it."""

    counts: dict[Outcome, int]
    failed: list[str]  # the tests that failed, or the file; each can be given to this program again
    crashed: list[str] = field(default_factory=list)  # those of them whose process ended


def jobs() -> int:
    """Return how many tests may run at once on this machine's processors and free memory."""
    processors = int(os.environ.get("CPU_COUNT") or len(os.sched_getaffinity(0)))
    return max(1, min(processors, int(_free_memory() / MEMORY)))


def _free_memory() -> float:
    """Return the GB of memory that programs can have, without those that run already; else all memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024 / 1e9
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def read_report(report: Path, file: str) -> Result | None:
    """Read pytest's report on the tests of a file; None without a whole report, as after a crash of pytest itself."""
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    result = Result(counts=dict.fromkeys(Outcome, 0), failed=[])
    for case in root.iter("testcase"):
        outcome = _outcome(case)
        result.counts[outcome] += 1
        if outcome is Outcome.FAILED:
            name = _name(case, file)
            result.failed.append(name)
            if _has_crashed(case):
                result.crashed.append(name)
    return result


def _outcome(case: ElementTree.Element) -> Outcome:
    """Return the outcome of a test in pytest's report."""
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return Outcome.FAILED
    if "skipped" in kinds:
        return Outcome.SKIPPED
    return Outcome.PASSED


def _has_crashed(case: ElementTree.Element) -> bool:
    """Return whether pytest-xdist reports that the process of a failed test ended."""
    return any(_CRASH.match(child.text or "") for child in case)


def _name(case: ElementTree.Element, file: str) -> str:
    """Return the name of a test in pytest's report as pytest takes it; a file that cannot be imported has no tests."""
    module = file.removesuffix(".py").replace("/", ".")
    place = case.get("classname", "")
    if place != module and not place.startswith(f"{module}."):
        return file
    classes = place.removeprefix(module).split(".")
    return "::".join([file, *filter(None, classes), case.get("name", "")])


def _command(name: str, selection: Selection, report: Path, count: int) -> list[str]:
    """Return the command that runs the tests of a file, or one test."""
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={HERE / TESTS}"]
    command += ["-q", "--tb=short", f"--junit-xml={report}", f"--timeout={TEST_PATIENCE}"]
    # a thread ends a test that hangs in C++, and its process with it
    command += ["--timeout-method=thread"]
    # tests of logging leave loggers on; pytest's own log handler would fail on their records in later tests
    command += ["-p", "no:logging", "-p", "no:cacheprovider", "-p", "no:warnings"]
    # PyTorch's tests do not use anyio, whose plugin takes a quarter of each process's start
    command += ["-p", "no:anyio"]
    if "::" in name:  # in this process, for debuggers; also a test that the selection skips
        command += ["-p", "no:xdist"]
    else:
        # also for one at a time: pytest-xdist names a test that crashes, and runs the others; tests with random inputs
        # (hypothesis) fail now and then on slow machines
        command += ["-p", "upstream_tests.plugin", "-n", str(count), "-m", "not hypothesis"]
        # by default, a process keeps up to a quarter of a file's tests, such as all of those that take minutes
        command += ["--dist", "worksteal"]
        keywords = selection.keywords(name)
        if keywords:
            command += ["-k", keywords]
    command.append(str(HERE / TESTS / name))
    return command


def _environment(work: Path) -> dict[str, str]:
    """Return the environment of pytest."""
    path = [str(HERE), str(HERE / TESTS)]
    if os.environ.get("PYTHONPATH"):
        path.append(os.environ["PYTHONPATH"])
    # one thread per test; tests that need more threads set their number themselves
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path)
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(work / "inductor")  # else files stay in /tmp
    environment.pop("PYTEST_ADDOPTS", None)  # the user's options could change the report
    return environment


def _failure(file: str, exit_code: int = 0) -> Result:
    """Return the result of a file whose tests are unknown."""
    result = Result(counts={**dict.fromkeys(Outcome, 0), Outcome.FAILED: 1}, failed=[file])
    if exit_code < 0:
        result.crashed.append(file)
    return result


def run_file(name: str, selection: Selection, work: Path, count: int) -> Result:
    """Run one file's tests, or one test, and return the results."""
    file = name.partition("::")[0]
    report = work / "report.xml"
    command = _command(name, selection, report, count)
    try:
        done = subprocess.run(command, cwd=work, env=_environment(work), timeout=PATIENCE * 3600, check=False)
    except subprocess.TimeoutExpired:
        print(f"{name}: stopped after {PATIENCE} hours", flush=True)
        return _failure(file)
    result = read_report(report, file)
    if result is None:
        print(f"{name}: pytest ended with exit code {done.returncode}, without a report", flush=True)
        return _failure(file, done.returncode)
    if result.failed or (done.returncode == 0 and result.counts[Outcome.PASSED]):
        return result
    if done.returncode in _QUIET and selection.may_be_empty(file, installed_build()):
        return result
    # no test ran, or pytest failed without a failed test: a crash, or an error while importing the file
    passed = result.counts[Outcome.PASSED]
    print(f"{name}: pytest ended with exit code {done.returncode}; {passed} tests passed", flush=True)
    result.counts[Outcome.FAILED] += 1
    result.failed.append(file)
    if done.returncode < 0:
        result.crashed.append(file)
    return result


def run(selection: Selection, names: Sequence[str], count: int) -> int:
    """Run files and tests, print a table of their results, and return the exit code."""
    width = max(map(len, names))
    heads = "".join(f"{outcome.value:>9}" for outcome in Outcome)
    lines = [f"\n{'':{width}}{heads}  minutes"]
    failed: list[str] = []
    crashed: list[str] = []
    total = 0
    for number, name in enumerate(names, 1):
        print(f"file {number} of {len(names)}: {name}", flush=True)
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="pytorch-tests-") as work:
            result = run_file(name, selection, Path(work), count)
        minutes = (time.monotonic() - started) / 60
        numbers = "".join(f"{result.counts[outcome]:>9}" for outcome in Outcome)
        lines.append(f"{name:{width}}{numbers}{minutes:>9.1f}")
        total += result.counts[Outcome.PASSED] + result.counts[Outcome.FAILED]
        failed += result.failed
        crashed += result.crashed
    print("\n".join(lines))
    if not failed:
        print("all passed")
        return 0
    others = [test for test in failed if test not in crashed]
    named = [*(f"{CRASHED_TEST}{test}" for test in crashed), *(f"{FAILED_TEST}{test}" for test in others)]
    print("\n".join(named[:_MOST_NAMED]))
    print(f"{len(failed)} of {total} failed; to repeat one alone: pytorch-tests '{failed[0]}'")
    return 1
