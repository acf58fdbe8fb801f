"""Where the jobs of a run stand: by what Slurm says, the exit codes that they left, and the states of their builds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from groundwork import files
from groundwork.errors import DeadlineError, IntegrityError, KilledError, PreflightError
from groundwork.text import display, duration
from groundwork.wording import counted, plain
from megabuild.cluster import slurm
from megabuild.cluster.jobs import Submitted, read
from megabuild.state.reading import look

#: Standings of jobs that will not go on by themselves.
ENDS = frozenset({"done", "failed", "blocked"})
_INDENT = "  "


@dataclass(frozen=True, kw_only=True)
class JobStanding:
    """What is known of a job."""

    name: str
    id: str
    #: ``waiting``, ``running``, ``requeued`` (its time was over, and it goes on), ``done``, ``failed``, ``blocked``
    #: (what it needs has failed) or ``unknown`` (Slurm does not answer)
    standing: str
    note: str = ""  #: how far it is, what it waits for, why it failed
    done: float | None = None  #: of a job that runs, the share of its work that is done
    exit_code: int | None = None
    log: str


@dataclass(frozen=True, kw_only=True)
class ClusterRun:
    """A run that was submitted as jobs."""

    name: str
    jobs: tuple[JobStanding, ...] = ()
    trouble: str = ""  #: why nothing is known, or not everything

    @property
    def ended(self) -> bool:
        """Whether no job will go on by itself."""
        return all(job.standing in ENDS for job in self.jobs)

    @property
    def exit_code(self) -> int:
        """That of the first job that failed, or 0."""
        failed = (job.exit_code or KilledError.exit_code for job in self.jobs if job.standing == "failed")
        return next(failed, 0 if self.jobs else IntegrityError.exit_code)


def standing(output: Path, run: str) -> ClusterRun:
    """Say where the jobs of a run stand; a Slurm that does not answer is said, too."""
    try:
        jobs = read(output, run)
    except IntegrityError as error:
        return ClusterRun(name=run, trouble=f"{error.message}; {error.remedy}")
    trouble = ""
    queue: Mapping[str, tuple[str, str]] | None = None
    try:
        queue = slurm.queue(jobs)
    except PreflightError as error:
        trouble = error.message
    known: dict[str, JobStanding] = {}
    for job in jobs:
        state, reason = (None, "") if queue is None else queue.get(job.id, ("", ""))
        known[job.name] = _judged(job, state, reason, known)
    return ClusterRun(name=run, jobs=tuple(known.values()), trouble=trouble)


def _judged(job: Submitted, state: str | None, reason: str, known: Mapping[str, JobStanding]) -> JobStanding:
    """Say where one job stands. ``state``: Slurm's; empty where the job has left the queue, None if nobody answers."""
    code = _exit_code(job)
    before = [known[name] for name in job.after if name in known]
    broken = ", ".join(one.name for one in before if one.standing in ("failed", "blocked"))
    share: float | None = None
    if state in slurm.RUNNING or (
        state is None and code is None and look(Path(job.state)).standing == "running"
    ):
        what, (note, share) = "running", _progress(Path(job.state))
    elif broken and code is None:
        what, note = "blocked", f"by {broken}"
    elif state in slurm.PENDING and code == DeadlineError.exit_code:
        what, note = "requeued", "for its next turn"
    elif state in slurm.PENDING:
        waits = ", ".join(one.name for one in before if one.standing != "done")
        what, note = "waiting", f"after {waits}" if waits else f"for Slurm ({reason})"
    elif (
        code is not None and state != "CANCELLED" and not (state is None and code == DeadlineError.exit_code)
    ):
        what, note = ("failed", f"with exit code {code}") if code else ("done", "")
    elif state is None:
        what, note = "unknown", ""
    elif not state:
        what, note = "failed", "without a word: cancelled, or killed with its node"
    else:
        why = f" ({reason})" if reason != "None" else ""
        what, note = "failed", f"in Slurm: {state.lower().replace('_', ' ')}{why}"
    ended = code if what in ENDS else None
    return JobStanding(
        name=job.name, id=job.id, standing=what, note=note, done=share, exit_code=ended, log=job.log
    )


def _exit_code(job: Submitted) -> int | None:
    """Return what a job has left; None while it runs, before, and where it could not."""
    left = (files.read_untrusted(job.ended) or b"").strip()
    return int(left) if left.isdigit() else None


def _progress(folder: Path) -> tuple[str, float | None]:
    """Return how far a run is, in words and as a share."""
    state = look(folder).state
    if state is None or state.ended:  # of its former turn
        return "", None
    if state.left is None:
        return f"({state.status})", None
    return f"{100 * state.left.done:.0f} %, {duration(state.left.likely)} left", state.left.done


def lines(run: ClusterRun) -> list[str]:
    """Return the lines on a run: how many of its jobs are done, and where each stands."""
    done = sum(job.standing == "done" for job in run.jobs)
    rows = [(job.name, job.id, f"{job.standing} {job.note}".strip()) for job in run.jobs]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    found = [f"{plain(run.name)}: on Slurm, {done} of {counted(len(rows), 'job')} done"]
    found += [f"{_INDENT}{plain(run.trouble)}"] if run.trouble else []
    for job, (name, number, how) in zip(run.jobs, rows, strict=True):
        found.append(plain(f"{_INDENT}{name:{widths[0]}}  {number:>{widths[1]}}  {how}"))
        if job.standing == "failed":
            found.append(f"{_INDENT * 2}log: {display(Path(job.log))}")
    if run.ended and done < len(rows):
        found.append(f"{_INDENT}submit again to go on: what is done is in the store")
    return found


def changes(before: ClusterRun | None, now: ClusterRun) -> Iterator[str]:
    """Give a line for every job that stands elsewhere than before."""
    former = {job.name: job.standing for job in before.jobs} if before else {}
    for job in now.jobs:
        if former.get(job.name) != job.standing:
            yield plain(f"{now.name}: {job.name} ({job.id}): {job.standing} {job.note}".rstrip())
