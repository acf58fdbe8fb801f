"""Asking docker or podman what they are, within seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from megabuild.errors import IsolationError
from megabuild.isolation.base import last_line
from megabuild.isolation.versions import require_version

# docker: `run --pull`; podman: `--userns=keep-id`, `run --pull=never` and `--init` together.
_OLDEST = {"docker": "20.10", "podman": "3.0"}
_ANSWER_SECONDS = 5.0
_INFO_FORMAT = {
    "docker": "{{.ServerVersion}} {{.SecurityOptions}}",
    "podman": "{{.Version.Version}} rootless={{.Host.Security.Rootless}}",
}
_START = {
    "docker": "start the service (systemctl start docker, rootless: systemctl --user start docker), see "
    "that you may use it (group docker), or choose another engine with --engine",
    "podman": "see what `podman info` says, or choose another engine with --engine",
}


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """What decides how a container is started.

    Parameters
    ----------
    version:
        Of the service (docker) or the program (podman).
    rootless:
        Whether root inside a container is an ordinary user outside.
    """

    version: str
    rootless: bool


def probe(engine: str) -> EngineFacts:
    """Ask an engine for its version and kind.

    Parameters
    ----------
    engine:
        ``docker`` or ``podman``.

    Raises
    ------
    IsolationError
        Not installed, not running, not permitted, too old, or another program under that name.
    """
    if engine == "docker" and "podman" in ask("docker", ["--version"]).stdout:
        raise IsolationError("the program called docker is podman's stand-in", "use --engine podman")
    answer = ask(engine, ["info", "--format", _INFO_FORMAT[engine]])
    if answer.returncode != 0:
        raise IsolationError(f"{engine} does not answer: {last_line(answer.stderr)}", _START[engine])
    version, _, rest = answer.stdout.strip().partition(" ")
    require_version(engine, version, _OLDEST[engine])
    return EngineFacts(version=version, rootless="name=rootless" in rest or "rootless=true" in rest)


def has_image(engine: str, image: str) -> bool:
    """Whether an image is on this machine already."""
    return ask(engine, ["image", "inspect", "--format", "{{.Id}}", image]).returncode == 0


def has_bridge(engine: str) -> bool:
    """Whether containers can have a network of their own; a docker service without iptables has none."""
    if engine != "docker":
        return True
    return bool(ask(engine, ["network", "ls", "--quiet", "--filter", "driver=bridge"]).stdout.strip())


def ask(
    engine: str, arguments: Sequence[str], *, seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a short command of the engine.

    Parameters
    ----------
    engine:
        ``docker`` or ``podman``.
    arguments:
        What follows the program's name.
    seconds:
        How long to wait for it; None: as long as a question may take that a person waits for.

    Raises
    ------
    IsolationError
        The program is missing or does not answer in time; any exit code is left to the caller.
    """
    limit = _ANSWER_SECONDS if seconds is None else seconds
    if shutil.which(engine) is None:
        raise IsolationError(
            f"{engine} is not installed",
            "install docker (Debian: docker.io) or podman (and runc or crun), or choose another with --engine",
        )
    try:
        return subprocess.run(
            [engine, *arguments],
            check=False,
            env=dict(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        raise IsolationError(f"{engine} did not answer within {limit:.0f} s", _START[engine]) from None
