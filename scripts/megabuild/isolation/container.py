"""docker and podman: one class, because they differ in a handful of options only.

There is never a terminal (``-t``), which fails without one; always an init, because a PID 1 without signal
handlers ignores Ctrl-C; and always a name, because a client that was killed leaves its container running.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from groundwork.errors import IsolationError, MegabuildError
from megabuild.isolation.base import Isolation, Mount, ask, last_line, require_sources, require_version

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
_ENGINE_ERROR = 125
_REMOVAL_SECONDS = 30.0
_SELINUX = Path("/sys/fs/selinux/enforce")
_SYSCTL = Path("/proc/sys")
# The client reads these itself, so the container's values cannot stand in its environment; none is secret.
_CLIENT_READS = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SSL_CERT_FILE"}
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
    more: tuple[str, ...] = ()  #: Further arguments of the engine's ``run``.

    @cached_property
    def _rootless(self) -> bool:
        """Whether root inside a container is an ordinary user outside; asked together with the engine's version."""
        if self.name == "docker" and "podman" in self._ask("--version").stdout:
            raise IsolationError("the program called docker is podman's stand-in", "use --engine podman")
        answer = self._ask("info", "--format", _INFO_FORMAT[self.name])
        if answer.returncode != 0:
            raise IsolationError(
                f"{self.name} does not answer: {last_line(answer.stderr)}", _START[self.name]
            )
        version, _, rest = answer.stdout.strip().partition(" ")
        require_version(self.name, version, _OLDEST[self.name])
        return "name=rootless" in rest or "rootless=true" in rest

    def check(self) -> None:
        """Ask the engine for its version, and for the image if that cannot be pulled."""
        _ = self._rootless
        if (
            self.made_here
            and self._ask("image", "inspect", "--format", "{{.Id}}", self.image).returncode != 0
        ):
            raise IsolationError(f"{self.name} has no image {self.image}", self.made_here)

    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        """Return the engine's ``run`` command; see :meth:`environment` for how values of ``env`` travel."""
        require_sources(mounts)
        command = [self.name, "run", "--rm", "--init", "--interactive", "--name", name, "--workdir", cwd]
        # The output is ours to keep: the engine would store hours of compiler output a second time.
        command += ["--log-driver", "none", "--pull", "never" if self.made_here else "missing"]
        command += self._network()
        command += self._user()
        if self.name == "podman" and sys.platform == "linux":
            command += _own_limits()
        if _selinux_enforces():
            command += ["--security-opt", "label=disable"]  # relabelling would change the user's own files
        for mount in mounts:
            command += ["--mount", _bind(mount)]
        for variable, value in self._inside(env).items():
            command += ["--env", f"{variable}={value}" if _client_reads(variable) else variable]
        return [*command, *self.more, self.image, *argv]

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
            removal = self._ask("rm", "--force", name, seconds=_REMOVAL_SECONDS)
            filters = ["--all", "--quiet", "--filter", f"name=^{name}$"]
            listed = self._ask("ps", *filters, seconds=_REMOVAL_SECONDS)
            if listed.returncode == 0 and not listed.stdout.strip():
                return
            if time.monotonic() > deadline:
                complaint = last_line(removal.stderr + listed.stderr)
                raise IsolationError(
                    f"{self.name} does not remove the container {name}: {complaint}",
                    f"remove it with `{self.name} rm --force {name}`",
                )
            time.sleep(0.1)

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        """Recognise the engine's own errors, and a tool that the image lacks.

        Success needs another proof than exit code 0: podman may report it for a container that a signal ended.
        """
        if returncode == _ENGINE_ERROR:
            remedy = f"see what `{self.name} run --rm --init {self.image} true` says, or choose another with --engine"
            if "container-init binary" in output:
                remedy = "install podman's init (Debian: apt-get install catatonit)"
            return IsolationError(
                f"{self.name} could not start the container: {_engine_message(output)}", remedy
            )
        if "failed to exec pid1" in last_line(output):
            returncode = 127  # podman's init ends with 1 where docker's follows the shell's custom
        return super().failure(returncode, output=output)

    def _ask(self, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run a short command of the engine, within the seconds that a person waits for where no others are given."""
        if shutil.which(self.name) is None:
            raise IsolationError(
                f"{self.name} is not installed",
                "install docker (Debian: docker.io) or podman (and runc or crun), or choose another with --engine",
            )
        return ask(self.name, [self.name, *arguments], _START[self.name], seconds=seconds or _ANSWER_SECONDS)

    def _network(self) -> Iterator[str]:
        """Nothing of the network when nothing is needed from it; the host's when the engine has no other.

        A docker service without iptables has no network for containers of its own.
        """
        bridges = ("network", "ls", "--quiet", "--filter", "driver=bridge")
        if not self.network:
            yield from ("--network", "none")
        elif self.name == "docker" and not self._ask(*bridges).stdout.strip():
            yield from ("--network", "host")

    def _user(self) -> Iterator[str]:
        """Let files that the build writes belong to whoever called us.

        conda-forge's images start as root and become the user of HOST_USER_ID by themselves. Rootless podman
        keeps our number inside only when asked; rootless docker shows us as root.
        """
        if self._rootless and self.name == "podman":
            yield "--userns=keep-id"
        if _changes_user_itself(self.image) or (self._rootless and self.name == "docker"):
            yield from ("--user", "0:0")
        else:
            yield from ("--user", f"{os.getuid()}:{os.getgid()}")

    def _inside(self, env: Mapping[str, str]) -> dict[str, str]:
        """Everything that the command is to find in its environment."""
        if not _changes_user_itself(self.image):
            return {"HOME": "/tmp", **env}  # a bare number as user has no home of its own
        user = 0 if self._rootless and self.name == "docker" else os.getuid()
        return {"HOST_USER_ID": str(user), **env}


def _changes_user_itself(image: str) -> bool:
    return "condaforge/linux-anvil" in image


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


def _own_limits() -> Iterator[str]:
    """Keep the caller's limits: podman asks for more than it may give where root lacks CAP_SYS_RESOURCE.

    It caps its own number of processes at the kernel's, so that the container's must not be higher either.
    """
    for name, limit, most in (
        ("nofile", resource.RLIMIT_NOFILE, _kernel_number("fs/nr_open")),
        ("nproc", resource.RLIMIT_NPROC, _kernel_number("kernel/pid_max")),
    ):
        soft, hard = (
            most if own == resource.RLIM_INFINITY else min(own, most) for own in resource.getrlimit(limit)
        )
        yield from ("--ulimit", f"{name}={soft}:{hard}")


def _kernel_number(setting: str) -> int:
    return int((_SYSCTL / setting).read_text())


def _selinux_enforces() -> bool:
    try:
        return _SELINUX.read_text().strip() == "1"
    except OSError:
        return False


def _engine_message(output: str) -> str:
    """The engine's complaint; docker adds a hint about its help behind it."""
    lines = [line for line in output.splitlines() if line.strip()]
    complaints = [line for line in lines if line.startswith(("docker:", "Error", "podman:"))]
    return last_line("\n".join(complaints or lines))
