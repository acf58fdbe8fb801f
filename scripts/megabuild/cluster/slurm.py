"""Slurm: the script of a job, how it is submitted, and what the controller says of it.

Dependencies, arrays and requeueing are Slurm's own (https://slurm.schedmd.com/sbatch.html). Accounting (`sacct`) is
not needed: `squeue` knows jobs that ended in the last minutes, too (MinJobAge), and every job leaves its exit code in a
file.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from groundwork import files, process
from groundwork.errors import BusyError, DeadlineError, PreflightError
from megabuild.cluster.jobs import FOLDER, PYTHON, Job, Submitted, read, write

#: The build ends so many seconds before its time, or a tenth of a shorter one: Python and the shell have to end, too.
_MARGIN_SECONDS, _MARGIN_SHARE = 120.0, 0.1
_ASKED_SECONDS = 30.0
#: As `squeue` names jobs and tasks of arrays.
_ID = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
#: States in which a job has not ended.
PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"})
RUNNING = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What every job of a run asks for."""

    seconds: float  #: its time limit
    cpus: int
    memory: str  #: as sbatch takes it, or empty for 4 GB for each CPU
    partition: str  #: or empty for the default one
    requeues: int  #: how often it goes on after its time limit
    further: tuple[str, ...] = ()  #: options of sbatch


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run as jobs."""

    name: str
    output: Path
    jobs: tuple[Job, ...]
    build: tuple[str, ...]  #: program and config, before the options of the jobs
    wanted: Wanted

    @property
    def folder(self) -> Path:
        """Where scripts and logs lie."""
        return self.output / FOLDER / self.name

    def script(self, job: Job) -> Path:
        """Return where a job's script lies."""
        return self.folder / f"{job.name}.sh"


def script(run: Run, job: Job) -> str:
    """Return what a job runs.

    An address of a store may have a password, so it is taken from the environment, which sbatch hands on.
    """
    seconds = run.wanted.seconds
    deadline = seconds - min(_MARGIN_SECONDS, seconds * _MARGIN_SHARE)
    build = [*run.build, *job.words, "--output", str(job.output), "--deadline", f"{deadline:.0f}s"]
    store = shlex.quote(str(run.output / "store"))
    lines = [
        "#!/bin/bash",
        f"# {job.name} of {run.name}, by `megabuild slurm`",
        "export CPU_COUNT=$SLURM_CPUS_PER_TASK MEGABUILD_STORE_WRITES=1",
        f'[ -n "$MEGABUILD_STORE" ] || export MEGABUILD_STORE={store}',
        f"ended={shlex.quote(str(run.folder / 'logs'))}/{_ID}.exit",
    ]
    if job.pythons:
        lines += [f"pythons=({' '.join(job.pythons)})", "python=${pythons[$SLURM_ARRAY_TASK_ID]}"]
    code = DeadlineError.exit_code
    lines += [
        'rm -f "$ended"',
        " ".join(map(_quoted, build)),
        "code=$?",
        'echo $code > "$ended"',
        f'if [ $code = {code} ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {run.wanted.requeues} ]; then',
        '    scontrol requeue "$SLURM_JOB_ID"  # the build goes on where the deadline ended it',
        "fi",
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def sbatch(run: Run, job: Job, after: str, folder: Path) -> list[str]:
    """Return the command that submits a job.

    `after`: the id of the job that has to be done before, or nothing. `folder`: where it runs.
    """
    wanted = run.wanted
    return [
        "sbatch", "--parsable", f"--job-name={run.name}:{job.name}", f"--chdir={folder}",
        f"--output={run.folder}/logs/{job.name}-{'%A_%a' if job.pythons else '%j'}.log",
        "--open-mode=append", "--requeue",
        f"--cpus-per-task={wanted.cpus}",
        f"--mem={wanted.memory}" if wanted.memory else "--mem-per-cpu=4G",
        f"--time={-int(-wanted.seconds // 60)}",  # minutes
        *([f"--partition={wanted.partition}"] if wanted.partition else []),
        *([f"--array=0-{len(job.pythons) - 1}"] if job.pythons else []),
        # a job that could never begin is cancelled, and does not stay in the queue for ever
        *([f"--dependency=afterok:{after}", "--kill-on-invalid-dep=yes"] if after else []),
        *wanted.further, str(run.script(job)),
    ]  # fmt: skip


def shown(run: Run, folder: Path) -> list[str]:
    """Return scripts and commands as they would be run, with shell variables in place of ids."""
    lines = []
    for job in run.jobs:
        lines += [f"# {run.script(job)}", *script(run, job).splitlines(), ""]
    for job in run.jobs:
        number = f"${job.after}"
        command = sbatch(run, job, number if job.after else "", folder)
        lines.append(f"{job.name}=$({' '.join(_quoted(word, number) for word in command)})")
    return lines


def document(run: Run, folder: Path) -> dict[str, object]:
    """Return scripts and commands for JSON, with ``$JOB`` in place of ids."""
    return {
        "name": run.name,
        "folder": str(run.folder),
        "jobs": [
            {
                "name": job.name,
                "tasks": list(job.tasks),
                "after": job.after or None,
                "script": script(run, job),
                "command": sbatch(run, job, f"${job.after}" if job.after else "", folder),
            }
            for job in run.jobs
        ],
    }


def submit(run: Run, folder: Path) -> tuple[Submitted, ...]:
    """Submit the jobs of a run, and note them; where one is refused, those before it are cancelled.

    Raises PreflightError: There is no Slurm, or it refuses a job.
    Raises BusyError: Jobs of this run have not ended.
    """
    if shutil.which("sbatch") is None:
        raise PreflightError(
            "sbatch is not installed here",
            "submit where jobs of Slurm are submitted; --dry-run shows them anywhere",
        )
    former = read(run.output, run.name)
    there = queue(former) if former else {}
    if going := [one.id for one in former if there.get(one.id, ("", ""))[0] in PENDING | RUNNING]:
        raise BusyError(
            f"jobs of {run.name} have not ended: {', '.join(going)}",
            f"wait, or end them: scancel {' '.join(going)}",
        )
    (run.folder / "logs").mkdir(parents=True, exist_ok=True)
    ids: dict[str, str] = {}
    made: list[Submitted] = []
    for job in run.jobs:
        files.write(run.script(job), script(run, job), mode=0o755)
        done = process.run(sbatch(run, job, ids.get(job.after, ""), folder), timeout=_ASKED_SECONDS)
        number = done.stdout.strip().partition(";")[0]  # behind it, the cluster's name
        if done.returncode != 0 or not number:
            if ids:
                process.run(["scancel", *ids.values()], timeout=_ASKED_SECONDS)
            raise PreflightError(
                f"sbatch refuses {job.name} of {run.name}: {done.stderr.strip()}",
                "nothing is in the queue; see --cpus, --mem, --time, --partition, and what is given behind --",
            )
        ids[job.name] = number
        made += _submitted(run, job, ids[job.name])
        write(run.output, run.name, made)
    return tuple(made)


def _submitted(run: Run, job: Job, number: str) -> list[Submitted]:
    before = next((one.tasks for one in run.jobs if one.name == job.after), ())
    found = []
    for index, name in enumerate(job.tasks):
        task = f"{number}_{index}" if job.pythons else number
        output = str(job.output).replace(PYTHON, job.pythons[index] if job.pythons else "")
        ended = run.folder / "logs" / f"{task}.exit"
        ended.unlink(missing_ok=True)  # of a cluster that counts anew
        log = run.folder / "logs" / f"{job.name}-{task}.log"
        found.append(Submitted(name=name, id=task, after=before, state=f"{output}/{run.name}", log=str(log)))
    return found


def queue(jobs: Sequence[Submitted]) -> Mapping[str, tuple[str, str]]:
    """Return what Slurm knows of jobs, by id: a state, and the reason for it; of those that ended long ago, nothing.

    Raises PreflightError: Slurm cannot be asked, or does not answer.
    """
    numbers = sorted({one.id.partition("_")[0] for one in jobs})
    command = [
        "squeue",
        "--noheader",
        "--array",
        "--states=all",
        "--format=%F_%K|%T|%r",
        f"--jobs={','.join(numbers)}",
    ]
    done = process.run(command, timeout=_ASKED_SECONDS)
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        raise PreflightError(f"squeue: {done.stderr.strip()}", "ask on a machine where Slurm answers")
    found = {}
    for line in done.stdout.splitlines():
        number, state, reason = line.split("|", 2)
        found[number.removesuffix("_N/A")] = state, reason
    return found


def _quoted(word: str, variable: str = PYTHON) -> str:
    """Quote a word for the shell, but for a variable of the script that is in it."""
    parts = [shlex.quote(part) if part else "" for part in word.split(variable)]
    return f'"{variable}"'.join(parts) or "''"
