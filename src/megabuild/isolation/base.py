"""The interface of isolations, and the host, which has none.

A caller first ends a killed run's leftovers (:meth:`Isolation.stop`). It starts :meth:`Isolation.command` with
:meth:`Isolation.environment`, which carries variables' values: argv never does. Afterwards it calls stop again, and
asks :meth:`Isolation.failure` for the error. bubblewrap ties the process to the *thread* that called Popen, so start it
from a thread that outlives it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from groundwork import process
from groundwork.errors import IsolationError, MegabuildError
from groundwork.machine import machine_platform
from megabuild.isolation import emulation
from megabuild.isolation.engine import Engine


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder or file of the host that the build sees under another path."""

    source: Path  #: Path on the host; must exist when the build starts.
    target: str  #: Absolute path inside the isolation; the host isolation ignores it.
    writable: bool = False  #: Whether the build may write there. What it writes belongs to the calling user.


class Isolation(ABC):
    """An environment in which commands run."""

    engine: Engine
    #: Whether commands see this machine's own programs, certificates and paths.
    is_host: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.engine.value

    @abstractmethod
    def check(self) -> None:
        """Check that commands can run; takes a few seconds at most.

        Raises IsolationError: The engine is missing, not running, too old or not permitted.
        """

    @abstractmethod
    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        """Return the command line to start with :meth:`environment`; it needs no terminal.

        ``argv`` and ``cwd`` are as seen inside. ``name`` is the container's: letters, digits, ``_``, ``.`` and ``-``.
        """

    @abstractmethod
    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the process that runs :meth:`command`, for the same ``env``."""

    @abstractmethod
    def interactive(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], cwd: str, name: str
    ) -> Sequence[str]:
        """Return lines of sh that run a command for a user at a terminal, with :meth:`environment`.

        Inside, it is a new terminal. In the user's own one, a leftover process of a build could type commands into the
        user's shell (TIOCSTI).
        """

    def path(self, target: str, source: Path) -> str:
        """Return the path of a mount as the command sees it."""
        return target

    def runs(self, platform: str) -> bool:
        """Return whether commands can run the programs of a platform, perhaps by emulation."""
        return platform == machine_platform() or emulation.is_registered(platform)

    def place(self, state: str) -> str:
        """Return all that objects may depend on: the system inside, and the path of the state folder there."""
        return f"{self.name}:{state}"

    def stop(self, name: str) -> None:  # noqa: B027  # by default, processes end with their parent
        """End and remove the leftovers of a command with that name."""

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        """Return the error if the isolation failed, not the command itself; else None."""
        # a shell, a container engine or an init reports with these codes that it started nothing
        reasons = {126: "could not be executed", 127: "was not found"}
        if returncode not in reasons:
            return None
        return IsolationError(
            f"{self.name}: the command {reasons[returncode]} inside: {last_line(output)}",
            "rebuild the image or root folder: it lacks a program that the build starts",
        )


@dataclass(frozen=True, kw_only=True)
class Host(Isolation):
    """Runs commands directly, with the caller's environment plus ``env``."""

    engine: Engine = Engine.HOST
    is_host: ClassVar[bool] = True

    def check(self) -> None:
        """Nothing to check."""

    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', cwd, *argv]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, **env}

    def interactive(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], cwd: str, name: str
    ) -> Sequence[str]:
        """Return a line for the user's own terminal: on the host, a build could reach it in any case."""
        command = self.command(argv, mounts=mounts, env={}, cwd=cwd, name=name)
        return [f"exec {shlex.join(command)}"]

    def path(self, target: str, source: Path) -> str:
        return str(source)

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        return None


def last_line(output: str) -> str:
    """Return the last non-blank line of a program's output."""
    for line in reversed(output.splitlines()):
        if line.strip():
            return line.strip()
    return "no message"


def ask(
    name: str,
    command: Sequence[str],
    remedy: str,
    *,
    seconds: float = 5.0,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a short command of the engine ``name``; the caller checks the exit code.

    Raises IsolationError: The command did not end in time.
    """
    done = process.run(command, timeout=seconds, environ=env)
    if done.returncode == process.TIMED_OUT:
        raise IsolationError(f"{name}: no answer within {seconds:.0f} s", remedy)
    return done


def require_version(program: str, version: str, oldest: str) -> None:
    """Raise IsolationError if a program is too old or its version is unknown."""
    if _numbers(version) < _numbers(oldest):
        raise IsolationError(
            f"{program} {version or '(unknown version)'} is too old: megabuild needs {oldest} or newer",
            f"install a newer {program}, or choose another engine with --engine",
        )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]
