"""Starts the product as users do, in the places where they have it. Imports nothing of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: Variables that a newcomer's shell does not have; tests pass their own.
_NOT_A_NEWCOMERS = ("MEGABUILD_", "PYENV", "PYTEST", "TORCH_", "CCACHE_", "UV_PYTHON")
_OF_THIS_SHELL = {
    "COLUMNS", "LINES", "NO_COLOR", "GITHUB_ACTIONS", "CI", "CPU_COUNT", "MAX_JOBS", "VIRTUAL_ENV", "PYTHONPATH",
    "PYTHONHOME", "HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
}  # fmt: skip
#: The Python that made this test's environment: what ``python3`` is on a user's machine.
BASE_PYTHON = Path(getattr(sys, "_base_executable", sys.executable)).resolve()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command gave its user."""

    exit_code: int
    output: str
    errors: str

    @property
    def text(self) -> str:
        """Output and errors."""
        return self.output + self.errors

    def succeeded(self) -> str:
        """Return the whole text; fails the test if the command failed."""
        return self.ended_with(0)

    def ended_with(self, exit_code: int) -> str:
        """Return the whole text; fails the test if the command ended with another exit code, or with a traceback."""
        shown = f"exit code {self.exit_code}\n{self.output[-6000:]}\n{self.errors[-6000:]}"
        assert self.exit_code == exit_code, shown
        assert "Traceback (most recent call last)" not in self.text, shown
        return self.text


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder in which a user types commands, with a home of their own."""

    folder: Path
    home: Path
    programs: Path  #: A folder at the front of PATH.
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, command: str, *, timeout: float = 600.0, **variables: str | Path) -> Answer:
        """Run a shell's command line without a terminal.

        ``timeout``: In seconds. ``variables``: More of the environment.
        """
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
        return Answer(exit_code=done.returncode, output=done.stdout, errors=done.stderr)

    def environment(self, **variables: str | Path) -> dict[str, str]:
        """Return the environment of this place's commands."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in _OF_THIS_SHELL and not name.startswith(_NOT_A_NEWCOMERS)
        }
        more = {name: str(value) for name, value in variables.items()}
        path = os.pathsep.join([str(self.programs), _path_of_the_system()])
        return {**kept, "HOME": str(self.home), "PATH": path, **self.variables, **more}


def make_place(folder: Path, **variables: str | Path) -> Place:
    """Make a home and a folder of programs below ``folder``, in which ``python3`` is this machine's Python."""
    home, programs = folder / "home", folder / "programs"
    home.mkdir(parents=True, exist_ok=True)
    programs.mkdir(exist_ok=True)
    for name in ("python3", "python"):
        add_program(programs, name, BASE_PYTHON)
    # Downloads of the real home: only time would be lost without them.
    real_home = Path.home()
    downloads = {
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(real_home / ".cache" / "pip")),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(real_home / ".cache" / "uv")),
    }
    given = {name: str(value) for name, value in variables.items()}
    return Place(folder=folder, home=home, programs=programs, variables={**downloads, **given})


def add_program(programs: Path, name: str, target: Path) -> None:
    """Put a program onto a place's PATH. A script, since a link would make Python search its libraries elsewhere."""
    script = programs / name
    script.write_text(f'#!/bin/sh\nexec "{target}" "$@"\n', encoding="utf-8")
    script.chmod(0o755)


def _path_of_the_system() -> str:
    """Return PATH without this test's environment and without programs of this machine's user, such as pyenv's."""
    kept: list[str] = []
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if not folder.startswith((sys.prefix, str(Path.home()))):
            kept.append(folder)
    return os.pathsep.join(kept)


def clone_with_changes(repository: Path, folder: Path) -> None:
    """Clone the repository, with the files that are changed and new in its working tree."""
    subprocess.run(["git", "clone", "--quiet", str(repository), str(folder)], check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--modified", "--others", "--exclude-standard"],
        cwd=repository, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        source, target = repository / name, folder / name
        if not os.path.lexists(source):
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
