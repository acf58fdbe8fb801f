"""What every isolation can do, and what the exit codes of a killed worker mean.

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
    error = isolation.failure(process.returncode, output=tail_of_the_log, stopped=we_stopped_it)

Standard input reaches the process, so a worker that reads it until the end notices that its driver is gone.
bubblewrap ties the process to the *thread* that called Popen: start it from one that outlives it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from megabuild.errors import IsolationError, MegabuildError, OutOfMemoryError
from megabuild.isolation.mount import Mount

_SIGKILL = 9


class Isolation(Protocol):
    """A place in which a command can run."""

    @property
    def name(self) -> str:
        """``host``, ``bubblewrap``, ``docker`` or ``podman``."""

    def check(self) -> None:
        """Make sure that commands can run here; takes a few seconds at most.

        Raises
        ------
        IsolationError
            The engine is missing, not running, too old or not permitted; its remedy says what to do.
        """

    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        """Wrap a command.

        Parameters
        ----------
        argv:
            The command as it is spelled inside.
        mounts:
            Everything of the host that the command needs to see.
        env:
            What the command finds in its environment, besides what the isolation itself provides.
        cwd:
            Folder in which the command starts, as seen inside.
        name:
            What to call the container; letters, digits, ``_``, ``.`` and ``-``.

        Returns
        -------
        list[str]
            What to start, together with :meth:`environment`. Needs no terminal.

        Raises
        ------
        IsolationError
            A mount that cannot work.
        """

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Environment for the process that runs :meth:`command`, given the ``env`` passed there."""

    def path(self, target: str, source: Path) -> str:
        """Path of a mount as the command sees it."""

    def stop(self, name: str) -> None:
        """End and remove what a command of that name left behind; does nothing when there is nothing."""

    def failure(self, returncode: int, *, output: str, stopped: bool) -> MegabuildError | None:
        """Say whether a command ended because of the isolation rather than by itself.

        Parameters
        ----------
        returncode:
            As from ``Popen.returncode``: negative when a signal killed the process.
        output:
            The last lines that the process printed.
        stopped:
            Whether we ended the process ourselves.

        Returns
        -------
        MegabuildError | None
            None when the code is the command's own.
        """


def killed(returncode: int, *, stopped: bool) -> OutOfMemoryError | None:
    """Explain a SIGKILL that we did not send: nearly always the kernel's answer to a full memory."""
    if stopped or returncode not in (-_SIGKILL, 128 + _SIGKILL):
        return None
    return OutOfMemoryError(
        "the build was killed (SIGKILL) from outside, which is what happens when memory runs out",
        "start again with fewer compile jobs (CPU_COUNT=...); finished objects and packages are kept",
    )


def last_line(output: str, default: str = "no message") -> str:
    """Last line of a program's output that says something."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else default


def not_started(returncode: int, *, program: str, output: str) -> IsolationError | None:
    """Explain the codes with which a shell, a container engine or an init says that nothing was started."""
    reasons = {126: "could not be executed", 127: "was not found"}
    if returncode not in reasons:
        return None
    return IsolationError(
        f"{program}: the command {reasons[returncode]} inside: {last_line(output)}",
        "where the image or root lacks a tool that the build starts, make it anew or name another",
    )
