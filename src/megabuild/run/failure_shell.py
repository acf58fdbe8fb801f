"""Writes two programs that reproduce a failed build: one opens a shell in its environment, one repeats the failed step.

Both enter the build's isolation and work folder; the next run removes that folder.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from groundwork import files
from groundwork.error_report import FirstError
from megabuild.engine.supervisor import Place
from megabuild.run.build_output import Culprit

ENTER = "failed-enter"
AGAIN = "failed-again"
_NAMED = re.compile(r"^export PKG_(NAME|BUILD_STRING)='?([^'\n]*)'?$", re.MULTILINE)
_ENVIRONMENT = "build_env.sh"
#: Printed by `AGAIN`.
_SUCCEEDED = "this step succeeds now. Save your edits as a patch: the next build discards edits in the tree."
#: Files that this project's recipes source in each script.
_OF_RECIPES = ("$RECIPE_DIR/build_env.sh", "$RECIPE_DIR/../common/build_env.sh")
#: Build files of ninja, relative to the tree or the work folder.
_NINJA = ("build.ninja", "*/build.ninja", "*/*/build.ninja", "*/*/*/build.ninja")


@dataclass(frozen=True, kw_only=True)
class FailureShell:
    """The paths of the programs, None for one that cannot be written."""

    enter: Path | None = None
    again: Path | None = None


def write_failure_shell(sandbox: Place, culprit: Culprit, error: FirstError | None) -> FailureShell:
    """Write the programs for a failed build.

    There is no program if the build's work folder is gone, and no `AGAIN` if no step of ninja failed or its folder is
    unknown. The attempt has removed the programs of former ones.
    """
    work = _find_work_folder(sandbox.state, culprit)
    if work is None:
        return FailureShell()
    inside = f"{sandbox.state_inside}/{work.relative_to(sandbox.state)}"
    start = [f"cd {shlex.quote(inside)}", f"source {_ENVIRONMENT}"]
    hint = "echo 'to run the failed script: bash -x conda_build.sh'"
    enter = sandbox.state / ENTER
    write_program(enter, sandbox, [*start, hint, "exec bash --norc -i"], name="enter")
    if error is None or not error.outputs:
        return FailureShell(enter=enter)
    ninja = _find_ninja_folder(sandbox.state, work, error.outputs)
    if ninja is None:
        return FailureShell(enter=enter)
    for path in _OF_RECIPES:
        start.append(f'{{ [ ! -f "{path}" ] || source "{path}"; }}')
    start.append(f"cd {shlex.quote(f'{sandbox.state_inside}/{ninja.relative_to(sandbox.state)}')}")
    success = f"echo {shlex.quote(_SUCCEEDED)}"
    again = sandbox.state / AGAIN
    write_program(again, sandbox, [*start, f"{{ {error.command}\n}}", success], name="again")
    return FailureShell(enter=enter, again=again)


def remove_programs(state: Path) -> None:
    """Remove the programs, which stop working as soon as another package is built."""
    for name in (ENTER, AGAIN):
        (state / name).unlink(missing_ok=True)


def write_program(path: Path, sandbox: Place, commands: list[str], *, name: str) -> None:
    """Write a program that runs bash commands, until one fails, in the build's isolation with a terminal."""
    isolation = sandbox.isolation
    words = ["bash", "-c", " && ".join(commands)]
    lines = ["#!/bin/sh"]
    for key, value in isolation.environment({}).items():
        if os.environ.get(key) != value:
            lines.append(f"export {key}={shlex.quote(value)}")
    lines += isolation.interactive(
        words, mounts=sandbox.mounts, cwd=sandbox.state_inside, name=f"{sandbox.name}-{name}"
    )
    text = "\n".join([*lines, ""])
    files.write(path, text, mode=0o755)  # in a folder that builds cannot write


def _find_work_folder(state: Path, culprit: Culprit) -> Path | None:
    """Return the failed script's work folder, or None if another script, which may share it, has run since."""
    folders = []
    for path in state.glob(f"out/bld/*/work/{_ENVIRONMENT}"):
        content = files.read_untrusted(path, below=state)
        if not content:
            continue
        named = dict(_NAMED.findall(content.decode(errors="replace")))
        if (named.get("NAME", ""), named.get("BUILD_STRING", "")) == (culprit.package, culprit.build_string):
            folders.append((path.stat().st_mtime_ns, path.parent))
    if not folders:
        return None
    _, latest = max(folders)
    return latest


def _find_ninja_folder(state: Path, work: Path, outputs: str) -> Path | None:
    """Return the folder whose ninja makes ``outputs``: it has a build file and the first output's folder."""
    first = outputs.split()[0]
    if first.startswith("/") or ".." in first.split("/"):
        return None
    for path in _ninja_files(state / "tree", work):
        if (path.parent / first).parent.is_dir() and not path.is_symlink():
            return path.parent
    return None


def _ninja_files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        for pattern in _NINJA:
            yield from sorted(folder.glob(pattern))
