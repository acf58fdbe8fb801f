"""Jobs in a real Slurm of three nodes; a stub stands in for the builds themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from slurm_cluster import cluster

from command_line.run_command import Invocation
from command_line.status import show
from groundwork.errors import BusyError, PreflightError
from megabuild.cluster.jobs import graph
from megabuild.cluster.slurm import Run, Wanted, submit
from megabuild.cluster.standing import ClusterRun, lines, standing

PYTHONS = ("3.11", "3.12", "3.13")
_SECONDS = 90.0


@pytest.fixture(scope="module")
def slurm() -> Iterator[Mapping[str, str]]:
    with cluster() as environment:
        yield environment


@dataclass
class Submission:
    """A run whose builds a test controls."""

    folder: Path
    run: Run

    def turns(self, name: str, *codes: int) -> None:
        """Say how a build ends, turn by turn; without, it waits until that is said."""
        told = self.folder / "turns" / name
        told.parent.mkdir(exist_ok=True)
        waits = told.with_name(f"{name}.wait")
        if not codes:
            waits.touch()
            return
        told.write_text(" ".join(map(str, codes)))
        waits.unlink(missing_ok=True)

    def submit(self) -> None:
        """Submit its jobs."""
        submit(self.run, self.folder)

    def until(self, **wanted: str) -> ClusterRun:
        """Wait until jobs stand so; one that runs has shown how far it is."""
        for _ in range(int(_SECONDS)):
            now = standing(self.run.output, self.run.name)
            stands = {
                job.name.partition(" +")[0]: job.standing
                for job in now.jobs
                if job.done or job.standing != "running"
            }
            if all(stands.get(name.replace("_", " 3.")) == value for name, value in wanted.items()):
                return now
            time.sleep(1)
        raise AssertionError("\n".join(lines(now)))

    def calls(self) -> list[dict[str, object]]:
        """Return how builds were called, in order."""
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def made(slurm: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Submission]:
    for name in ("MEGABUILD_STORE", "MEGABUILD_STORE_WRITES", "CPU_COUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    output = tmp_path / "output"
    yield Submission(
        folder=tmp_path,
        run=Run(
            name="config-rehearsal",
            output=output,
            jobs=graph(output, "config-rehearsal", PYTHONS, base="3.13", extensions=False, torch=["--rehearse"]),
            build=(sys.executable, str(Path(__file__).with_name("stub_build.py")), str(tmp_path), "config-rehearsal"),
            wanted=Wanted(seconds=120, cpus=2, memory="100M", partition="", requeues=2),
        ),
    )  # fmt: skip
    monkeypatch.undo()
    subprocess.run(["scancel", "--user=root"], env={**os.environ, **slurm}, check=True)


def notes(run: ClusterRun) -> dict[str, str]:
    return {job.name: job.note for job in run.jobs}


def squeue() -> str:
    return subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=True).stdout


def test_each_begins_after_those_that_it_needs_and_status_says_so(made: Submission) -> None:
    for name in ("py3.13", "py3.12"):
        made.turns(name)
    made.submit()
    now = made.until(libtorch="running", pytorch_11="waiting", pytorch_12="waiting", collect="waiting")
    assert notes(now) == {
        "libtorch + py3.13": "34 %, 2:10 min left",
        "pytorch 3.11": "after libtorch + py3.13",
        "pytorch 3.12": "after libtorch + py3.13",
        "collect": "after pytorch 3.11, pytorch 3.12",
    }
    assert now.jobs[0].done == 0.34
    made.turns("py3.13", 0)
    now = made.until(libtorch="done", pytorch_11="done", pytorch_12="running", collect="waiting")
    assert notes(now)["collect"] == "after pytorch 3.12"
    made.turns("py3.12", 0)
    now = made.until(collect="done")
    assert lines(now)[0] == "config-rehearsal: on Slurm, 4 of 4 jobs done"
    calls = made.calls()
    assert [call["name"] for call in calls][::3] == ["py3.13", "output"]
    assert {str(call["name"]) for call in calls[1:3]} == {"py3.11", "py3.12"}
    for call in calls:
        assert call["environment"] == {
            "CPU_COUNT": "2",
            "MEGABUILD_STORE": f"{made.run.output}/store",
            "MEGABUILD_STORE_WRITES": "1",
        }
        words = call["words"]
        assert isinstance(words, list)
        assert words[0] == "--rehearse"
        assert words[-2:] == ["--deadline", "108s"]


def test_what_needs_a_failed_job_is_blocked_and_leaves_the_queue(made: Submission) -> None:
    made.turns("py3.12", 8)
    made.submit()
    now = made.until(pytorch_11="done", pytorch_12="failed", collect="blocked")
    assert notes(now)["pytorch 3.12"] == "with exit code 8"
    assert notes(now)["collect"] == "by pytorch 3.12"
    assert (now.ended, now.exit_code) == (True, 8)
    made.until(collect="blocked")
    for _ in range(30):  # Slurm cancels what can never begin
        if not squeue():
            break
        time.sleep(1)
    assert not squeue()
    assert made.until(collect="blocked").jobs[-1].exit_code is None
    said = "\n".join(lines(now))
    assert (
        "this turn ends with 8"
        in Path(next(job.log for job in now.jobs if job.standing == "failed")).read_text()
    )
    assert "submit again to go on" in said
    made.submit()
    assert made.until(collect="done").exit_code == 0


def test_without_libtorch_nothing_begins(made: Submission) -> None:
    made.turns("py3.13", 13)
    made.submit()
    now = made.until(libtorch="failed", pytorch_11="blocked", pytorch_12="blocked", collect="blocked")
    assert notes(now)["pytorch 3.11"] == "by libtorch + py3.13"
    assert len(made.calls()) == 1


def test_one_that_the_deadline_ended_is_requeued_and_others_wait_for_it(made: Submission) -> None:
    made.turns("py3.13", 28, 0)
    made.submit()
    now = made.until(libtorch="requeued", pytorch_11="waiting", collect="waiting")
    assert not now.ended
    now = made.until(libtorch="done", collect="done")
    log = Path(now.jobs[0].log).read_text()
    assert "this turn ends with 28" in log
    assert log.rstrip().endswith("this turn ends with 0"), "one log for all turns"


def test_one_that_is_never_done_in_time_fails_in_the_end(made: Submission) -> None:
    made.run = replace(made.run, wanted=replace(made.run.wanted, requeues=1))
    made.turns("py3.13", 28, 28, 0)
    made.submit()
    assert made.until(libtorch="failed", collect="blocked").exit_code == 28
    assert len(made.calls()) == 2


def test_one_that_was_cancelled_blocks_others(made: Submission) -> None:
    made.turns("py3.13")
    made.submit()
    now = made.until(libtorch="running")
    subprocess.run(["scancel", now.jobs[0].id], check=True)
    now = made.until(libtorch="failed", collect="blocked")
    assert "cancelled" in notes(now)["libtorch + py3.13"]
    assert now.exit_code == 23


def test_without_slurm_what_jobs_left_tells(made: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
    made.turns("py3.11")
    made.turns("py3.12", 8)
    made.submit()
    made.until(pytorch_11="running", pytorch_12="failed")
    monkeypatch.setenv("PATH", "/nowhere")
    now = standing(made.run.output, made.run.name)
    assert [job.standing for job in now.jobs] == ["done", "running", "failed", "blocked"], "by its own word"
    assert "squeue" in "\n".join(lines(now))


def test_status_follows_until_all_have_ended(
    made: Submission, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("command_line.status._CLUSTER_SECONDS", 0.5)
    made.turns("py3.13", 8)
    made.submit()
    followed = show(Invocation(log_folder=made.folder), made.run.output, ["config*"], follow=True)
    assert followed.exit_code == 8
    assert "collect" in capsys.readouterr().out
    result = show(Invocation(log_folder=made.folder), made.run.output, [])
    assert result.exit_code == 0
    (told,) = json.loads(json.dumps(result.to_json()))["cluster"]
    assert [job["standing"] for job in told["jobs"]] == ["failed", "blocked", "blocked", "blocked"]


def test_a_second_submission_waits_for_the_first(made: Submission) -> None:
    made.turns("py3.13")
    made.submit()
    made.until(libtorch="running")
    with pytest.raises(BusyError, match="have not ended") as raised:
        made.submit()
    subprocess.run([*raised.value.remedy.split(": ")[1].split()], check=True)
    made.until(libtorch="failed")


def test_what_sbatch_refuses_is_told(made: Submission) -> None:
    made.run = replace(made.run, wanted=replace(made.run.wanted, partition="nosuch"))
    with pytest.raises(PreflightError, match="invalid partition"):
        made.submit()
    assert not made.run.output.joinpath("slurm", made.run.name, "jobs.json").exists()


def test_where_one_is_refused_those_before_it_are_cancelled(made: Submission) -> None:
    first, *others = made.run.jobs
    made.run = replace(made.run, jobs=(first, replace(others[0], pythons=("3.12",) * 2000), *others[1:]))
    made.turns("py3.13")
    with pytest.raises(PreflightError, match="sbatch refuses pytorch"):
        made.submit()
    for _ in range(30):
        if not squeue():
            return
        time.sleep(1)
    raise AssertionError(squeue())


def test_a_dry_run_shows_scripts_and_commands_and_submits_nothing(tmp_path: Path) -> None:
    """Of a real config, planned as for a build; on nodes as they are, jobs could not take each other's work."""
    if shutil.which("bwrap") is None:
        pytest.skip("not installed: bubblewrap")
    output = tmp_path / "output"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    words = ["linux_64_cpu_debian", "--rehearse", "-p", python, "-o", str(output), "--dry-run"]
    program = [sys.executable, str(Path(__file__).parents[2] / "scripts" / "megabuild"), "slurm"]
    environment = {**os.environ, "MEGABUILD_CACHE": str(tmp_path / "cache"), "SLURM_CONF": "/nowhere"}

    def run(*further: str) -> subprocess.CompletedProcess[str]:
        command = [*program, *words, *further]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    refused = run()
    assert refused.returncode == 2
    assert "give them one path: --engine bubblewrap" in refused.stderr
    shown = run("--engine", "bubblewrap", "--", "--account=torch")
    assert shown.returncode == 0, shown.stderr
    assert f"-p {python} --pyg none --remove-trees --output {output}/slurm/" in shown.stdout
    assert "collect=$(sbatch --parsable " in shown.stdout
    assert shown.stdout.count(" --account=torch ") == 2
    assert not (output / "slurm").exists()
