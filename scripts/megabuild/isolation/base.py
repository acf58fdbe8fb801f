"""The interface of isolations, their exit codes, and the host without one.

A caller stops what a killed run may have left (:meth:`Isolation.stop`), starts :meth:`Isolation.command` with
:meth:`Isolation.environment` (values travel there, never in argv), stops it again, and asks :meth:`Isolation.failure`
for the error. bubblewrap ties the process to the *thread* that called Popen: start it from one that outlives it.
"""

from __future__ import annotations

import os
import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from groundwork import process
from groundwork.errors import IsolationError, MegabuildError


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder or file of the host that the build sees under another path."""

    source: Path  #: Path on the host; must exist when the build starts.
    target: str  #: Absolute path inside the isolation; the host isolation ignores it.
    writable: bool = False  #: Whether the build may write there. What it writes belongs to the calling user.


def require_sources(mounts: Iterable[Mount]) -> None:
    """Raise an IsolationError for a mount without a source or an absolute target."""
    for mount in mounts:
        if not mount.target.startswith("/") or not mount.source.exists():
            raise IsolationError(
                f"{mount.source} does not exist, or cannot be shown to the build as {mount.target}",
                "run the build again: folders that went missing are made anew",
            )


class Isolation(ABC):
    """A place in which a command can run."""

    name: str  #: ``host``, ``bubblewrap``, ``docker`` or ``podman``

    @abstractmethod
    def check(self) -> None:
        """Make sure that commands can run here; takes a few seconds at most.

        Raises IsolationError: The engine is missing, not running, too old or not permitted.
        """

    @abstractmethod
    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        """Return what to start, together with :meth:`environment`; needs no terminal.

        ``argv`` and ``cwd`` are as seen inside. ``name`` is the container's: letters, digits, ``_``, ``.`` and ``-``.
        """

    @abstractmethod
    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for the process that runs :meth:`command`, given the ``env`` passed there."""

    def path(self, target: str, source: Path) -> str:
        """Return the path of a mount as the command sees it."""
        return target

    def stop(self, name: str) -> None:  # noqa: B027  # nothing to stop where what runs inside ends with its parent
        """End and remove what a command of that name left behind."""

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        """Return the error of a command that ended because of the isolation rather than by itself, else None."""
        # by these a shell, a container engine or an init reports that nothing was started
        reasons = {126: "could not be executed", 127: "was not found"}
        if returncode not in reasons:
            return None
        return IsolationError(
            f"{self.name}: the command {reasons[returncode]} inside: {last_line(output)}",
            "where the image or root lacks a tool that the build starts, make it anew or name another",
        )


@dataclass(frozen=True, kw_only=True)
class Host(Isolation):
    """Runs commands as they are, with the caller's environment underneath."""

    name: str = "host"

    def check(self) -> None:
        """Nothing to check."""

    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        require_sources(mounts)
        return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', cwd, *argv]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, **env}

    def path(self, target: str, source: Path) -> str:
        return str(source)

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        return None


def last_line(output: str) -> str:
    """Return the last line of a program's output that is not blank."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def ask(
    name: str,
    command: Sequence[str],
    remedy: str,
    *,
    seconds: float = 5.0,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a short command of the engine ``name``; any exit code is left to the caller.

    Raises IsolationError: It does not answer in time.
    """
    done = process.run(command, timeout=seconds, environ=env)
    if done.returncode == process.TIMED_OUT:
        raise IsolationError(f"{name} did not answer within {seconds:.0f} s", remedy)
    return done


def require_version(program: str, version: str, oldest: str) -> None:
    """Raise an IsolationError for a program that is too old, or whose version cannot be read."""
    has, needs = ([int(part) for part in re.findall(r"\d+", text)[:3]] for text in (version, oldest))
    if has < needs:
        raise IsolationError(
            f"{program} {version or '(version unknown)'} is too old: {oldest} or newer is needed",
            f"install a newer {program}, or choose another engine with --engine",
        )
