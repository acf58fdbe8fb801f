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
#: How often a package is tested at most, where another run's package of its name came in between.
_TIMES = 3


def kind_of(message: str) -> str:
    """Tell from an engine's error what failed: ``build``, ``test``, ``solve`` or ``other``."""
    return next((kind for text, kind in _KINDS if text in message), "other")


def write_outcome(path: Path, outcome: dict[str, Any]) -> None:
    """Write the outcome so that it is there in full or not at all."""
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
        keep_build=job["keep_build"],
        no_build_id=True,  # the staging cache holds the prefix's path: a time stamp in it would never hit
        no_include_recipe=True,
        package_format="conda:1",  # weakly: what passes its tests is compressed again (engine/reproducible.py)
        test="skip",  # test() does that
        output_dir=job["output_dir"],
        skip_existing="local",  # what is published or left over lies in the output folder
        continue_on_failure=job["keep_going"],
    )


def packages(job: dict[str, Any]) -> list[Path]:
    """Return the package files in the output folder that the job is about: others may lie there for other runs."""
    output = Path(job["output_dir"])
    files = [*output.glob(f"{job['target_platform']}/*.conda"), *output.glob("noarch/*.conda")]
    return sorted(path for path in files if path.name in job["planned"])


def unpacked_folder(file_name: str) -> Path:
    """Return where the engine's cache has a package unpacked, or would have it."""
    home = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    default = Path(os.environ.get("XDG_CACHE_HOME") or home) / "rattler" / "cache"
    folder = Path(os.environ.get("RATTLER_CACHE_DIR") or default) / "pkgs"
    return folder / file_name.removesuffix(".conda")


def revision(file_name: str) -> tuple[int, str]:
    """Return how often the engine's cache has unpacked a package of this name, and the sha256 of the last one.

    The engine keeps both beside the folder: eight bytes, most significant first, and the digest (rattler's
    ``CacheMetadataFile``, measured with rattler-build 0.73).
    """
    unpacked = unpacked_folder(file_name)
    try:
        data = unpacked.with_name(f"{unpacked.name}.lock").read_bytes()
    except OSError:
        return 0, ""
    return int.from_bytes(data[:8], "big"), data[8:40].hex()


def foreign(package: Path, before: int) -> bool:
    """Return whether the engine may have run another package's tests in place of a package's own.

    ``before`` is its name's :func:`revision` before that.
    """
    if not unpacked_folder(package.name).is_dir():
        return False
    with package.open("rb") as file:
        own = hashlib.sha256()
        while block := file.read(1 << 20):
            own.update(block)
    times, found = revision(package.name)
    return found != own.hexdigest() or times > before + 1


def forget(file_name: str) -> None:
    """Take a package out of the engine's cache of unpacked ones.

    The engine reads a package's tests from there, where it has one, by its name alone (measured with rattler-build
    0.73): those of a former build of the same name would run in place of its own.
    """
    unpacked = unpacked_folder(file_name)
    aside = unpacked.with_name(f".removed-{os.getpid()}-{unpacked.name}")
    try:
        unpacked.rename(aside)  # first: nobody is to find half of it
    except OSError:
        return
    shutil.rmtree(aside, ignore_errors=True)


def test(package: Path, channels: list[str]) -> str:
    """Run a package's own tests, and return what went wrong, or nothing; the output of one that fails is printed."""
    from rattler_build import Package

    results = []
    for _ in range(_TIMES):
        if foreign(package, revision(package.name)[0]):
            forget(package.name)  # where it is the same file, a build beside may be linking from it
        before = revision(package.name)[0]
        try:
            results = Package.from_file(package).run_tests(channel=channels)
        except Exception as error:  # the engine's exceptions have no useful base class
            return str(error) or type(error).__name__
        if not foreign(package, before):
            break
    else:
        return f"another run keeps putting packages named {package.name} into the engine's cache"
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
        passed, message = test_all([Path(one) for one in job["tests"]], job["channels"], None)
    else:
        try:
            build(job)
        except Exception as error:
            message = str(error) or type(error).__name__
        if job["test"]:
            output = Path(job["output_dir"])
            passed, problem = test_all(packages(job), [output.as_uri(), *job["channels"]], output / "broken")
            message = message or problem
    outcome = {
        "ok": not message,
        "kind": kind_of(message) if message else "",
        "message": message,
        "passed": passed,
    }
    write_outcome(Path(arguments[1]), outcome)
    return 1 if message else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
