"""Runs rattler-build for a job file and writes an outcome file. Standard library and rattler_build only.

``python3 worker.py JOB.json OUTCOME.json``

Runs wherever the build runs (host, root folder, container) with a Python that may lack everything else. The engine's
function prints nothing and returns nothing: what happens is read from its log files, how it ended from the outcome
file, whose absence means that the worker was killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

#: The engine's errors carry no type, only these sentences.
_KINDS = (
    ("Test failed", "test"),
    ("package content tests", "test"),
    ("Failed to resolve dependencies", "solve"),
    ("Cannot solve", "solve"),
    ("failed to setup test environment", "solve"),
    ("Script failed", "build"),
    ("Script execution failed", "build"),
)


def kind_of(message: str) -> str:
    """Tell from an engine's error what failed: ``build``, ``test``, ``solve`` or ``other``."""
    return next((kind for text, kind in _KINDS if text in message), "other")


def write_outcome(path: Path, outcome: dict[str, Any]) -> None:
    """Write the outcome file as a whole."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(outcome, indent=1))
    os.replace(beside, path)


def build(job: dict[str, Any]) -> None:
    """Build the recipe of a job; packages that exist in the output folder are left alone."""
    from rattler_build.cli_api import build_recipes

    build_recipes(
        [job["recipe"]],
        build_platform=job["build_platform"],
        target_platform=job["target_platform"],
        channel=None if job["named"] else job["channels"],
        variant_config=job["variant_config"],
        ignore_recipe_variants=True,
        no_build_id=True,  # the staging cache holds the prefix's path: a time stamp in it would never hit
        no_include_recipe=True,
        package_format="conda:1",  # weakly: what passes its tests is compressed again (engine/reproducible.py)
        test="skip",  # test_all() does that
        output_dir=job["output_dir"],
        skip_existing="local",  # what is published or left over lies in the output folder
        continue_on_failure=job["keep_going"],
    )


def packages(job: dict[str, Any]) -> list[Path]:
    """Return the package files in the output folder that the job is about: others may lie there for other runs."""
    output = Path(job["output_dir"])
    files = [*output.glob(f"{job['target_platform']}/*.conda"), *output.glob("noarch/*.conda")]
    return sorted(path for path in files if path.name in job["planned"])


def forget_former_build(package: Path) -> None:
    """Take another package of the same name out of the engine's cache of unpacked ones.

    The engine reads a package's tests from there, by its name alone (measured with rattler-build 0.73): those of a
    former build would run. Beside the folder it keeps eight bytes and the package's sha256 (``CacheMetadataFile``). The
    same package stays: a build may be linking from it.
    """
    home = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    default = Path(os.environ.get("XDG_CACHE_HOME") or home) / "rattler" / "cache"
    name = package.name.removesuffix(".conda")
    unpacked = Path(os.environ.get("RATTLER_CACHE_DIR") or default) / "pkgs" / name
    aside = unpacked.with_name(f".removed-{os.getpid()}-{name}")
    try:
        with package.open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
        if unpacked.with_name(f"{name}.lock").read_bytes()[8:40] == digest.digest():
            return
    except OSError:
        pass  # nothing proves that it is the same
    try:
        unpacked.rename(aside)  # first: nobody is to find half of it
    except OSError:
        return  # the usual case: it was never unpacked
    shutil.rmtree(aside, ignore_errors=True)


def test(package: Path, channels: list[str]) -> str:
    """Run a package's own tests, and return what went wrong, or nothing; the output of one that fails is printed."""
    from rattler_build import Package

    forget_former_build(package)
    try:
        results = Package.from_file(package).run_tests(channel=channels)
    except Exception as error:  # the engine's exceptions have no useful base class
        return str(error) or type(error).__name__
    for result in results:
        if not result.success:
            # a quick one's log is gone before anybody has read it
            print(*result.output, sep="\n", flush=True)
            return (result.output or ["no output"])[-1]
    return ""


def test_all(packages: list[Path], channels: list[str], aside: Path | None) -> tuple[list[str], str]:
    """Test package files; those that fail are moved to ``aside``, those that cannot be installed yet are left.

    Returns the names of the files that passed, and what was wrong with one that did not.
    """
    passed, problem = list[str](), ""
    for package in packages:
        wrong = test(package, channels)
        if not wrong:
            passed.append(package.name)
        elif kind_of(wrong) == "solve":  # it needs a package that was not built, and is none the worse for it
            problem = problem or wrong
        else:
            problem = f"Test failed: {package.name}: {wrong}"
            if aside is not None:
                aside.mkdir(exist_ok=True)
                shutil.move(str(package), aside / package.name)
    return passed, problem


def main(arguments: list[str]) -> int:
    """Run the command line: ``JOB.json OUTCOME.json``."""
    job = json.loads(Path(arguments[0]).read_text())
    warnings.simplefilter("ignore", DeprecationWarning)  # the function that builds all outputs in one go
    os.environ.update(job["env"])
    message, passed = "", list[str]()
    if job["tests"]:
        passed, message = test_all([Path(path) for path in job["tests"]], job["channels"], None)
    else:
        try:
            build(job)
        except Exception as error:
            message = str(error) or type(error).__name__
        if job["test"]:
            output = Path(job["output_dir"])
            passed, problem = test_all(packages(job), [output.as_uri(), *job["channels"]], output / "broken")
            message = message or problem
    kind = kind_of(message) if message else ""
    write_outcome(Path(arguments[1]), {"ok": not message, "kind": kind, "message": message, "passed": passed})
    return 1 if message else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
