"""Jobs of a run, their scripts and commands, and where they stand by what a scheduler says; no Slurm is asked."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from calling import call

from command_line.run_command import Invocation
from groundwork.errors import IntegrityError, PreflightError
from megabuild.cluster import jobs, slurm
from megabuild.cluster.jobs import Submitted, graph
from megabuild.cluster.slurm import Run, Wanted, sbatch, script, shown
from megabuild.cluster.standing import lines, standing

RUN = "linux_64_cpu"


def a_run(output: Path, build: tuple[str, ...] = ("build",), **asked: object) -> Run:
    wanted = {"seconds": 7200.0, "cpus": 8, "memory": "", "partition": "", "requeues": 1, **asked}
    return Run(
        name=RUN,
        output=output,
        jobs=graph(
            output, RUN, ("3.11", "3.12", "3.13"), base="3.12", extensions=True, torch=["--torch", "2.14.1"],
            rest=["-e", "x"],
        ),
        build=build,
        wanted=Wanted(**wanted),  # type: ignore[arg-type]
    )  # fmt: skip


def test_pythons_come_after_libtorch_and_all_the_rest_after_them() -> None:
    libtorch, pytorch, rest = a_run(Path("/out")).jobs
    assert (libtorch.after, pytorch.after, rest.after) == ("", "libtorch", "pytorch")
    assert libtorch.tasks == ("libtorch + py3.12",)
    assert libtorch.words == ("--torch", "2.14.1", "-p", "3.12", "--pyg", "none", "--remove-trees")
    assert pytorch.tasks == ("pytorch 3.11", "pytorch 3.13")
    assert pytorch.words[2:6] == ("-p", "$python", "--pyg", "none")
    assert (rest.name, rest.words) == ("extensions", ("--torch", "2.14.1", "-e", "x"))
    assert rest.output == Path("/out"), "packages of all jobs come together where a plain build has them"
    assert len({job.output for job in a_run(Path("/out")).jobs}) == 3


@pytest.mark.parametrize(
    ("base", "pythons", "tasks"),
    [
        ("3.12", ("3.11", "3.13"), ["libtorch + py3.11", "pytorch 3.13", "collect"]),
        ("3.12", ("3.12",), ["libtorch + py3.12", "collect"]),
        ("", ("3.11", "3.12"), ["pytorch 3.11", "pytorch 3.12", "collect"]),
        ("", (), ["collect"]),
    ],
)
def test_what_there_is_nothing_of_is_no_job(base: str, pythons: tuple[str, ...], tasks: list[str]) -> None:
    made = graph(Path("/out"), RUN, pythons, base=base, extensions=False)
    assert [task for job in made for task in job.tasks] == tasks
    assert [job.after for job in made] == ["", *(job.name for job in made[:-1])]


def run_script(run: Run, number: int, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{run.output}:/usr/bin:/bin",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_JOB_ID": "7",
        **variables,
    }
    run.folder.joinpath("logs").mkdir(parents=True, exist_ok=True)
    scontrol = run.output / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "scontrol $*"\n')
    scontrol.chmod(0o755)
    return subprocess.run(
        ["bash", "-c", script(run, run.jobs[number])],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_task_builds_for_its_python_below_a_folder_with_any_name(tmp_path: Path) -> None:
    output = tmp_path / "a $b 'c'"
    shows = (
        "sh",
        "-c",
        'printf "%s|" "$@"; echo "$CPU_COUNT $MEGABUILD_STORE $MEGABUILD_STORE_WRITES"',
        "sh",
    )
    done = run_script(a_run(output, shows), 1, SLURM_ARRAY_JOB_ID="6", SLURM_ARRAY_TASK_ID="1")
    assert done.stderr == ""
    *words, environment = done.stdout.strip().split("|")
    assert words[2:6] == ["-p", "3.13", "--pyg", "none"]
    assert words[-4:] == ["--output", f"{output}/slurm/{RUN}/py3.13", "--deadline", "7080s"]
    assert environment == f"8 {output}/store 1"
    assert (output / "slurm" / RUN / "logs" / "6_1.exit").read_text() == "0\n"


def test_a_store_that_is_named_is_taken_and_its_address_is_in_no_script(tmp_path: Path) -> None:
    done = run_script(a_run(tmp_path, ("sh", "-c", "echo $MEGABUILD_STORE")), 0, MEGABUILD_STORE="s3://b/p")
    assert done.stdout == "s3://b/p\n"


@pytest.mark.parametrize(
    ("code", "restarts", "requeued"), [(28, "", True), (28, "0", True), (28, "1", False), (8, "", False)]
)
def test_what_the_deadline_ended_is_requeued_so_often(
    tmp_path: Path, code: int, restarts: str, requeued: bool
) -> None:
    run = a_run(tmp_path, ("sh", "-c", f"exit {code}"))
    done = run_script(run, 0, **({"SLURM_RESTART_COUNT": restarts} if restarts else {}))
    assert done.returncode == code
    assert done.stdout == ("scontrol requeue 7\n" if requeued else "")
    assert (run.folder / "logs" / "7.exit").read_text() == f"{code}\n"


def test_sbatch_gets_what_was_asked_for_and_what_is_its_own_last() -> None:
    run = a_run(Path("/out"), seconds=90.0, memory="64G", partition="long", further=("--account=x",))
    command = sbatch(run, run.jobs[1], "17", Path("/here"))
    for word in (
        "--time=2", "--mem=64G", "--partition=long", "--cpus-per-task=8", "--array=0-1", "--requeue",
        "--dependency=afterok:17", "--kill-on-invalid-dep=yes", "--open-mode=append", "--chdir=/here",
    ):  # fmt: skip
        assert word in command
    assert command[-2:] == ["--account=x", f"/out/slurm/{RUN}/pytorch.sh"]
    first = sbatch(a_run(Path("/out")), run.jobs[0], "", Path("/here"))
    assert "--mem-per-cpu=4G" in first
    assert not [word for word in first if word.startswith(("--dependency", "--partition", "--array"))]


def test_what_a_dry_run_shows_is_a_script_that_hands_ids_on(tmp_path: Path) -> None:
    (tmp_path / "sbatch").write_text('#!/bin/sh\necho "$@" >> calls; echo 4$(wc -l < calls)\n')
    (tmp_path / "sbatch").chmod(0o755)
    commands = [line for line in shown(a_run(tmp_path), tmp_path) if "=$(sbatch" in line]
    subprocess.run(
        ["bash", "-ec", "\n".join(commands)],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
    )
    calls = (tmp_path / "calls").read_text().splitlines()
    assert ["afterok" in call for call in calls] == [False, True, True]
    assert "afterok:41 " in calls[1]
    assert "afterok:42 " in calls[2]


NOTED = (("libtorch", "1", ()), ("pytorch 3.11", "2_0", ("libtorch",)), ("pytorch 3.12", "2_1", ("libtorch",)),
         ("collect", "3", ("pytorch 3.11", "pytorch 3.12")))  # fmt: skip


def stands(
    output: Path, monkeypatch: pytest.MonkeyPatch, queue: Mapping[str, str] | None, codes: Mapping[str, int]
) -> dict[str, str]:
    noted = [
        Submitted(
            name=name, id=number, after=after, state=f"{output}/{number}/{RUN}", log=f"{output}/{number}.log"
        )
        for name, number, after in NOTED
    ]
    jobs.write(output, RUN, noted)
    for name, code in codes.items():
        next(job for job in noted if job.name == name).ended.write_text(f"{code}\n")

    def answer(known: object) -> Mapping[str, tuple[str, str]]:
        if queue is None:
            raise PreflightError("squeue: no answer")
        return {job.id: (queue[job.name], "Why") for job in noted if job.name in queue}

    monkeypatch.setattr(slurm, "queue", answer)
    found = standing(output, RUN)
    assert len(lines(found)) >= len(NOTED) + 1
    return {job.name: f"{job.standing} {job.note}".strip() for job in found.jobs}


@pytest.mark.parametrize(
    ("state", "codes", "libtorch", "collect"),
    [
        ("PENDING", {}, "waiting for Slurm (Why)", "waiting after pytorch 3.11, pytorch 3.12"),
        ("RUNNING", {}, "running", "waiting"),
        ("COMPLETING", {"libtorch": 28}, "running", "waiting"),
        ("PENDING", {"libtorch": 28}, "requeued for its next turn", "waiting"),
        ("FAILED", {"libtorch": 28}, "failed with exit code 28", "blocked by pytorch 3.11, pytorch 3.12"),
        ("", {"libtorch": 8}, "failed with exit code 8", "blocked"),
        ("CANCELLED", {"libtorch": 28}, "failed in Slurm: cancelled (Why)", "blocked"),
        ("TIMEOUT", {}, "failed in Slurm: timeout (Why)", "blocked"),
        ("OUT_OF_MEMORY", {}, "failed in Slurm: out of memory (Why)", "blocked"),
        ("", {}, "failed without a word: cancelled, or killed with its node", "blocked"),
        ("", {"libtorch": 0, "pytorch 3.11": 0, "pytorch 3.12": 0, "collect": 0}, "done", "done"),
        (None, {"libtorch": 8}, "failed with exit code 8", "blocked"),
        (None, {"libtorch": 28}, "unknown", "unknown"),
        (None, {}, "unknown", "unknown"),
    ],
)
def test_where_jobs_stand(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str | None,
    codes: Mapping[str, int],
    libtorch: str,
    collect: str,
) -> None:
    """``state`` is that of libtorch's job: empty where all have left the queue, None where Slurm does not answer."""
    others = {name: "PENDING" for name, _, _ in NOTED[1:]}
    queue = None if state is None else {"libtorch": state, **others} if state else {}
    found = stands(tmp_path, monkeypatch, queue, codes)
    assert found["libtorch"] == libtorch
    assert found["collect"].startswith(collect)


def test_one_python_that_failed_blocks_what_needs_all_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = {
        "libtorch": "COMPLETED",
        "pytorch 3.11": "RUNNING",
        "pytorch 3.12": "FAILED",
        "collect": "PENDING",
    }
    assert stands(tmp_path, monkeypatch, queue, {"libtorch": 0, "pytorch 3.12": 10}) == {
        "libtorch": "done",
        "pytorch 3.11": "running",
        "pytorch 3.12": "failed with exit code 10",
        "collect": "blocked by pytorch 3.12",
    }


@pytest.mark.parametrize(
    "content", ["", "{}", '{"format": "megabuild/cluster-jobs", "format_version": 2, "jobs": []}']
)
def test_a_note_that_cannot_be_read_is_said(tmp_path: Path, content: str) -> None:
    path = tmp_path / "slurm" / RUN / "jobs.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(IntegrityError):
        jobs.read(tmp_path, RUN)
    assert str(path) in "\n".join(lines(standing(tmp_path, RUN)))
    assert standing(tmp_path, RUN).exit_code == IntegrityError.exit_code


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invocation:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    return Invocation(log_folder=tmp_path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["linux_64_cpu", "--time", "soon"], "no duration"),
        (["--", "--account=x"], "name a config"),
        (["linux_64_cqu"], "did you mean"),
        (["linux_64_cpu", "--python", "2.7"], "2.7"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_submitted(
    here: Invocation, words: list[str], says: str
) -> None:
    done = call(here, "slurm", *words)
    assert done.exit_code in (2, 3)
    assert says in done.stderr


def test_status_knows_runs_of_which_no_build_has_begun(
    here: Invocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands(tmp_path, monkeypatch, {name: "PENDING" for name, _, _ in NOTED}, {})
    done = call(here, "status", "-o", str(tmp_path), RUN)
    assert "pytorch 3.12  2_1  waiting after libtorch" in done.stdout
    document = json.loads(call(here, "status", "-o", str(tmp_path), "--json").stdout)
    assert document["runs"] == []
    assert [job["standing"] for job in document["cluster"][0]["jobs"]] == ["waiting"] * 4
