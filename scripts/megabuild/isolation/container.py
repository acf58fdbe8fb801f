"""docker and podman: one class, because they differ in a few options only.

No command gets a terminal: ``-t`` fails if the caller has none. Every command gets an init, because PID 1 without
signal handlers ignores Ctrl-C. Every container gets a name, because a killed client leaves its container running.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from groundwork.errors import IsolationError, MegabuildError
from megabuild.isolation.base import Isolation, Mount, ask, last_line, require_version

# docker: `run --pull`; podman: `--userns=keep-id`, `run --pull=never` and `--init` together.
_OLDEST = {"docker": "20.10", "podman": "3.0"}
_ANSWER_SECONDS = 5.0
_REMOVAL_SECONDS = 30.0
_INFO_FORMAT = {
    "docker": "{{.ServerVersion}} {{.SecurityOptions}}",
    "podman": "{{.Version.Version}} rootless={{.Host.Security.Rootless}}",
}
_REMEDY = (
    "install and start docker (Debian: docker.io) or podman, check it with `docker info` or `podman info`,"
    " or choose another engine with --engine"
)
_ENGINE_ERROR, _NOT_RUN = 125, 126
#: podman sets higher limits than the caller's, which a container around it may forbid.
_LIMITS = '[containers] default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]'
#: An error of the OCI runtime itself, such as a limit that it may not set; not a program that the image lacks.
_RUNTIME_ERROR = re.compile(r"^(?!.*\bexec: ).*(?:\b(?:runc|crun)\b|OCI)")
_SELINUX = Path("/sys/fs/selinux/enforce")
# The client itself reads these, so the container's values go on the command line; none is secret.
_CLIENT_READS = (
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SSL_CERT_FILE"
)  # fmt: skip
_CLIENT_READS_PREFIX = ("DOCKER_", "CONTAINER", "XDG_")


@dataclass(frozen=True, kw_only=True)
class Container(Isolation):
    """Runs each command in a new container, which is removed when the command ends."""

    name: str  #: The engine: ``docker`` or ``podman``.
    image: str  #: Image in which commands run.
    network: bool = True  #: Whether the command may use the network.
    #: Hint if the image is missing. Set only for images built on this machine, which are never pulled.
    made_here: str = ""

    @cached_property
    def _rootless(self) -> bool:
        """Whether root inside a container is an ordinary user outside; also checks the engine's version."""
        answer = self._ask("info", "--format", _INFO_FORMAT[self.name])
        if answer.returncode != 0:
            raise IsolationError(f"{self.name}: cannot be reached: {last_line(answer.stderr)}", _REMEDY)
        version, _, security = answer.stdout.strip().partition(" ")
        require_version(self.name, version, _OLDEST[self.name])
        return "name=rootless" in security or "rootless=true" in security

    def check(self) -> None:
        """Check the engine's version, and that an image built on this machine exists."""
        _ = self._rootless
        if self.made_here and self._ask("image", "inspect", self.image).returncode != 0:
            raise IsolationError(f"{self.name}: image {self.image} not found", self.made_here)

    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        """Return the engine's ``run`` command; :meth:`environment` carries the values of ``env``."""
        return self._command(argv, mounts, env, cwd, name, terminal=())

    def interactive(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], cwd: str, name: str
    ) -> Sequence[str]:
        """Return a line with the engine's own terminal."""
        return [f"exec {shlex.join(self._command(argv, mounts, {}, cwd, name, terminal=('--tty',)))}"]

    def _command(
        self,
        argv: Sequence[str],
        mounts: Sequence[Mount],
        env: Mapping[str, str],
        cwd: str,
        name: str,
        *,
        terminal: Sequence[str],
    ) -> list[str]:
        command = [self.name, "run", "--rm", "--init", *terminal, "--interactive"]
        command += ["--name", name, "--workdir", cwd]
        # megabuild keeps the output; the engine would store hours of compiler output a second time.
        command += ["--log-driver", "none", "--pull", "never" if self.made_here else "missing"]
        command += [] if self.network else ["--network", "none"]
        # Rootless podman keeps the user's id inside only with keep-id; rootless docker shows the user as root.
        # conda-forge's images start as root and switch to HOST_USER_ID themselves.
        if self._rootless and self.name == "podman":
            command.append("--userns=keep-id")
        as_root = self._changes_user_itself or (self._rootless and self.name == "docker")
        command += ["--user", "0:0" if as_root else f"{os.getuid()}:{os.getgid()}"]
        if _SELINUX.is_file() and _SELINUX.read_text().strip() == "1":
            command += ["--security-opt", "label=disable"]  # relabelling would change the user's own files
        for mount in mounts:
            command += ["--mount", _bind(mount)]
        for variable, value in self._inside(env).items():
            command += ["--env", f"{variable}={value}" if _client_reads(variable) else variable]
        return [*command, self.image, *argv]

    def place(self, state: str) -> str:
        """Return also the image: compilers and libraries may be its own."""
        return f"{super().place(state)} {self.image}"

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the client's environment plus the variables that the command line only names.

        ps(1) would show values on the command line to every user of the machine.
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
                    f"{self.name}: container {name} cannot be removed: {last_line(listed.stderr)}",
                    f"run: {self.name} rm --force {name}",
                )
            time.sleep(0.1)

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        """Recognise the engine's own errors, and a program missing from the image.

        Exit code 0 does not prove success: podman may report it for a container that a signal ended.
        """
        if returncode == _ENGINE_ERROR or (
            returncode == _NOT_RUN and _RUNTIME_ERROR.search(last_line(output))
        ):
            # docker prints a hint about its help after the error
            lines = output.splitlines()
            complaints = [line for line in lines if line.startswith(("docker:", "Error", "podman:"))] or lines
            return IsolationError(
                f"{self.name}: cannot start the container: {last_line(chr(10).join(complaints))}",
                f"run `{self.name} run --rm --init {self.image} true` to see why (podman needs catatonit for --init;"
                f" if it may not raise limits, put {_LIMITS} into containers.conf),"
                " or choose another engine with --engine",
            )
        if "failed to exec pid1" in last_line(output):
            returncode = 127  # podman's init exits with 1, docker's with the shell's code
        return super().failure(returncode, output=output)

    def _ask(self, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
        if shutil.which(self.name) is None:
            raise IsolationError(f"{self.name}: not installed", _REMEDY)
        return ask(self.name, [self.name, *arguments], _REMEDY, seconds=seconds or _ANSWER_SECONDS)

    @property
    def _changes_user_itself(self) -> bool:
        return "condaforge/linux-anvil" in self.image

    def _inside(self, env: Mapping[str, str]) -> dict[str, str]:
        if not self._changes_user_itself:
            return {"HOME": "/tmp", **env}  # a user id without an account has no home
        user = 0 if self._rootless and self.name == "docker" else os.getuid()
        return {"HOST_USER_ID": str(user), **env}


def _client_reads(variable: str) -> bool:
    return variable in _CLIENT_READS or variable.startswith(_CLIENT_READS_PREFIX)


def _bind(mount: Mount) -> str:
    """Return a mount as ``--mount`` takes it, which unlike -v does not create a missing source."""
    source = str(mount.source.resolve())
    if any(mark in source + mount.target for mark in ',"\n'):
        raise IsolationError(
            f"{source}: cannot be mounted in a container: its path contains a comma, quote or line break",
            "move the checkout or the output folder to a path without these characters",
        )
    return f"type=bind,source={source},target={mount.target}" + ("" if mount.writable else ",readonly")
