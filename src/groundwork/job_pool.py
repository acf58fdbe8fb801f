"""One limit on the compile jobs of several builds that run at the same time: GNU make's jobserver.

Each build has a named pipe with its own tokens, and one job without a token. `ninja` (since 1.13) starts a further job
for each token that it takes from the pipe, and puts the token back at the job's end. The pool moves tokens that lie
unused in one build's pipe to a build that has used up its own.

A killed program keeps its tokens. Since each build has its own pipe, the record of granted tokens says how many these
are: :meth:`PoolMember.refill` puts them back as soon as none of the build's programs runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import socket
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from groundwork.jobs import Budget

_TOKEN = b"+"
_RECORD = "granted.json"
#: Folder of locks for heavy compilers, which builds write.
_LOCKS = "locks"
#: Pools of one output folder are below it.
_FOLDER = ".job-pools"


def jobserver(pipe: str) -> str:
    """Return the value of ``MAKEFLAGS`` with which programs take jobs from a pipe."""
    return f" -j --jobserver-auth=fifo:{pipe}"


@dataclass(frozen=True, kw_only=True)
class PoolMember:
    """A build's part of a pool, for the process that carries the build out."""

    folder: Path  #: of the pool
    name: str  #: the build's
    share: int  #: the build's jobs if all are shared out equally; for programs that know no jobserver
    is_fixed: bool  #: the build has its share and no pipe: its programs know no jobserver
    most: int  #: jobs of all builds together
    heavy_jobs: int  #: jobs of all builds together that may compile heavy objects; 0: no limit

    @property
    def pipe(self) -> Path:
        """The build's named pipe."""
        return self.folder / self.name

    @property
    def locks(self) -> Path:
        """The folder of locks that heavy compilers of all builds share."""
        return self.folder / _LOCKS

    def refill(self) -> None:
        """Have all granted tokens in the pipe again; none of the build's programs may be running."""
        with _granted(self.folder) as granted, _opened(self.pipe) as pipe:
            _read(pipe, _waiting(pipe))
            _put(pipe, granted[self.name] - 1)

    def take(self) -> bool:
        """Take a token for a program that is to be started; return whether there was one."""
        with _opened(self.pipe) as pipe:
            return _read(pipe, 1) != b""

    def give(self) -> None:
        """Put a token back."""
        with _opened(self.pipe) as pipe:
            _put(pipe, 1)

    def halve(self) -> int:
        """Give up half of the build's jobs for good; return the number left, 0 if there was only one.

        No other build gets them, and none of the build's programs may be running.
        """
        with _granted(self.folder) as granted:
            left = granted[self.name] // 2
            granted[self.name] = max(1, left)
        self.refill()
        return left


class JobPool:
    """The pool, for the process that starts the builds; its files are removed at the end of the context."""

    def __init__(self, output: Path, *, most: int, places: int, heavy_jobs: int) -> None:
        """``most``: jobs of all builds together, at least ``places``, the number of builds at a time."""
        self._most = most
        self._share = most // places
        self._heavy_jobs = heavy_jobs
        self._spare = most
        self._pipes: dict[str, int] = {}
        self._folder = _make_folder(output / _FOLDER)

    def __enter__(self) -> JobPool:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes.values():
            os.close(pipe)
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another pool is in use
            self._folder.parent.rmdir()

    def join(self, name: str, *, is_fixed: bool) -> PoolMember:
        """Grant a build its share of the jobs, or those that are left; ``is_fixed``: it keeps exactly these.

        One without a fixed share may join beside others: it begins with the jobs that they do not use. Others join
        before the first :meth:`balance`, or in the place of one that has left since the last one.
        """
        with _granted(self._folder) as granted:
            if not is_fixed and self._spare < self._share:
                self._spare = self._collect(granted)
            jobs = max(1, min(self._share, self._spare))
            self._spare -= jobs  # below 0 if all were in use: the first unused token makes up for it
            granted[name] = jobs
        member = PoolMember(
            folder=self._folder, name=name, share=jobs, is_fixed=is_fixed, most=self._most,
            heavy_jobs=self._heavy_jobs,
        )  # fmt: skip
        if not is_fixed:
            os.mkfifo(member.pipe, 0o600)
            # open for reading and writing until the build has left, so that tokens stay in the pipe
            self._pipes[name] = os.open(member.pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            member.refill()
        return member

    def leave(self, name: str) -> None:
        """Take the jobs of a build that has ended, with all its programs."""
        with _granted(self._folder) as granted:
            self._spare += granted.pop(name)
        pipe = self._pipes.pop(name, None)
        if pipe is not None:
            os.close(pipe)
            (self._folder / name).unlink()

    def balance(self) -> None:
        """Share out unused tokens equally among the builds that have none; call it several times a second."""
        with _granted(self._folder) as granted:
            hungry = [name for name, pipe in self._pipes.items() if not _waiting(pipe)]
            if not hungry:
                return
            unused = self._collect(granted)
            if unused < 0:
                self._spare = unused
                return
            for number, name in enumerate(sorted(hungry, key=lambda name: granted[name])):
                tokens = math.ceil(unused / (len(hungry) - number))
                _put(self._pipes[name], tokens)
                granted[name] += tokens
                unused -= tokens

    def _collect(self, granted: dict[str, int]) -> int:
        """Take the jobs of builds that have left, and the unused tokens of the others; return their number.

        Each build keeps one of its unused tokens: ninja looks for further ones only when one of its jobs ends, and
        asks for more by using it.
        """
        unused = self._spare
        self._spare = 0
        for name, pipe in self._pipes.items():
            taken = len(_read(pipe, max(0, _waiting(pipe) - 1)))
            granted[name] -= taken
            unused += taken
        return unused

    @property
    def in_use(self) -> int:
        """The number of jobs in use; a fixed share counts, and the job of each build without a token."""
        with _granted(self._folder) as granted:
            return sum(granted.values()) - sum(_waiting(pipe) for pipe in self._pipes.values())


class PoolBudget(Budget):
    """Compile jobs of one build's tasks, from a pool: the first task has the job without a token, others one each."""

    def __init__(self, member: PoolMember, *, tasks: int = 1, heavy_jobs: int = 0) -> None:
        super().__init__(member.share, tasks=tasks, heavy_jobs=heavy_jobs)
        self._member = member
        self._running = 0
        self._may_repeat = True

    def acquire(self, *, last: bool) -> int:
        """Return the jobs that a task may use without asking the pool, 0 if no further task may start."""
        if self._running == 0:
            self._member.refill()
        elif self._running == self._tasks or not self._member.take():
            return 0
        self._running += 1
        return self._count

    def release(self, share: int) -> None:
        """Return a finished task's token."""
        self._running -= 1
        if self._running:
            self._member.give()

    def halve(self) -> int:
        """Halve the build's jobs after memory ran out; return the new number, or 0 if a retry cannot help.

        A build with one job is tried once more: other builds may have used the memory.
        """
        super().halve()
        left = self._member.halve()
        if left or not self._may_repeat:
            return left
        self._may_repeat = False
        return 1


def _make_folder(parent: Path) -> Path:
    """Make the folder of a new pool; remove those that killed processes of this machine left."""
    parent.mkdir(parents=True, exist_ok=True)
    host = socket.gethostname()
    for folder in parent.iterdir():
        owner, _, process_id = folder.name.rpartition("-")
        if owner == host and process_id.isdecimal() and not psutil.pid_exists(int(process_id)):
            shutil.rmtree(folder, ignore_errors=True)
    folder = parent / f"{host}-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)  # of a killed process with the same number
    (folder / _LOCKS).mkdir(parents=True)
    (folder / _RECORD).write_text("{}\n")
    return folder


@contextlib.contextmanager
def _granted(folder: Path) -> Iterator[dict[str, int]]:
    """Yield the granted jobs of each build, locked; changes are written at the end."""
    with (folder / _RECORD).open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        granted: dict[str, int] = json.loads(file.readline())
        before = dict(granted)
        yield granted
        if granted != before:
            file.seek(0)
            # one write, in which a kill leaves no half; a longer former line leaves characters after this one
            file.write(json.dumps(granted) + "\n")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield pipe
    finally:
        os.close(pipe)


def _waiting(pipe: int) -> int:
    """Return the number of tokens in a pipe."""
    answer = fcntl.ioctl(pipe, termios.FIONREAD, bytes(struct.calcsize("i")))
    (number,) = struct.unpack("i", answer)
    return int(number)


def _read(pipe: int, most: int) -> bytes:
    """Take up to so many tokens; builds may take some at the same moment."""
    if most == 0:
        return b""
    try:
        return os.read(pipe, most)
    except BlockingIOError:
        return b""


def _put(pipe: int, tokens: int) -> None:
    os.write(pipe, _TOKEN * tokens)
