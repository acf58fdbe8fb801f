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
from megabuild.isolation.engine import Engine

# docker: `run --pull`; podman: `--userns=keep-id`, `run --pull=never` and `--init` together.
_OLDEST = {Engine.DOCKER: "20.10", Engine.PODMAN: "3.0"}
_ANSWER_SECONDS = 5.0
_REMOVAL_SECONDS = 30.0
_INFO_FORMAT = {
    Engine.DOCKER: "{{.ServerVersion}} {{.SecurityOptions}}",
    Engine.PODMAN: "{{.Version.Version}} rootless={{.Host.Security.Rootless}}",
}
_REMEDY = (
    "install and start docker (Debian: docker.io) or podman, check it with `docker info` or `podman info`,"
    " or choose another engine with --engine"
)
_ENGINE_ERROR = 125
_NOT_RUN = 126
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

    engine: Engine  #: docker or podman
    image: str  #: Image in which commands run.
    network: bool = True  #: Whether the command may use the network.
    #: Hint if the image is missing. Set only for images built on this machine, which are never pulled.
    made_here: str = ""

    @cached_property
    def _rootless(self) -> bool:
        """Whether root inside a container is an ordinary user outside; also checks the engine's version."""
        answer = self._ask("info", "--format", _INFO_FORMAT[self.engine])
        if answer.returncode != 0:
            raise IsolationError(f"{self.name}: cannot be reached: {last_line(answer.stderr)}", _REMEDY)
        version, _, security = answer.stdout.strip().partition(" ")
        require_version(self.name, version, _OLDEST[self.engine])
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
        command = self._command(argv, mounts, {}, cwd, name, terminal=("--tty",))
        return [f"exec {shlex.join(command)}"]

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
        command += ["--log-driver", "none"]
        command += ["--pull", "never" if self.made_here else "missing"]
        if not self.network:
            command += ["--network", "none"]
        command += self._user_options()
        if _enforces_selinux():
            command += ["--security-opt", "label=disable"]  # relabelling would change the user's own files
        for mount in mounts:
            command += ["--mount", _bind(mount)]
        for variable, value in self._inside(env).items():
            if _client_reads(variable):
                command += ["--env", f"{variable}={value}"]
            else:
                command += ["--env", variable]
        return [*command, self.image, *argv]

    def _user_options(self) -> list[str]:
        """Return the options that keep the user's id inside; conda-forge's images change to it themselves."""
        user = f"{os.getuid()}:{os.getgid()}"
        if self._changes_user_itself or self._shows_user_as_root:
            user = "0:0"
        options = ["--user", user]
        if self._rootless and self.engine is Engine.PODMAN:
            options.append("--userns=keep-id")
        return options

    def place(self, state: str) -> str:
        """Return also the image: compilers and libraries may be its own."""
        return f"{super().place(state)} {self.image}"

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the client's environment plus the variables that the command line only names.

        ps(1) would show values on the command line to every user of the machine.
        """
        environment = dict(os.environ)
        for variable, value in self._inside(env).items():
            if not _client_reads(variable):
                environment[variable] = value
        return environment

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
        not_run = returncode == _NOT_RUN and _RUNTIME_ERROR.search(last_line(output))
        if returncode == _ENGINE_ERROR or not_run:
            return IsolationError(
                f"{self.name}: cannot start the container: {_complaint(output)}",
                f"run `{self.name} run --rm --init {self.image} true` to see why (podman needs catatonit for --init;"
                f" if it may not raise limits, put {_LIMITS} into containers.conf),"
                " or choose another engine with --engine",
            )
        if "failed to exec pid1" in last_line(output):
            returncode = 127  # podman's init exits with 1, docker's with the shell's code
        return super().failure(returncode, output=output)

    def _ask(self, *arguments: str, seconds: float = _ANSWER_SECONDS) -> subprocess.CompletedProcess[str]:
        if shutil.which(self.name) is None:
            raise IsolationError(f"{self.name}: not installed", _REMEDY)
        return ask(self.name, [self.name, *arguments], _REMEDY, seconds=seconds)

    @property
    def _changes_user_itself(self) -> bool:
        return "condaforge/linux-anvil" in self.image

    @property
    def _shows_user_as_root(self) -> bool:
        return self._rootless and self.engine is Engine.DOCKER

    def _inside(self, env: Mapping[str, str]) -> dict[str, str]:
        if not self._changes_user_itself:
            return {"HOME": "/tmp", **env}  # a user id without an account has no home
        user = 0 if self._shows_user_as_root else os.getuid()
        return {"HOST_USER_ID": str(user), **env}


def _complaint(output: str) -> str:
    """Return an engine's error: docker prints a hint about its help after it."""
    for line in reversed(output.splitlines()):
        if line.startswith(("docker:", "Error", "podman:")):
            return line.strip()
    return last_line(output)


def _enforces_selinux() -> bool:
    return _SELINUX.is_file() and _SELINUX.read_text().strip() == "1"


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
    option = f"type=bind,source={source},target={mount.target}"
    if mount.writable:
        return option
    return f"{option},readonly"
