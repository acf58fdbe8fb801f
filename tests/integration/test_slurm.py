"""contrib/slurm/build.sh on a real Slurm of three nodes on this machine; a stub stands in for the builds."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


_SECONDS = 90.0


@pytest.fixture(scope="module")
def slurm() -> Iterator[Mapping[str, str]]:
    """Environment in which Slurm's programs find a cluster of nodes with two processors each, and munge."""
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


@dataclass
class Submission:
    """A checkout whose builds a test controls."""

    checkout: Path
    slurm: Mapping[str, str]

    def end(self, name: str, *codes: int) -> None:
        """Say how a build ends, turn by turn."""
        (self.checkout / "codes" / name).write_text(" ".join(map(str, codes)))

    def submit(self, **settings: str) -> None:
        """Run the script."""
        asked = {"CONFIG": "config", "PYTHONS": "3.13 3.11 3.12", "OPTIONS": "--rehearse", "MINUTES": "2",
                 "CPUS": "1", "MEMORY": "100M", "REQUEUES": "1", **settings}  # fmt: skip
        script = Path(__file__).parents[2] / "contrib" / "slurm" / "build.sh"
        environ = {**os.environ, **self.slurm, **asked}
        subprocess.run(["bash", script], cwd=self.checkout, env=environ, check=True)

    def wait(self, *, for_calls: int | None = None) -> None:
        """Wait until all jobs have left the queue, or for so many builds to begin."""
        asked = (lambda: not self.queue()) if for_calls is None else (lambda: len(self.calls()) == for_calls)
        assert wait_for(asked, _SECONDS), self.queue()

    def queue(self) -> str:
        return _said(self.slurm, "squeue", "--noheader")

    def calls(self) -> list[dict[str, object]]:
        """Return how builds were called, in order."""
        noted = self.checkout / "calls"
        return [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []


@pytest.fixture
def submission(
    slurm: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Submission]:
    for name in ("MEGABUILD_STORE", "MEGABUILD_STORE_WRITES", "CPU_COUNT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "codes").mkdir()
    shutil.copy(Path(__file__).with_name("stub_build.py"), tmp_path / "build-locally.py")
    yield Submission(tmp_path, slurm)
    _empty(slurm)


def test_each_build_begins_after_those_that_it_needs_and_a_deadline_is_continued(
    submission: Submission,
) -> None:
    submission.end("py3.13", 28, 0)
    waits = submission.checkout / "codes" / "py3.12.wait"
    waits.touch()
    submission.submit()
    submission.wait(for_calls=4)
    time.sleep(2)
    assert len(submission.calls()) == 4, "the last job waits for every Python"
    waits.unlink()
    submission.wait()
    calls = submission.calls()
    names = [call["name"] for call in calls]
    assert names[:2] == ["py3.13", "py3.13"]
    assert sorted(map(str, names[2:4])) == ["py3.11", "py3.12"]
    assert names[4:] == ["output"]
    output = submission.checkout / "output"
    for call in calls:
        assert call["environment"] == {
            "CPU_COUNT": "1", "MEGABUILD_STORE": f"{output}/store", "MEGABUILD_STORE_WRITES": "1",
        }  # fmt: skip
    libtorch = f"config -p 3.13 --pyg none --remove-trees --output {output}/slurm/py3.13".split()
    assert calls[0]["words"] == [*libtorch, "--rehearse", "--deadline", "108s"]
    assert calls[-1]["words"] == ["config", "--output", str(output), "--rehearse", "--deadline", "108s"]
    (log,) = output.glob("slurm/config-libtorch-*.log")
    assert "ended with 28" in log.read_text()
    assert log.read_text().rstrip().endswith("ended with 0")


@pytest.mark.parametrize(("codes", "begun"), [((28, 28, 0), 2), ((8,), 1)])
def test_without_libtorch_no_other_job_begins(
    submission: Submission, codes: tuple[int, ...], begun: int
) -> None:
    submission.end("py3.13", *codes)
    submission.submit()
    submission.wait()
    assert [call["name"] for call in submission.calls()] == ["py3.13"] * begun
