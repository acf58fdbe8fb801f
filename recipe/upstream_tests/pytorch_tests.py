"""Pack (`gather`) and run (`run`) the tests that selection.ini selects from PyTorch's own.

pytorch_tests.py gather TREE FOLDER
pytorch_tests.py run [FILE …] [--jobs N]

They test the installed torch. Each file runs in its own pytest process, so that it cannot affect the next one. This
module is also pytest's plugin: it skips the tests that selection.ini names, with their reason. The exit code is 1 if a
test fails, or if no test of a file runs.
"""

from __future__ import annotations

import argparse
import ast
import configparser
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SELECTION = HERE / "selection.ini"
TESTS = "test"  # upstream's folder of tests
EXPECTED = "expect"  # the folder in it with expected texts
PASSED = "passed"
FAILED = "failed"
SKIPPED = "skipped"
OUTCOMES = (PASSED, FAILED, SKIPPED)
MEMORY = 2.5  # of one test process, in GB: the maximum, measured with test_nn
PATIENCE = 3  # hours for one file
_SKIP = "skip"  # begins the name of a section of selection.ini
_GATHER = "gather"


def selection() -> configparser.ConfigParser:
    """Read selection.ini; its names are patterns that may contain colons."""
    read = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",), interpolation=None)
    read.optionxform = str  # type: ignore[method-assign,assignment]
    with SELECTION.open(encoding="utf-8") as file:
        read.read_file(file)
    return read


# ---- packing ------------------------------------------------------------------------------------------------------
def needed(tests: Path, name: str) -> Iterator[Path]:
    """Yield the modules and whole packages that a test file imports from its own folder."""
    for module in imported((tests / name).read_text(encoding="utf-8")):
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names:  # `import typing` does not import test/typing
            continue
        for path in (tests / top, tests / f"{top}.py"):
            if path.exists():
                yield path


def imported(source: str) -> Iterator[str]:
    """Yield the names of the modules that a source imports, apart from relative imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def gather(tree: Path, folder: Path) -> None:
    """Copy the selected tests, the modules they import, this file and the selection."""
    tests = tree / TESTS
    packed = folder / TESTS
    packed.mkdir(parents=True)
    names = list(selection()["files"])
    if lacking := [name for name in names if not (tests / name).is_file()]:
        sys.exit(f"error: {tests}: no {', '.join(lacking)}\nhint: change {SELECTION}")
    wanted = [tests / name for name in names]
    for name in names:
        wanted += needed(tests, name)
    if (tests / EXPECTED).is_dir():
        wanted.append(tests / EXPECTED)
    for path in dict.fromkeys(wanted):
        if path.is_dir():
            shutil.copytree(path, packed / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(path, packed)
    for own in (Path(__file__), SELECTION):
        shutil.copy2(own, folder)


# ---- pytest's plugin ----------------------------------------------------------------------------------------------
def reasons(version: str) -> list[tuple[str, str]]:
    """Return the patterns of tests to skip with this version of torch, each with its reason."""
    from packaging.specifiers import SpecifierSet  # pytest requires packaging
    from packaging.version import Version

    found: list[tuple[str, str]] = []
    for name, section in selection().items():
        kind, _, condition = name.partition(" ")
        if kind != _SKIP:
            continue
        if SpecifierSet(condition).contains(Version(version).base_version):
            found += section.items()
    return found


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Skip the tests that the selection names."""
    import pytest
    import torch

    known = reasons(torch.__version__)
    for item in items:
        name = item.nodeid.rpartition("/")[2]
        for pattern, reason in known:
            if fnmatch.fnmatchcase(name, pattern):
                item.add_marker(pytest.mark.skip(reason=f"selection.ini: {reason}"))


# ---- running ------------------------------------------------------------------------------------------------------
def jobs() -> int:
    """Return how many tests may run at once on this machine's processors and memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    processors = int(os.environ.get("CPU_COUNT") or len(os.sched_getaffinity(0)))
    return max(1, min(processors, int(memory / MEMORY)))


def outcomes(report: Path) -> dict[str, int]:
    """Count the outcomes in pytest's report; all are 0 without a report."""
    counts = dict.fromkeys(OUTCOMES, 0)
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError):
        return counts
    for case in root.iter("testcase"):
        counts[outcome(case)] += 1
    return counts


def outcome(case: ElementTree.Element) -> str:
    """Return the outcome of a test in pytest's report."""
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return FAILED
    if "skipped" in kinds:
        return SKIPPED
    return PASSED


def run_file(name: str, keywords: str, work: Path, count: int) -> dict[str, int]:
    """Run one file's tests and return the number of each outcome."""
    report = work / f"{name}.xml"
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={HERE / TESTS}"]
    command += ["-p", "pytorch_tests", "-q", "--tb=short", f"--junit-xml={report}"]
    # tests of logging leave loggers on; pytest's own log handler would fail on their records in later tests
    command += ["-p", "no:logging", "-p", "no:cacheprovider", "-p", "no:warnings"]
    if count > 1:
        command += ["-n", str(count)]
    else:
        command += ["-p", "no:xdist"]
    if keywords:
        command += ["-k", keywords]
    command.append(str(HERE / TESTS / name))
    path = [str(HERE), str(HERE / TESTS)]
    if os.environ.get("PYTHONPATH"):
        path.append(os.environ["PYTHONPATH"])
    # one thread per test; tests that need more threads set their number themselves
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path)
    environment.pop("PYTEST_ADDOPTS", None)  # the user's options could change the report
    try:
        done = subprocess.run(command, cwd=work, env=environment, timeout=PATIENCE * 3600, check=False)
    except subprocess.TimeoutExpired:
        print(f"{name}: stopped after {PATIENCE} hours", flush=True)
        return {PASSED: 0, FAILED: 1, SKIPPED: 0}
    counts = outcomes(report)
    # no test ran, or pytest failed without a failed test: a crash, or an error while importing the file
    is_incomplete = done.returncode != 0 or not counts[PASSED]
    if is_incomplete and not counts[FAILED]:
        code = done.returncode
        print(f"{name}: pytest ended with exit code {code}; {counts[PASSED]} tests passed", flush=True)
        counts[FAILED] += 1
    return counts


def run(files: list[str], count: int) -> int:
    """Run the files, print a table of their results, and return the exit code."""
    known = selection()["files"]
    names = files or list(known)
    width = max(map(len, names))
    lines = [f"\n{'':{width}}{PASSED:>9}{FAILED:>9}{SKIPPED:>9}  minutes"]
    failed = 0
    for name in names:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="pytorch-tests-") as work:
            counts = run_file(name, known.get(name, ""), Path(work), count)
        minutes = (time.monotonic() - started) / 60
        numbers = f"{counts[PASSED]:>9}{counts[FAILED]:>9}{counts[SKIPPED]:>9}"
        lines.append(f"{name:{width}}{numbers}{minutes:>9.1f}")
        failed += counts[FAILED]
    print("\n".join(lines))
    if failed:
        print(f"{failed} failed")
        return 1
    print("all passed")
    return 0


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="pytorch-tests", description="PyTorch's own tests of its numerics.")
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser(_GATHER, help="copy the selected tests out of PyTorch's source")
    packing.add_argument("tree", type=Path)
    packing.add_argument("folder", type=Path)
    running = commands.add_parser("run", help="run the tests with the installed torch")
    running.add_argument("files", nargs="*", metavar="FILE", help="run only these, such as test_linalg.py")
    running.add_argument("--jobs", "-n", type=int, default=jobs(), help="tests at once  [%(default)s]")
    options = parser.parse_args(arguments)
    if options.command == _GATHER:
        gather(options.tree, options.folder)
        return 0
    if unknown := set(options.files) - set(selection()["files"]):
        parser.error(f"selection.ini has no {', '.join(sorted(unknown))}")
    return run(options.files, options.jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
