"""Starts the worker in its isolation, reads its output, and ends all its processes.

It also ends leftover processes of an earlier run, which would write to folders that the next run reads.
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
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from groundwork import files
from groundwork.guard import GRACE_SECONDS
from megabuild.engine.job import Job, Outcome
from megabuild.engine.worker import LOGINS
from megabuild.isolation.base import Isolation, Mount

_POLL_SECONDS = 0.05
_TAIL_LINES = 20
#: Set for rattler-build itself. Build scripts do not get it; they have the script variables below.
_MARKER = "MEGABUILD_STATE"
#: Subfolder of a state folder: state folders of package tests, which run in parallel with its worker.
TESTS = "tests"
_SCRIPT_VARIABLES = ("PREFIX", "SRC_DIR", "BUILD_PREFIX")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Isolation, paths and mounts of a task's worker; paths named ``inside`` are as the worker sees them."""

    isolation: Isolation
    state: Path  #: the task's state folder; the worker sees only the parts in ``mounts``
    state_inside: str
    packages_inside: str  #: the folder that contains ``megabuild`` and ``groundwork``
    python: str  #: interpreter of the worker
    site_inside: str  #: the folder that contains ``rattler_build``
    mounts: Sequence[Mount]  #: everything that the worker needs
    passing_mounts: Sequence[Mount] = ()  #: further ones, which exist only during the run
    recipe: str = ""  #: the recipe file's path inside
    channels: tuple[str, ...] = ()  #: URLs as rattler-build sees them, without credentials
    logins: str = field(default="", repr=False)  #: the channels' credentials, as rattler's file has them
    source: str | None = None  #: the provider's source tree inside, or None
    #: variables for rattler-build: its caches, and the machine to build for
    environment: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)  #: by name: paths inside of further folders

    @property
    def name(self) -> str:
        """Container name: one per state folder, so that a later run finds a leftover container."""
        return f"megabuild-{self.state.name}-{zlib.crc32(str(self.state.absolute()).encode()):08x}"

    def mount(self, name: str, *, writable: bool = False) -> Mount:
        """Return the mount of an entry of the state folder, under the same name inside."""
        return Mount(source=self.state / name, target=f"{self.state_inside}/{name}", writable=writable)


def run_worker(
    place: Place, job: Job, *, on_line: Callable[[str], None], on_tick: Callable[[], None]
) -> Outcome:
    """Run one job to its end; none of its processes survives, even if this function raises.

    ``on_line`` gets every line that the worker itself prints (scripts write to log files instead); ``on_tick`` is
    called about twenty times a second. An error in either ends the worker.

    Raises MegabuildError: The isolation refused to start the worker, or the outcome file is invalid.
    """
    # Builds can write to tmp too: with a new random name, an earlier build cannot have written the outcome.
    outcome_file = place.state / "tmp" / f"outcome-{uuid.uuid4().hex}.json"
    outcome_file.parent.mkdir(parents=True, exist_ok=True)
    files.write(place.state / "job.json", msgspec.json.encode(job), mode=0o600)
    environment = {
        "PYTHONPATH": place.site_inside,
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": f"{place.state_inside}/tmp",
        _MARKER: str(place.state.absolute()),
    }
    if place.logins:  # in no file: the worker's variables are in memory only
        environment[LOGINS] = place.logins
    packages = place.packages_inside
    state = place.state_inside
    argv = [place.python, f"{packages}/groundwork/guard.py"]
    argv += [place.python, f"{packages}/megabuild/engine/worker.py"]
    argv += [f"{state}/job.json", f"{state}/tmp/{outcome_file.name}"]
    mounts = [*place.mounts, *place.passing_mounts, place.mount("job.json")]
    place.isolation.stop(place.name)
    process = subprocess.Popen(
        place.isolation.command(argv, mounts=mounts, env=environment, cwd=state, name=place.name),
        env=place.isolation.environment(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    try:
        for lines in _listen(process):
            for line in lines:
                tail.append(line)
                on_line(line)
            on_tick()
    finally:
        end(process, place)
    failure = place.isolation.failure(process.returncode, output="\n".join(tail))
    if failure is not None and not os.path.lexists(outcome_file):
        raise failure
    return Outcome.read(outcome_file, process.returncode)


def _listen(process: subprocess.Popen[bytes]) -> Iterator[list[str]]:
    """Yield new lines of a process's output, often none, until it ends, even if another process keeps the pipe open."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    unfinished = b""
    is_open = True
    while is_open or process.poll() is None:
        lines: list[bytes] = []
        if not is_open:
            time.sleep(_POLL_SECONDS)
        elif select.select([pipe], [], [], _POLL_SECONDS)[0]:
            data = os.read(pipe, 65536)
            is_open = bool(data)
            *lines, unfinished = (unfinished + data).split(b"\n")
        elif process.poll() is not None:
            break
        yield [line.decode(errors="replace") for line in lines]
    rest = []
    if unfinished:
        rest.append(unfinished.decode(errors="replace"))
    yield rest


def end(process: subprocess.Popen[bytes], place: Place) -> None:
    """End a worker and all its processes; fast if the worker has ended already.

    Closing its standard input tells the guard to end them, which works through containers too. Processes that survive
    for a few seconds are killed.
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
    """Return the processes of a state folder's runs: rattler-build, build scripts, compilers, tests.

    Processes with a terminal are left out: builds have none, but a user's shell may have sourced a build's environment.
    Processes of the subfolder ``but`` are left out too.
    """
    processes: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if not _is_of(state.absolute(), process.environ(), but):
                continue
            if process.pid != os.getpid() and not process.terminal():
                processes.append(process)
    return processes


def _is_of(state: Path, environment: Mapping[str, str], but: Path | None) -> bool:
    """Return whether a process with this environment is of a run in ``state``, outside its subfolder ``but``."""
    if environment.get(_MARKER) == str(state):
        return True
    for name in _SCRIPT_VARIABLES:
        folder = environment.get(name, "")
        is_other = but is not None and folder.startswith(f"{but.absolute()}/")
        if folder.startswith(f"{state}/") and not is_other:
            return True
    return False


def end_strays(state: Path, *, but: Path | None = None) -> int:
    """Kill the processes that :func:`strays` returns, wait up to 5 seconds for their end, and return their number.

    The caller must hold the state's lock, so that no process belongs to another run.
    """
    processes = strays(state, but=but)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=5.0)
    return len(processes)
