"""The jobs that a run is made of, and the note of those that were submitted: ``output/slurm/RUN/jobs.json``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from groundwork import files
from groundwork.errors import IntegrityError
from groundwork.result import Result

#: Below the output folder.
FOLDER = "slurm"
#: The variable of a job's script that has a task's Python.
PYTHON = "$python"
_NOTE = "jobs.json"
_FORMAT, _VERSION = "cluster-jobs", 1


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is submitted at once: one build, or one for each of several Pythons."""

    name: str
    output: Path  #: where it builds; ``$python`` stands for the task's
    words: tuple[str, ...]  #: options of the build
    pythons: tuple[str, ...] = ()  #: a task for each; empty for a job that is one build
    label: str = ""  #: for people, where the name does not say all of it
    after: str = ""  #: the job that has to be done before, if any

    @property
    def tasks(self) -> tuple[str, ...]:
        """What each of its builds is called."""
        return tuple(f"{self.name} {python}" for python in self.pythons) or (self.label or self.name,)


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """A build that the batch system knows."""

    name: str  #: ``libtorch``, ``pytorch 3.12``
    id: str  #: Slurm's; a task of an array has its number behind: ``17_2``
    after: tuple[str, ...]  #: names
    state: str  #: the folder of its run
    log: str

    @property
    def ended(self) -> Path:
        """The file in which it leaves its exit code."""
        return Path(self.log).parent / f"{self.id}.exit"


class _Note(msgspec.Struct):
    format: str
    format_version: int
    jobs: tuple[Submitted, ...]


def graph(
    output: Path,
    run: str,
    pythons: Sequence[str],
    *,
    base: str = "",
    extensions: bool,
    torch: Sequence[str] = (),
    rest: Sequence[str] = (),
) -> tuple[Job, ...]:
    """Return the jobs of a run: libtorch with one Python, all others after it, and then the rest.

    Each but the last builds in a folder of its own, and hands on through the store. The last one is the plain build: it
    compiles extensions, if any, and everything else it fetches, so that all packages are in the output's one channel.

    `base`: the Python that libtorch is compiled with, or nothing where nothing is compiled for all Pythons. `torch`:
    options of every build. `rest`: further ones, of the last.
    """
    own = output / FOLDER / run
    alone = ("--pyg", "none", "--remove-trees")  # what others go on with is in the store
    jobs: list[Job] = []
    if base and pythons:
        first = base if base in pythons else pythons[0]
        pythons = [python for python in pythons if python != first]
        words = (*torch, "-p", first, *alone)
        jobs.append(
            Job(name="libtorch", label=f"libtorch + py{first}", output=own / f"py{first}", words=words)
        )
    if pythons:
        job = Job(
            name="pytorch",
            output=own / f"py{PYTHON}",
            words=(*torch, "-p", PYTHON, *alone),
            pythons=tuple(pythons),
            after=jobs[-1].name if jobs else "",
        )
        jobs.append(job)
    last = "extensions" if extensions else "collect"
    jobs.append(Job(name=last, output=output, words=(*torch, *rest), after=jobs[-1].name if jobs else ""))
    return tuple(jobs)


def submitted(output: Path) -> tuple[str, ...]:
    """Return the runs below an output folder that were submitted as jobs, sorted."""
    return tuple(sorted(note.parent.name for note in (output / FOLDER).glob(f"*/{_NOTE}")))


def write(output: Path, run: str, jobs: Sequence[Submitted]) -> None:
    """Note the jobs of a run, in place of those of a former one."""
    document = Result(format=_FORMAT, format_version=_VERSION, document={"jobs": list(jobs)}).to_json()
    content = msgspec.json.format(msgspec.json.encode(document), indent=1)
    files.write(output / FOLDER / run / _NOTE, content + b"\n", mode=0o644)


def read(output: Path, run: str) -> tuple[Submitted, ...]:
    """Return the jobs that were submitted for a run; none where it never was.

    Raises IntegrityError: The note is damaged, no file, or of another version of this program.
    """
    path = output / FOLDER / run / _NOTE
    if not os.path.lexists(path):
        return ()
    content = files.read_untrusted(path)
    try:
        note = msgspec.json.decode(content or b"", type=_Note)
    except msgspec.MsgspecError as error:
        raise IntegrityError(
            f"{path} cannot be understood: {error}", "submitting again writes it anew"
        ) from error
    if (note.format, note.format_version) != (f"megabuild/{_FORMAT}", _VERSION):
        raise IntegrityError(f"{path} is of another version of this program", "ask the version that wrote it")
    return note.jobs
