"""docker and podman: one class, because they differ in a handful of options only.

There is never a terminal (``-t``), which fails without one; always an init, because a PID 1 without signal
handlers ignores Ctrl-C; and always a name, because a client that was killed leaves its container running.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from groundwork.errors import IsolationError, MegabuildError
from megabuild.isolation.base import Isolation, Mount, ask, last_line, require_sources, require_version

# docker: `run --pull`; podman: `--userns=keep-id`, `run --pull=never` and `--init` together.
_OLDEST = {"docker": "20.10", "podman": "3.0"}
_ANSWER_SECONDS = 5.0
_REMOVAL_SECONDS = 30.0
_INFO_FORMAT = {
    "docker": "{{.ServerVersion}} {{.SecurityOptions}}",
    "podman": "{{.Version.Version}} rootless={{.Host.Security.Rootless}}",
}
_REMEDY = (
    "install docker (Debian: docker.io) or podman, start its service, see what `docker info` or `podman info` says,"
    " or choose another engine with --engine"
)
_ENGINE_ERROR = 125
_SELINUX = Path("/sys/fs/selinux/enforce")
# The client reads these itself, so the container's values cannot stand in its environment; none is secret.
_CLIENT_READS = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
)
_CLIENT_READS_PREFIX = ("DOCKER_", "CONTAINER", "XDG_")


@dataclass(frozen=True, kw_only=True)
class Container(Isolation):
    """Runs each command in a container of its own, which is removed when the command ends."""

    name: str  #: The engine: ``docker`` or ``podman``.
    image: str  #: Image in which commands run.
    network: bool = True  #: Whether the command may use the network.
    #: Of an image made on this machine, which is never pulled from a registry: what to do when it is missing.
    made_here: str = ""

    @cached_property
    def _rootless(self) -> bool:
        """Whether root inside a container is an ordinary user outside; asked together with the engine's version."""
        answer = self._ask("info", "--format", _INFO_FORMAT[self.name])
        if answer.returncode != 0:
            raise IsolationError(f"{self.name} does not answer: {last_line(answer.stderr)}", _REMEDY)
        version, _, rest = answer.stdout.strip().partition(" ")
        require_version(self.name, version, _OLDEST[self.name])
        return "name=rootless" in rest or "rootless=true" in rest

    def check(self) -> None:
        """Ask the engine for its version, and for the image if that cannot be pulled."""
        _ = self._rootless
        if self.made_here and self._ask("image", "inspect", self.image).returncode != 0:
            raise IsolationError(f"{self.name} has no image {self.image}", self.made_here)

    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        """Return the engine's ``run`` command; see :meth:`environment` for how values of ``env`` travel."""
        require_sources(mounts)
        command = [self.name, "run", "--rm", "--init", "--interactive", "--name", name, "--workdir", cwd]
        # The output is ours to keep: the engine would store hours of compiler output a second time.
        command += ["--log-driver", "none", "--pull", "never" if self.made_here else "missing"]
        command += [] if self.network else ["--network", "none"]
        # Rootless podman keeps our number inside only when asked; rootless docker shows us as root. conda-forge's
        # images start as root and become the user of HOST_USER_ID by themselves.
        if self._rootless and self.name == "podman":
            command.append("--userns=keep-id")
        as_root = self._changes_user_itself or (self._rootless and self.name == "docker")
        command += ["--user", "0:0" if as_root else f"{os.getuid()}:{os.getgid()}"]
        if _selinux_enforces():
            command += ["--security-opt", "label=disable"]  # relabelling would change the user's own files
        for mount in mounts:
            command += ["--mount", _bind(mount)]
        for variable, value in self._inside(env).items():
            command += ["--env", f"{variable}={value}" if _client_reads(variable) else variable]
        return [*command, self.image, *argv]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the client's own environment plus what goes into the container by name only.

        A value on the command line would be shown to every user of the machine by ps(1).
        """
        passed = {key: value for key, value in self._inside(env).items() if not _client_reads(key)}
        return {**os.environ, **passed}

    def stop(self, name: str) -> None:
        """Kill and remove the container of that name, and wait until it is gone."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while True:
            self._ask("rm", "--force", name, seconds=_REMOVAL_SECONDS)
            filters = ["--all", "--quiet", "--filter", f"name=^{name}$"]
            listed = self._ask("ps", *filters, seconds=_REMOVAL_SECONDS)
            if listed.returncode == 0 and not listed.stdout.strip():
                return
            if time.monotonic() > deadline:
                raise IsolationError(
                    f"{self.name} does not remove the container {name}: {last_line(listed.stderr)}",
                    f"remove it with `{self.name} rm --force {name}`",
                )
            time.sleep(0.1)

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        """Recognise the engine's own errors, and a tool that the image lacks.

        Success needs another proof than exit code 0: podman may report it for a container that a signal ended.
        """
        if returncode == _ENGINE_ERROR:
            # docker adds a hint about its help behind its complaint
            lines = output.splitlines()
            complaints = [line for line in lines if line.startswith(("docker:", "Error", "podman:"))] or lines
            return IsolationError(
                f"{self.name} could not start the container: {last_line(chr(10).join(complaints))}",
                f"see what `{self.name} run --rm --init {self.image} true` says (podman's init is Debian's catatonit),"
                " or choose another engine with --engine",
            )
        if "failed to exec pid1" in last_line(output):
            returncode = 127  # podman's init ends with 1 where docker's follows the shell's custom
        return super().failure(returncode, output=output)

    def _ask(self, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
        if shutil.which(self.name) is None:
            raise IsolationError(f"{self.name} is not installed", _REMEDY)
        return ask(self.name, [self.name, *arguments], _REMEDY, seconds=seconds or _ANSWER_SECONDS)

    @property
    def _changes_user_itself(self) -> bool:
        return "condaforge/linux-anvil" in self.image

    def _inside(self, env: Mapping[str, str]) -> dict[str, str]:
        if not self._changes_user_itself:
            return {"HOME": "/tmp", **env}  # a bare number as user has no home of its own
        user = 0 if self._rootless and self.name == "docker" else os.getuid()
        return {"HOST_USER_ID": str(user), **env}


def _client_reads(variable: str) -> bool:
    return variable in _CLIENT_READS or variable.startswith(_CLIENT_READS_PREFIX)


def _bind(mount: Mount) -> str:
    """Spell a mount as one record of comma-separated values; unlike -v this makes no missing source."""
    source = str(mount.source.resolve())
    if any(mark in source + mount.target for mark in ',"\n'):
        raise IsolationError(
            f"{source} cannot be mounted: containers take no path with a comma, quote or line break in it",
            "keep the checkout and the output folder under a plainer path",
        )
    return f"type=bind,source={source},target={mount.target}" + ("" if mount.writable else ",readonly")


def _selinux_enforces() -> bool:
    try:
        return _SELINUX.read_text().strip() == "1"
    except OSError:
        return False
