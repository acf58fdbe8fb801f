"""PyTorch's own tests: whether a run has their package, and what the package prints of a failure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from megabuild.configs.render import PlannedPackage
from megabuild.plan.options import Options

#: The package, one for each Python.
PACKAGE = "pytorch-tests"
#: The package that they test, one for each Python, too.
_TESTED = "pytorch"
#: The program that runs them, in an environment ``./env``.
PROGRAM = "env/bin/pytorch-tests"
#: The config's key that adds it.
KEY = "torch_upstream_tests"
_ON = ("1",)
_OFF = ("0",)
#: Begin the lines of failed tests (recipe/upstream_tests/run.py), the second of those whose process ended.
_FAILED_TEST = "failed test: "
_CRASHED_TEST = "crashed test: "
#: Its last line: it names no more than 50 of the failed tests.
_COUNT = re.compile(r"(\d+) of \d+ failed; to repeat one alone: ")


def has_upstream_tests(options: Options) -> bool:
    """Return whether a run has the package: by option, else by the config.

    By the config alone, neither a rehearsal has it nor a cross build, whose tests take days in an emulator.
    """
    if options.upstream_tests is not None:
        return options.upstream_tests
    if options.rehearse or options.config.platforms.is_cross:
        return False
    return tuple(options.config.variant.get(KEY, _OFF)) == _ON


def upstream_overrides(options: Options) -> dict[str, tuple[str, ...]]:
    """Return the override of the config's key, if the run needs one."""
    configured = options.config.variant.get(KEY)
    if configured is None:
        return {}
    value = _ON if has_upstream_tests(options) else _OFF
    if tuple(configured) == value:
        return {}
    return {KEY: value}


def tests_of(packages: Iterable[PlannedPackage]) -> list[PlannedPackage]:
    """Return the packages of tests among others."""
    return [package for package in packages if package.name == PACKAGE]


def awaited_tests(planned: Iterable[PlannedPackage], missing: Iterable[PlannedPackage]) -> dict[str, str]:
    """Return the ``missing`` packages of tests by the packages that they test, as file names."""
    tests = {package.python: package.file_name for package in tests_of(missing)}
    awaited: dict[str, str] = {}
    for package in planned:
        if package.name == _TESTED and package.python in tests:
            awaited[package.file_name] = tests[package.python]
    return awaited


def read_failed_tests(lines: Iterable[str]) -> list[str]:
    """Return the names of the tests that failed, each once, from what the package's test printed."""
    names: dict[str, None] = {}
    for line in lines:
        for beginning in (_CRASHED_TEST, _FAILED_TEST):
            if line.startswith(beginning):
                names[line.removeprefix(beginning).strip()] = None
    return list(names)


def has_crashed_test(lines: Iterable[str]) -> bool:
    """Return whether the process of a failed test ended, from what the package's test printed."""
    return any(line.startswith(_CRASHED_TEST) for line in lines)


def count_failed_tests(lines: Iterable[str]) -> int:
    """Return how many tests failed, also those without a name, from what the package's test printed."""
    printed = list(lines)
    for line in reversed(printed):
        match = _COUNT.match(line)
        if match is not None:
            return int(match[1])
    return len(read_failed_tests(printed))
