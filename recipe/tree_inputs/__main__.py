"""The command line, which build_staging.sh runs: ``python …/tree_inputs COMMAND BUILD INSTALLED``.

    compare  before configuring: remove the outputs that read files which changed since
    begin    before the compile: record the files that it may read
    record   after the compile: record the files that it read

BUILD is the tree's build folder, INSTALLED the folder into which it is installed. A record only saves time: without it,
the next `compare` removes all outputs. So a tree that cannot be read ends with a warning and exit code 0.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a folder: Python does not know the package
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "swap"))

from cmake_python_swap.ninja_dry_run import NinjaError
from tree_inputs import compare, installed, outputs, snapshot
from tree_inputs.owners import Owners
from tree_inputs.tree import Tree

_SHOWN = 10


def _compare(options: argparse.Namespace) -> None:
    found = compare.compare(options.build, os.environ)
    objects = sum(found.removed.values())
    if not found.is_proven:
        print("-- no record of the files that this tree's objects read: everything is compiled again")
    if found.files:
        _print_files(found.files)
    for path in found.folders[:_SHOWN]:
        print(f"-- changed: {path}")
    if found.is_changed:
        installed.forget(options.build, options.installed)
    counts = " ".join(f"{kind.value}={count}" for kind, count in found.removed.items())
    figures = f"files={len(found.files)} objects={objects} links={found.links} others={found.others} {counts}"
    print(f"::megabuild:: inputs {figures}".rstrip())


def _print_files(files: Sequence[str]) -> None:
    """Print the first changed files of each package."""
    owners = Owners(os.environ)
    by_package: dict[str, list[str]] = {}
    for path in files:
        names = sorted(owner.name for owner in owners.of(path)) or ["no package"]
        by_package.setdefault(names[0], []).append(path)
    for package, paths in sorted(by_package.items()):
        print(f"-- changed: {package}: {_some(paths)}")


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    text = ", ".join(names[:_SHOWN])
    return f"{text} and {more} more" if more > 0 else text


def _begin(options: argparse.Namespace) -> None:
    _print_removed("no longer made", outputs.remove_dead(Tree.load(options.build)))
    installed.note(options.build)
    print(f"-- recorded {snapshot.begin(options.build, os.environ)} files outside the tree")


def _record(options: argparse.Namespace) -> None:
    _print_removed("no longer installed", installed.remove_former(options.build, options.installed))
    recorded = snapshot.record(options.build, os.environ)
    if recorded is None:
        print("warning: no record of the compile's start: the next build compiles everything again")
        return
    if recorded.unknown:
        files = _some(recorded.unknown)
        print(
            f"warning: files changed during the compile: the next build compiles their objects again: {files}"
        )
    print(f"-- recorded {len(recorded.record.files)} files outside the tree")


def _print_removed(reason: str, names: Sequence[str]) -> None:
    if names:
        print(f"-- removed {len(names)} files that are {reason}: {_some(names)}")


_COMMANDS = {
    "compare": _compare,
    "begin": _begin,
    "record": _record,
}


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="tree_inputs", description="Notice changed files of the environment."
    )
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("build", type=Path, help="the tree's build folder")
    parser.add_argument("installed", type=Path, help="the folder into which the tree is installed")
    options = parser.parse_args(arguments)
    try:
        _COMMANDS[options.command](options)
    except NinjaError as error:
        print(f"warning: tree_inputs {options.command}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
