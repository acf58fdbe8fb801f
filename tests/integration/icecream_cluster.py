"""A real icecream with machines that are network namespaces of this one; nothing of it outlives the context."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from groundwork.errors import PreflightError
from megabuild.plan.distribution import Workers, find_workers

PROGRAMS = {"icecc-scheduler": "icecc", "iceccd": "icecc", "ip": "iproute2", "unshare": "util-linux"}
_READY_SECONDS = 120.0
#: A machine that is busy takes no work, and all of these are this one, which is: to them it always looks as now. How
#: much of it icecream takes is then up to the number of compiles for each.
_DAEMON = 'mkdir -p /run/icecc && mount --bind "$0/run" /run/icecc && mount --bind "$0/../stat" /proc/stat && exec "$@"'
#: Other machines have no compiler of their own that works.
_NO_COMPILER = """\
for it in g++ "$(g++ -print-prog-name=cc1plus)"; do
    mount --bind /bin/false "$(readlink -f "$(command -v "$it")")"
done
"""


@dataclass
class Machine:
    """A machine's daemon; the first one's compiles are given to the others."""

    folder: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End the daemon, and the compilers that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


@dataclass
class Cluster:
    """Machines that run."""

    scheduler: str
    machines: list[Machine] = field(default_factory=list)

    def at_first(self, command: Sequence[str | Path]) -> list[str]:
        """Return a command that runs on the first machine, which has this one's network."""
        run = self.machines[0].folder / "run"
        script = 'mkdir -p /run/icecc && mount --bind "$0" /run/icecc && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, str(run), *map(str, command)]

    def workers(self) -> Workers:
        """Return the machines that take compiles; none while there are none."""
        try:
            return find_workers(self.scheduler)
        except PreflightError:
            return Workers()


@contextlib.contextmanager
def cluster(workers: int = 2) -> Iterator[Cluster]:
    """Start a scheduler, and a daemon on the first machine and on so many others, which take one compile each."""
    if lacking := {package for program, package in PROGRAMS.items() if shutil.which(program) is None}:
        pytest.skip(f"not installed: {', '.join(sorted(lacking))}")
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    with contextlib.ExitStack() as left, tempfile.TemporaryDirectory(prefix="megabuild-icecream-") as name:
        top = Path(name)
        top.chmod(0o755)
        shutil.copyfile("/proc/stat", top / "stat")
        mark, port = os.getpid() % 200, _free_port()
        bridge, net = f"icecc{mark}", f"10.211.{mark}"
        for step in (("add", bridge, "type", "bridge"), ("set", bridge, "up")):
            if _ip("link", *step).returncode:
                pytest.skip("no network can be made here")
        left.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{net}.1/24", "dev", bridge)
        scheduler = Machine(top, _start([], ["icecc-scheduler", "-p", str(port)], top / "scheduler.log"))
        left.callback(scheduler.kill)
        # A daemon that finds none asks again after a while. The port is the one for people: on its other one, the
        # scheduler would wait half a minute for what this one has to say.
        _wait_for(net, port + 1)
        made = Cluster(f"{net}.1:{port}")
        for number in range(workers + 1):
            space = _namespace(left, bridge, f"{net}.{number + 2}", number) if number else []
            folder = top / f"machine{number}"
            for part in ("run", "environments"):
                (folder / part).mkdir(parents=True)
                shutil.chown(folder / part, "icecc")
            daemon = [
                "iceccd",
                "-s",
                made.scheduler,
                "-b",
                str(folder / "environments"),
                "-N",
                f"machine{number}",
            ]
            daemon += ["-m", "1"] if number else ["-m", "1", "--no-remote"]
            script = _NO_COMPILER * bool(number) + _DAEMON
            command = ["unshare", "--mount", "sh", "-c", script, str(folder), *daemon]
            made.machines.append(Machine(folder, _start(space, command, folder / "log")))
            left.callback(made.machines[-1].kill)
        end = time.monotonic() + _READY_SECONDS
        while made.workers().machines < workers:
            if time.monotonic() > end:
                logs = "\n".join(path.read_text() for path in top.glob("*/log"))
                pytest.fail(f"icecream did not start:\n{logs}")
            time.sleep(0.5)
        yield made


def _wait_for(net: str, port: int) -> None:
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex((f"{net}.1", port)) == 0:
                return
        time.sleep(0.1)


def _namespace(left: contextlib.ExitStack, bridge: str, address: str, number: int) -> list[str]:
    """Make a network namespace with an address, and return what runs a command in it."""
    space, outside = f"{bridge}n{number}", f"{bridge}v{number}"
    _ip("netns", "add", space)
    left.callback(_ip, "netns", "del", space)
    _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
    _ip("link", "set", outside, "master", bridge, "up")
    for step in (
        ("addr", "add", f"{address}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("link", "set", "lo", "up"),
    ):
        _ip("-n", space, *step)
    return ["ip", "netns", "exec", space]


def _ip(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ip", *words], capture_output=True, check=False)


def _start(space: list[str], command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen([*space, *command], stdout=file, stderr=file, start_new_session=True)


def _free_port() -> int:
    """Return a free port with a free one above it."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("", 0))
            port = int(first.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("", port + 1))
                return port
