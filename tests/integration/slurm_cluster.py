"""A real Slurm of three nodes on this machine, with munge; nothing of it outlives the context."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tiny import wait_for

PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client"}
_NODES = ("node1", "node2", "node3")
_READY_SECONDS = 30.0
#: A requeued job waits until its old credential has expired (120 s unless told otherwise).
_SETTINGS = """\
ClusterName=here
SlurmctldHost=localhost
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1
KillWait=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextlib.contextmanager
def cluster() -> Iterator[Mapping[str, str]]:
    """Give the environment in which Slurm's programs find a cluster of nodes with two processors each."""
    if lacking := [package for program, package in PROGRAMS.items() if shutil.which(program) is None]:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    if os.geteuid() != 0:
        pytest.skip("only root can start the daemons of Slurm")
    # not pytest's own temporary folder: a socket's path has room for about a hundred characters
    with tempfile.TemporaryDirectory(prefix="megabuild-slurm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part, mode in (("run", 0o755), ("munge", 0o700), ("state", 0o700)):
            (folder / part).mkdir(mode=mode)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        control, *ports = _free_ports(1 + len(_NODES))
        settings = folder / "slurm.conf"
        nodes = (
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=16000\n"
            for node, port in zip(_NODES, ports, strict=True)
        )
        settings.write_text("".join(nodes) + _SETTINGS.format(folder=folder, port=control))
        environment = {"SLURM_CONF": str(settings)}
        with contextlib.ExitStack() as daemons:
            _start(daemons, folder, "munged", "--foreground", f"--key-file={key}",
                   f"--socket={folder}/run/munge.socket", f"--pid-file={folder}/munge/pid",
                   f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed")  # fmt: skip
            _wait(lambda: (folder / "run" / "munge.socket").exists(), folder)
            _start(daemons, folder, "slurmctld", "-D", "-i", "-f", str(settings))
            for node in _NODES:
                _start(daemons, folder, "slurmd", "-D", "-N", node, "-f", str(settings))
            _wait(lambda: _said(environment, "sinfo", "-h", "-o", "%T %D") == f"idle {len(_NODES)}", folder)
            daemons.callback(_empty, environment)
            yield environment


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _start(daemons: contextlib.ExitStack, folder: Path, *command: str) -> None:
    with (folder / f"{command[0]}.out").open("ab") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)

    def end() -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    daemons.callback(end)


def _said(environment: Mapping[str, str], *command: str) -> str:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    return done.stdout.strip()


def _wait(ready: Callable[[], object], folder: Path) -> None:
    if not wait_for(ready, _READY_SECONDS):
        logs = [path for path in folder.iterdir() if path.suffix in (".out", ".log")]
        said = "\n".join(path.read_text(errors="replace")[-2000:] for path in logs)
        raise AssertionError(f"Slurm does not come up:\n{said}")


def _empty(environment: Mapping[str, str]) -> None:
    """End all jobs: a job's own daemon outlives slurmd."""
    _said(environment, "scancel", "--user=root")
    wait_for(lambda: not _said(environment, "squeue", "--noheader"), 20)
