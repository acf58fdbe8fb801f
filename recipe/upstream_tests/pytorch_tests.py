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
TESTS, EXPECTED = (
    "test",
    "expect",
)  # upstream's folder of tests, and the folder in it with expected texts
OUTCOMES = ("passed", "failed", "skipped")
#: Memory of one test process in GB (the maximum, measured with test_nn), and time limit for one file in hours.
MEMORY, PATIENCE = 2.5, 3


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
    for node in ast.walk(ast.parse((tests / name).read_text(encoding="utf-8"))):
        modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names:  # `import typing` does not import test/typing
                yield from (path for path in (tests / top, tests / f"{top}.py") if path.exists())


def gather(tree: Path, folder: Path) -> None:
    """Copy the selected tests, the modules they import, this file and the selection."""
    tests, packed = tree / TESTS, folder / TESTS
    packed.mkdir(parents=True)
    names = list(selection()["files"])
    if lacking := [name for name in names if not (tests / name).is_file()]:
        sys.exit(f"error: {tests}: no {', '.join(lacking)}\nhint: change {SELECTION}")
    wanted = dict.fromkeys(tests / name for name in names)
    wanted.update(dict.fromkeys(path for name in names for path in needed(tests, name)))
    if (tests / EXPECTED).is_dir():
        wanted[tests / EXPECTED] = None
    for path in wanted:
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
        if kind == "skip" and SpecifierSet(condition).contains(Version(version).base_version):
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
        kinds = {child.tag for child in case}
        counts[
            "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        ] += 1
    return counts


def run_file(name: str, keywords: str, work: Path, count: int) -> dict[str, int]:
    """Run one file's tests and return the number of each outcome."""
    report = work / f"{name}.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        os.devnull,
        f"--rootdir={HERE / TESTS}",
        "-p",
        "pytorch_tests",
    ]
    # tests of logging leave loggers on; pytest's own log handler would fail on their records in later tests
    command += [
        "-p",
        "no:logging",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:warnings",
        "-q",
        "--tb=short",
        f"--junit-xml={report}",
    ]
    command += ["-n", str(count)] if count > 1 else ["-p", "no:xdist"]
    command += [*(["-k", keywords] if keywords else []), str(HERE / TESTS / name)]
    path = os.pathsep.join([str(HERE), str(HERE / TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    )
    # one thread per test; tests that need more threads set their number themselves
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)  # the user's options could change the report
    try:
        ended = subprocess.run(
            command, cwd=work, env=environment, timeout=PATIENCE * 3600, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"{name}: stopped after {PATIENCE} hours", flush=True)
        return {"passed": 0, "failed": 1, "skipped": 0}
    counts = outcomes(report)
    # no test ran, or pytest failed without a failed test: a crash, or an error while importing the file
    if not counts["failed"] and (ended != 0 or not counts["passed"]):
        print(f"{name}: pytest ended with exit code {ended}; {counts['passed']} tests passed", flush=True)
        counts["failed"] += 1
    return counts


def run(files: list[str], count: int) -> int:
    """Run the files, print a table of their results, and return the exit code."""
    known, rows = selection()["files"], []
    for name in files or known:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="pytorch-tests-") as work:
            counts = run_file(name, known.get(name, ""), Path(work), count)
        rows.append((name, counts, (time.monotonic() - started) / 60))
    width = max(len(name) for name, *_ in rows)
    print(f"\n{'':{width}}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES) + "  minutes")
    for name, counts, minutes in rows:
        print(
            f"{name:{width}}" + "".join(f"{counts[outcome]:>9}" for outcome in OUTCOMES) + f"{minutes:>9.1f}"
        )
    failed = sum(counts["failed"] for _, counts, _ in rows)
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="pytorch-tests", description="PyTorch's own tests of its numerics.")
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("gather", help="copy the selected tests out of PyTorch's source")
    packing.add_argument("tree", type=Path)
    packing.add_argument("folder", type=Path)
    running = commands.add_parser("run", help="run the tests with the installed torch")
    running.add_argument("files", nargs="*", metavar="FILE", help="run only these, such as test_linalg.py")
    running.add_argument("--jobs", "-n", type=int, default=jobs(), help="tests at once  [%(default)s]")
    options = parser.parse_args(arguments)
    if options.command == "gather":
        gather(options.tree, options.folder)
        return 0
    if unknown := set(options.files) - set(selection()["files"]):
        parser.error(f"selection.ini has no {', '.join(sorted(unknown))}")
    return run(options.files, options.jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
