"""Run all tests in a file of operator tests: ``run_operators.py FILE [--device cuda]``.

A test is a function named ``test_…`` that takes a device. Packages are tested without pytest, and the same files run on
a GPU.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import time

import torch


def main() -> int:
    """Run the tests and return the number of failures, at most 100, as the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--device", default="cpu", type=torch.device)
    arguments = parser.parse_args()
    tests = {}
    for name, value in runpy.run_path(arguments.file).items():
        if name.startswith("test_") and callable(value):
            tests[name] = value
    if not tests:
        sys.exit(f"error: {arguments.file}: no tests in this file")
    failed = 0
    for name, function in tests.items():
        torch.manual_seed(0)
        started = time.monotonic()
        try:
            function(arguments.device)
        except (Exception, SystemExit) as error:  # a test that exits has not passed
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
            sys.excepthook(type(error), error, error.__traceback__)
        else:
            print(f"passed {name} ({time.monotonic() - started:.2f} s)", flush=True)
    print(f"{len(tests) - failed} of {len(tests)} passed on {arguments.device}")
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main())
