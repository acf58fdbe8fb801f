"""The command line: ``python -m cmake_python_swap``, or ``python …/cmake_python_swap`` if it is not installed.

Exit codes: 0 done, 9 refused, 1 any other error.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

if not __package__:  # run as a folder: Python does not know the package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from cmake_python_swap import (
    cmake_cache,
    cmake_regenerate,
    ninja_dry_run,
    python_swap,
    skbuild_backend,
    staged_configuration,
)

EXIT_REFUSED = 9


def _swap(arguments: argparse.Namespace) -> None:
    only_plan: bool = arguments.command == "plan"
    report = python_swap.swap(
        arguments.build_dir.absolute(),
        Path(shutil.which(arguments.python) or arguments.python),
        only_plan=only_plan,
        python_targets=_targets(arguments),
    )
    log = sys.stdout
    if arguments.json:
        print(json.dumps(asdict(report), indent=2))
        log = sys.stderr
    else:
        for change in report.changes:
            print(change)
    if not only_plan:
        print(python_swap.marker(report), file=log, flush=True)


def _verify(arguments: argparse.Namespace) -> None:
    python_swap.check(arguments.build_dir.absolute(), _targets(arguments))


def _restore(arguments: argparse.Namespace) -> None:
    cmake_cache.load(arguments.build_dir / cmake_cache.NAME)  # fails if this is not a build folder
    if python_swap.recover(arguments.build_dir.absolute()):
        print("-- the unfinished swap is undone")
    else:
        print("-- there is no unfinished swap")


def _keep(arguments: argparse.Namespace) -> None:
    if not staged_configuration.keep(arguments.build_dir.absolute(), arguments.settings):
        print(f"-- there is no {arguments.settings}: nothing to keep")


def _return(arguments: argparse.Namespace) -> None:
    build_dir = arguments.build_dir.absolute()
    python_swap.recover(build_dir)
    if staged_configuration.restore(build_dir, arguments.settings):
        print("-- the tree has its former configuration")
    else:
        print("-- there is no kept configuration")


def _targets(arguments: argparse.Namespace) -> frozenset[str]:
    return python_swap.PYTHON_TARGETS | set(arguments.python_target)


def _steps(arguments: argparse.Namespace) -> None:
    steps = ninja_dry_run.dry_run(arguments.build_dir, ninja=arguments.ninja, targets=arguments.targets)
    for step in steps:
        line = f"{step.target or '-'}\t{step.description}"
        if step.reason:
            line += f"\t({step.reason})"
        print(line)
    print(f"{len(steps)} steps", file=sys.stderr)


def _get(arguments: argparse.Namespace) -> None:
    cache = cmake_cache.load(arguments.build_dir / cmake_cache.NAME)
    for name in arguments.names:
        print(cache[name].value)
    if not arguments.names:
        for entry in cache:
            print(entry)


def _set(arguments: argparse.Namespace) -> None:
    path = arguments.build_dir / cmake_cache.NAME
    cache = cmake_cache.load(path)
    for assignment in arguments.assignments:
        cache.assign(assignment, new=arguments.new)
    cmake_cache.save(cache, path)


def _regenerate(arguments: argparse.Namespace) -> None:
    restored = cmake_regenerate.regenerate(arguments.build_dir)
    print(f"-- {restored} generated files have not changed and keep their dates")


def _configure(arguments: argparse.Namespace) -> None:
    skbuild_backend.configure(arguments.tree, sys.executable)


def _wheel(arguments: argparse.Namespace) -> None:
    places: list[str] = []
    if arguments.leave_out:
        places = arguments.leave_out.read_text().splitlines()
    skbuild_backend.wheel(arguments.tree, sys.executable, arguments.folder, places)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cmake_python_swap",
        description="Re-point a built PyTorch tree at another Python, so that only its Python side is compiled again.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], None], does: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")
        added.set_defaults(run=run)
        return added

    def of_build(name: str, run: Callable[[argparse.Namespace], None], does: str) -> argparse.ArgumentParser:
        added = command(name, run, does)
        added.add_argument(
            "build_dir", type=Path, help="the tree's build folder, with CMakeCache.txt and build.ninja"
        )
        return added

    planning = of_build("plan", _swap, "show which cache entries a swap would change, without changing them")
    applying = of_build("apply", _swap, "swap: change the cache entries, run CMake, and check with ninja")
    verifying = of_build("verify", _verify, "ask ninja whether it would rebuild more than the Python side")
    of_build("restore", _restore, "undo a swap that was killed; the next swap does this, too")
    keeping = of_build("keep", _keep, "before a first swap: keep the tree's configuration for `return`")
    returning = of_build("return", _return, "after swaps: restore the configuration that `keep` has kept")
    for subparser in (keeping, returning):
        subparser.add_argument(
            "settings",
            help="name of a file in BUILD_DIR, written last by whoever configured the tree; `keep` removes it",
        )
    for subparser in (planning, applying):
        subparser.add_argument(
            "--python", type=Path, metavar="PATH", required=True, help="the Python to build for"
        )
        subparser.add_argument("--json", action="store_true", help="print the report as JSON on stdout")
    for subparser in (planning, applying, verifying):
        subparser.add_argument(
            "--python-target",
            action="append",
            default=[],
            metavar="NAME",
            help="a further CMake target of the Python side "
            f"(known: {', '.join(sorted(python_swap.PYTHON_TARGETS))})",
        )
    steps = of_build("steps", _steps, "show what ninja would run, and why")
    steps.add_argument("targets", nargs="*", metavar="TARGET")
    steps.add_argument("--ninja", default="ninja", help="ninja program to run (default: ninja)")
    getting = of_build("get", _get, "print the values of cache entries, or all entries")
    getting.add_argument("names", nargs="*", metavar="NAME")
    setting = of_build("set", _set, "change cache entries: all of them, or none after an error")
    setting.add_argument("assignments", nargs="+", metavar="NAME[:TYPE]=VALUE")
    setting.add_argument("--new", action="store_true", help="add entries that do not exist yet")
    of_build("regenerate", _regenerate, "run CMake again; unchanged generated files keep their dates")
    configuring = command(
        "configure", _configure, "configure a tree with scikit-build-core, without compiling"
    )
    packing = command("wheel", _wheel, "build, install and pack a tree with scikit-build-core")
    for subparser in (configuring, packing):
        subparser.add_argument("tree", type=Path, help="folder of PyTorch's sources")
    packing.add_argument("folder", type=Path, help="folder for the wheel")
    packing.add_argument(
        "--leave-out",
        type=Path,
        metavar="LIST",
        help="file that lists paths to leave out of torch/, one a line",
    )
    commands.add_parser(
        "cmake", help="run cmake; unchanged generated files keep their dates, as with regenerate"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["cmake"]:  # argparse must not read cmake's arguments
        return cmake_regenerate.instead_of_cmake(words[1:])
    arguments = _parser().parse_args(words)
    try:
        arguments.run(arguments)
    except python_swap.TreeRefused as refusal:
        print(f"cmake_python_swap: refused: {refusal}", file=sys.stderr)
        return EXIT_REFUSED
    except python_swap.UNUSABLE as error:
        print(f"cmake_python_swap: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
