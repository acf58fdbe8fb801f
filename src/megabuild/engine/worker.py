"""Runs rattler-build for a job file and writes an outcome file. Imports only the standard library and rattler_build.

``python3 worker.py JOB.json OUTCOME.json``

It runs inside the isolation (host, root folder, container), whose Python may have no other packages. rattler-build's
function prints and returns nothing: the driver reads its log files, and its result from the outcome file. A missing
outcome file means that the worker was killed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

#: Variable with the content of rattler's file of channels' credentials.
LOGINS = "MEGABUILD_CHANNEL_LOGINS"
_PROCESSOR = "CONDA_OVERRIDE_ARCHSPEC"
#: Begins the line above a failed test's output; a package's file name follows.
FAILED_TEST = "::megabuild:: failed test of "
#: Begins the error of the last test that failed; a package's file name and a colon follow.
TEST_FAILED = "Test failed: "
_SOLVE = "solve"
#: rattler-build's errors have no types; these phrases tell them apart.
_KINDS = (
    ("Test failed", "test"),
    ("package content tests", "test"),
    ("Failed to resolve dependencies", _SOLVE),
    ("Cannot solve", _SOLVE),
    ("failed to setup test environment", _SOLVE),
    ("Script failed", "build"),
    ("Script execution failed", "build"),
)


def kind_of(message: str) -> str:
    """Return the failed part that an error message tells: ``build``, ``test``, ``solve`` or ``other``."""
    for text, kind in _KINDS:
        if text in message:
            return kind
    return "other"


def logins_file() -> str | None:
    """Return the path of a file with the channels' credentials that no folder has, or None if there are none."""
    content = os.environ.pop(LOGINS, "")
    if not content:
        return None
    descriptor = os.memfd_create("logins")  # closed at the end of this process; scripts do not inherit it
    os.write(descriptor, content.encode())
    return f"/proc/self/fd/{descriptor}"


def build(job: dict[str, Any], logins: str | None) -> None:
    """Build the recipe of a job, except packages that exist in the output folder."""
    from rattler_build.cli_api import build_recipes

    build_recipes(
        [job["recipe"]],
        build_platform=job["build_platform"],
        target_platform=job["platform"],
        channel=None if job["named"] else job["channels"],
        variant_config=[job["variant_file"]],
        ignore_recipe_variants=True,
        no_build_id=True,  # the staging cache records the prefix's path; with a time stamp it would never match
        no_include_recipe=True,
        package_format="conda:1",  # weak: engine/reproducible.py recompresses tested packages
        test="skip",  # test_all() runs the tests
        output_dir=job["output_dir"],
        auth_file=logins,
        skip_existing="local",  # published and leftover packages are in the output folder
        continue_on_failure=job["options"]["keep_going"],
    )


def packages(job: dict[str, Any]) -> list[Path]:
    """Return the job's package files; the output folder may contain packages of other runs."""
    output = Path(job["output_dir"])
    files = [*output.glob(f"{job['platform']}/*.conda"), *output.glob("noarch/*.conda")]
    return sorted(path for path in files if path.name in job["planned"])


def text_of(error: BaseException) -> str:
    """Return an error's text; its class if it has none."""
    return str(error).strip() or type(error).__name__


def test(package: Path, channels: list[str], logins: str | None) -> str | None:
    """Run a package's own tests; return the error, or None if they passed, and print a failed test's output."""
    from rattler_build import Package

    try:
        results = Package.from_file(package).run_tests(channel=channels, auth_file=logins)
    except Exception as error:  # rattler-build's exceptions have no useful base class
        return text_of(error)
    for result in results:
        if not result.success:
            # a short test's log is removed before the driver can read it
            print(f"{FAILED_TEST}{package.name}", *result.output, sep="\n", flush=True)
            lines = [line for line in result.output if line.strip()]
            return lines[-1] if lines else "no output"
    return None


def test_all(
    packages: list[Path], channels: list[str], aside: Path | None, logins: str | None
) -> tuple[list[str], str | None]:
    """Test package files; move failed ones to ``aside``, and leave those that cannot be installed yet.

    Returns the names of the files that passed, and the error of one that did not, or None.
    """
    passed: list[str] = []
    problem: str | None = None
    for package in packages:
        wrong = test(package, channels, logins)
        if wrong is None:
            passed.append(package.name)
        elif kind_of(wrong) == _SOLVE:  # it needs a package that was not built; its own test did not fail
            problem = problem or wrong
        else:
            problem = f"{TEST_FAILED}{package.name}: {wrong}"
            if aside is not None:
                aside.mkdir(exist_ok=True)
                shutil.move(str(package), aside / package.name)
    return passed, problem


def main(arguments: list[str]) -> int:
    """Run the command line: ``JOB.json OUTCOME.json``."""
    job = json.loads(Path(arguments[0]).read_text())
    warnings.simplefilter("ignore", DeprecationWarning)  # build_recipes() is deprecated
    os.environ.update(job["env"])
    if job.get("platform") != job.get("build_platform") and os.environ.get(_PROCESSOR):
        # rattler-build would take this machine's processor for the other platform's, too
        del os.environ[_PROCESSOR]
    logins = logins_file()
    message: str | None = None
    passed: list[str] = []
    if job["tests"]:
        passed, message = test_all(list(map(Path, job["tests"])), job["channels"], None, logins)
    else:
        try:
            build(job, logins)
        except Exception as error:
            message = text_of(error)
        if job["test"]:
            output = Path(job["output_dir"])
            channels = [output.as_uri(), *job["channels"]]
            passed, problem = test_all(packages(job), channels, output / "broken", logins)
            message = message or problem
    outcome: dict[str, object] = {"ok": True, "kind": "", "message": "", "passed": passed}
    if message is not None:
        outcome |= {"ok": False, "kind": kind_of(message), "message": message}
    temporary = Path(f"{arguments[1]}.new")
    temporary.write_text(json.dumps(outcome, indent=1))
    os.replace(temporary, arguments[1])  # atomically
    return int(message is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
