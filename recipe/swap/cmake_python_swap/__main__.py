"""The command line: ``python -m cmake_python_swap``, or ``python …/cmake_python_swap`` where it is not installed.

Exit codes: 0 done, 9 refused, 1 anything else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

if not __package__:  # run as a folder, which does not tell Python what package it is
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from cmake_python_swap import cmake_cache, cmake_regenerate, ninja_dry_run, python_swap, skbuild_backend

EXIT_REFUSED = 9


def _swap(arguments: argparse.Namespace) -> None:
    only_plan: bool = arguments.command == "plan"
    report = python_swap.swap(
        arguments.build_dir.absolute(),
        Path(shutil.which(arguments.python) or arguments.python),
        only_plan=only_plan,
        python_targets=_targets(arguments),
    )
    if arguments.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        for change in report.changes:
            new = "(found again by CMake)" if change.new is None else change.new
            print(f"{change.name}: {change.old} -> {new}")
    if not only_plan:
        print(python_swap.marker(report), file=sys.stderr if arguments.json else sys.stdout, flush=True)


def _verify(arguments: argparse.Namespace) -> None:
    python_swap.check(arguments.build_dir.absolute(), _targets(arguments))


def _restore(arguments: argparse.Namespace) -> None:
    cmake_cache.load(arguments.build_dir / cmake_cache.NAME)  # or it is no build folder at all
    undone = python_swap.recover(arguments.build_dir.absolute())
    print("-- the swap that was not finished is undone" if undone else "-- no swap was left unfinished")


def _targets(arguments: argparse.Namespace) -> frozenset[str]:
    return python_swap.PYTHON_TARGETS | set(arguments.python_target)


def _steps(arguments: argparse.Namespace) -> None:
    steps = ninja_dry_run.dry_run(arguments.build_dir, ninja=arguments.ninja, targets=arguments.targets)
    for step in steps:
        print(f"{step.target or '-'}\t{step.description}" + (f"\t({step.reason})" if step.reason else ""))
    print(f"{len(steps)} steps", file=sys.stderr)


def _get(arguments: argparse.Namespace) -> None:
    cache = cmake_cache.load(arguments.build_dir / cmake_cache.NAME)
    lines = (cache[name].value for name in arguments.names) if arguments.names else map(str, cache)
    for line in lines:
        print(line)


def _set(arguments: argparse.Namespace) -> None:
    path = arguments.build_dir / cmake_cache.NAME
    cache = cmake_cache.load(path)
    for assignment in arguments.assignments:
        cache.assign(assignment, new=arguments.new)
    cmake_cache.save(cache, path)


def _regenerate(arguments: argparse.Namespace) -> None:
    restored = cmake_regenerate.regenerate(arguments.build_dir)
    print(f"-- {restored} generated files are the same as before and keep their time stamps")


def _configure(arguments: argparse.Namespace) -> None:
    skbuild_backend.configure(arguments.tree, sys.executable)


def _wheel(arguments: argparse.Namespace) -> None:
    places = arguments.leave_out.read_text().splitlines() if arguments.leave_out else []
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

    planning = of_build("plan", _swap, "show which cache entries a swap would change, and change none")
    applying = of_build("apply", _swap, "change them, run CMake, and let ninja say what that rebuilds")
    verifying = of_build("verify", _verify, "ask whether anything but the Python side would be rebuilt now")
    of_build("restore", _restore, "undo a swap that was killed half-way; the next swap would do so too")
    for one in (planning, applying):
        one.add_argument("--python", type=Path, metavar="PATH", required=True, help="the Python to build for")
        one.add_argument("--json", action="store_true", help="print the report as JSON on stdout")
    for one in (planning, applying, verifying):
        one.add_argument(
            "--python-target",
            action="append",
            default=[],
            metavar="NAME",
            help="a further CMake target of the Python side "
            f"(known: {', '.join(sorted(python_swap.PYTHON_TARGETS))})",
        )
    steps = of_build("steps", _steps, "show what ninja would run, and why")
    steps.add_argument("targets", nargs="*", metavar="TARGET")
    steps.add_argument("--ninja", default="ninja", help="program to ask (default: ninja)")
    getting = of_build("get", _get, "print the values of cache entries, or all entries")
    getting.add_argument("names", nargs="*", metavar="NAME")
    setting = of_build("set", _set, "change cache entries, all or none")
    setting.add_argument("assignments", nargs="+", metavar="NAME[:TYPE]=VALUE")
    setting.add_argument("--new", action="store_true", help="add entries that do not exist yet")
    of_build("regenerate", _regenerate, "run CMake again; what it writes with the same content stays as old")
    configuring = command("configure", _configure, "let scikit-build-core configure a tree, and nothing else")
    packing = command("wheel", _wheel, "let scikit-build-core build, install and pack")
    for one in (configuring, packing):
        one.add_argument("tree", type=Path, help="PyTorch's sources")
    packing.add_argument("folder", type=Path, help="where the wheel goes")
    packing.add_argument(
        "--leave-out", type=Path, metavar="LIST", help="file with what to keep out of torch/, by line"
    )
    commands.add_parser("cmake", help="stand in for cmake: run it as asked, keeping dates as regenerate does")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["cmake"]:  # whose arguments are none of argparse's business
        return cmake_regenerate.instead_of_cmake(words[1:])
    arguments = _parser().parse_args(words)
    try:
        arguments.run(arguments)
    except python_swap.SwapRefused as refusal:
        print(f"cmake_python_swap: refused: {refusal}", file=sys.stderr)
        return EXIT_REFUSED
    except python_swap.UNUSABLE as error:
        print(f"cmake_python_swap: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
