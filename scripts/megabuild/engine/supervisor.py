"""Starts the worker in its isolation, listens to it, and makes sure that nothing of it is left.

Nor of an earlier run: processes that outlived it would write where the next one reads.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from groundwork.guard import GRACE_SECONDS
from megabuild.engine.job import Job, Outcome
from megabuild.isolation.base import Isolation, Mount

_POLL_SECONDS = 0.05
_TAIL_LINES = 20
#: Set for the engine itself; build scripts do not get it, but know folders below the state.
_MARKER = "MEGABUILD_STATE"
#: Below a state folder: those of the tests of its packages, which run beside its worker.
TESTS = "tests"
_SCRIPT_VARIABLES = ("PREFIX", "SRC_DIR", "BUILD_PREFIX")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where workers of one run are started; paths named ``inside`` are as the worker sees them."""

    isolation: Isolation
    state: Path  #: the task's state folder; the worker sees of it what ``mounts`` say
    state_inside: str
    scripts_inside: str  #: the folder of the ``megabuild`` and ``groundwork`` packages
    python: str  #: runs the worker
    site_inside: str  #: the folder with ``rattler_build``
    mounts: Sequence[Mount]  #: everything that the worker needs to see

    @property
    def name(self) -> str:
        """Name of the container: one per state folder, so that a later run finds what an earlier one left."""
        return f"megabuild-{self.state.name}-{zlib.crc32(str(self.state.absolute()).encode()):08x}"

    def mount(self, name: str, *, writable: bool = False) -> Mount:
        """Return the mount of something in the state folder, at its own place in the worker's."""
        return Mount(source=self.state / name, target=f"{self.state_inside}/{name}", writable=writable)


def run_worker(
    place: Place,
    job: Job,
    *,
    on_line: Callable[[str], None],
    on_tick: Callable[[], None],
) -> Outcome:
    """Run one job to its end in its place, and nothing survives it, however this function is left.

    ``on_line`` is called for every line that the worker itself prints (the engine's scripts write to log files
    instead), ``on_tick`` about twenty times a second; what they raise ends the worker.

    Raises MegabuildError: The isolation refused to start the worker, or its outcome is not what a worker writes.
    """
    # Builds write in tmp as well: a file whose name nobody has used before is of this worker's time.
    outcome_file = place.state / "tmp" / f"outcome-{uuid.uuid4().hex}.json"
    outcome_file.parent.mkdir(parents=True, exist_ok=True)
    job.write(place.state / "job.json")
    environment = {
        "PYTHONPATH": place.site_inside,
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": f"{place.state_inside}/tmp",
        _MARKER: str(place.state.absolute()),
    }
    scripts, state = place.scripts_inside, place.state_inside
    argv = [place.python, f"{scripts}/groundwork/guard.py"]
    argv += [place.python, f"{scripts}/megabuild/engine/worker.py"]
    argv += [f"{state}/job.json", f"{state}/tmp/{outcome_file.name}"]
    mounts = [*place.mounts, place.mount("job.json")]
    place.isolation.stop(place.name)
    process = subprocess.Popen(
        place.isolation.command(argv, mounts=mounts, env=environment, cwd=state, name=place.name),
        env=place.isolation.environment(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    tail: list[str] = []

    def keep_line(text: str) -> None:
        tail.append(text)
        del tail[:-_TAIL_LINES]
        on_line(text)

    try:
        _listen(process, keep_line, on_tick)
    finally:
        end(process, place)
    failure = place.isolation.failure(process.returncode, output="\n".join(tail))
    if failure is not None and not os.path.lexists(outcome_file):
        raise failure
    return Outcome.read(outcome_file, process.returncode)


def _listen(
    process: subprocess.Popen[bytes], on_line: Callable[[str], None], on_tick: Callable[[], None]
) -> None:
    """Read what a process prints until it has ended, though something else may keep the pipe open."""
    assert process.stdout is not None
    pipe, rest, is_open = process.stdout.fileno(), b"", True
    while is_open or process.poll() is None:
        on_tick()
        if not is_open:
            time.sleep(_POLL_SECONDS)
        elif select.select([pipe], [], [], _POLL_SECONDS)[0]:
            data = os.read(pipe, 65536)
            is_open = bool(data)
            *lines, rest = (rest + data).split(b"\n")
            for text in lines:
                on_line(text.decode(errors="replace"))
        elif process.poll() is not None:
            break
    if rest:
        on_line(rest.decode(errors="replace"))
    on_tick()


def end(process: subprocess.Popen[bytes], place: Place) -> None:
    """End a worker with everything below it; quick when it has ended already.

    Closing its standard input asks the guard to end everything, which works through containers too. What does not
    follow within a few seconds is killed.
    """
    with contextlib.suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(timeout=GRACE_SECONDS + 3)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        if process.stdout is not None:
            process.stdout.close()
        place.isolation.stop(place.name)
        end_strays(place.state, but=place.state / TESTS)


def strays(state: Path, *, but: Path | None = None) -> list[psutil.Process]:
    """Return the processes that belong to runs of a state folder: engines, build scripts, compilers, tests.

    A person's shell is left out, even if it has sourced a build's environment: it has a terminal, the engine has none.
    So are those of the folder ``but`` below it.
    """
    processes = []
    below, other = f"{state.absolute()}/", f"{but.absolute()}/" if but else "\0"
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            folders = [environment.get(name, "") for name in _SCRIPT_VARIABLES]
            if (
                environment.get(_MARKER) == str(state.absolute())
                or any(folder.startswith(below) and not folder.startswith(other) for folder in folders)
            ) and not (process.pid == os.getpid() or process.terminal()):
                processes.append(process)
    return processes


def end_strays(state: Path, *, but: Path | None = None) -> int:
    """Kill what :func:`strays` finds, wait a few seconds until they are gone, and return how many there were.

    The caller holds the state's lock, so that nothing in it belongs to another run.
    """
    processes = strays(state, but=but)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=5.0)
    return len(processes)
