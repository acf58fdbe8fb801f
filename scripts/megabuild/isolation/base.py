"""The interface of isolations, their exit codes, and the host without one.

How a caller starts something in an isolation::

    isolation.check()
    isolation.stop(name)                     # what a run that was killed may have left
    process = subprocess.Popen(
        isolation.command(argv, mounts=mounts, env=env, cwd=cwd, name=name),
        env=isolation.environment(env),      # not os.environ: values travel here, never in argv
        stdin=..., stdout=..., stderr=..., start_new_session=True,
    )
    ...
    isolation.stop(name)                     # also when the process was killed
    error = isolation.failure(process.returncode, output=tail_of_the_log)

Standard input reaches the process, so a worker that reads it until the end notices that its driver is gone.
bubblewrap ties the process to the *thread* that called Popen: start it from one that outlives it.
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
    """A folder or file of the host and the place where the build sees it."""

    source: Path  #: Path on the host; must exist when the build starts.
    target: str  #: Absolute path inside the isolation; the host isolation ignores it.
    writable: bool = False  #: Whether the build may write there. What it writes belongs to the calling user.


def require_sources(mounts: Iterable[Mount]) -> None:
    """Raise an IsolationError for a mount without a source or an absolute target.

    docker would otherwise name the daemon's view of the problem, bubblewrap an errno.
    """
    for mount in mounts:
        if not mount.target.startswith("/"):
            raise IsolationError(f"mount target {mount.target!r} is not an absolute path")
        if not mount.source.exists():
            raise IsolationError(
                f"{mount.source} does not exist, so it cannot be shown to the build as {mount.target}",
                "run the build again: folders that went missing are made anew",
            )


class Isolation(ABC):
    """A place in which a command can run."""

    name: str  #: ``host``, ``bubblewrap``, ``docker`` or ``podman``

    @abstractmethod
    def check(self) -> None:
        """Make sure that commands can run here; takes a few seconds at most.

        Raises IsolationError: The engine is missing, not running, too old or not permitted; its remedy says what to
            do.
        """

    @abstractmethod
    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        """Return what to start, together with :meth:`environment`; needs no terminal.

        ``argv`` and ``cwd`` are as seen inside, where the command sees ``mounts`` of the host and ``env`` besides what
        the isolation itself provides. ``name`` is the container's: letters, digits, ``_``, ``.`` and ``-``.

        Raises IsolationError: A mount that cannot work.
        """

    @abstractmethod
    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Environment for the process that runs :meth:`command`, given the ``env`` passed there."""

    def path(self, target: str, source: Path) -> str:
        """Path of a mount as the command sees it."""
        return target

    def stop(self, name: str) -> None:  # noqa: B027  # nothing to stop where what runs inside ends with its parent
        """End and remove what a command of that name left behind."""

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        """Return the error of a command that ended because of the isolation rather than by itself, else None.

        The code is as from ``Popen.returncode``, the output the last lines that the process printed.
        """
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
        """Return the command behind a shell that changes to ``cwd``; mounts are where they are."""
        require_sources(mounts)
        return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', cwd, *argv]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the caller's environment with ``env`` on top."""
        return {**os.environ, **env}

    def path(self, target: str, source: Path) -> str:
        return str(source)

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        """Return None: there is nothing between the worker and us."""
        return None


def last_line(output: str, default: str = "no message") -> str:
    """Return the last line of a program's output that is not blank."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else default


def ask(
    name: str, command: Sequence[str], remedy: str, *, seconds: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a short command of the engine ``name``; any exit code is left to the caller.

    Raises IsolationError: It does not answer in time; ``remedy`` is the error's.
    """
    done = process.run(command, timeout=seconds, environ=env)
    if done.returncode == process.TIMED_OUT:
        raise IsolationError(f"{name} did not answer within {seconds:.0f} s", remedy)
    return done


def require_version(program: str, version: str, oldest: str) -> None:
    """Refuse a program older than the oldest supported version, or whose version cannot be read.

    Raises IsolationError: It is refused.
    """
    if _numbers(version) < _numbers(oldest):
        raise IsolationError(
            f"{program} {version or '(version unknown)'} is too old: {oldest} or newer is needed",
            f"install a newer {program}, or choose another engine with --engine",
        )


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()
