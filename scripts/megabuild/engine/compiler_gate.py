"""Before a compiler that really runs: waits until its memory fits beside the others', and notes it and what it took.

    python3 -IS compiler_gate.py SETTINGS FOLDER [--unnoted] COMPILER ARGUMENT...

Runs in the build's place with whatever Python lies there: standard library only, and few imports, since every object
pays for them. Behind the object cache, so that nothing waits that is there already. ``SETTINGS`` is the driver's
(:meth:`megabuild.plan.limits.Limits.text`); in ``FOLDER``, which is the build's, lie the locks and the notes.

Memory is counted in units, each a byte of one file that is locked while a compiler runs. POSIX record locks belong to
one process: no compiler inherits them, and the kernel releases them however that process ends, so that nothing can
stay locked. Ordinary objects and heavy ones have a part of the units each, and may use what is free of the other's
while nobody waits for it. Those that wait stand in a line for each of the two, of which only the first looks around.

Nobody waits for ever: the first in the heavy line keeps the units of its own part that it has; the first in the other
line keeps none until it has all. Where more is wanted than there is, everything there is will do: it runs alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time

UNIT = 128 << 20
NOTES, _LOCKS = "compiler-memory.log", "compiler-locks"
#: Signs of the notes: an object is begun; compiled, or not; its compiler has ended, and what it took is not known.
BEGUN, DONE, FAILED, ENDED = b">", b"+", b"-", b"="
#: Before the compiler: what it takes is not noted.
UNNOTED = "--unnoted"
_POLL_SECONDS = 0.04
_LONGEST_NAME = 300
#: What is known of an object is what it took once, at its peak, which few others reach at the same moment.
MARGIN = 1.03
#: Bytes of the file of locks: the two lines, then the units.
_LINE = {False: 0, True: 1}
_UNITS = 1_000
#: Signals by number, the same on Linux and macOS: the module that names them costs a third of the start.
_SIGHUP, _SIGINT, _SIGKILL, _SIGPIPE, _SIGTERM, _SIGXFSZ = 1, 2, 9, 13, 15, 25
_KIB = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


class Settings:
    """What the driver allows: lines of a word and a number, then one line for every object that is known."""

    def __init__(self, content: bytes) -> None:
        head, _, self._known = content.partition(b"\n\n")
        lines = [line.split(b" ") for line in head.split(b"\n")]
        values = {line[0]: int(line[1]) for line in lines if len(line) == 2}
        self.light = values[b"light"]  #: units of ordinary objects
        self.heavy = values[b"heavy"]  #: units of heavy ones
        self._ordinary = values[b"ordinary"]  #: bytes of an object that is not known
        self._cuda = values[b"cuda"]  #: the same where nvcc makes it
        self._above = values[b"above"]  #: bytes of more than which an object is heavy
        self._named = [(line[2], int(line[1])) for line in lines if len(line) == 3]

    def size(self, name: bytes, *, cuda: bool) -> int:
        """Return the bytes that an object is expected to take: what it took before, else by its name."""
        place = (b"\n" + self._known).find(b" " + name + b"\n")
        if place > 0:
            start = self._known.rfind(b"\n", 0, place - 1) + 1
            return int(int(self._known[start : place - 1]) * MARGIN)
        if cuda:
            return next((size for part, size in self._named if part in name), self._cuda)
        return self._ordinary

    def is_heavy(self, size: int) -> bool:
        """Return whether an object of a size belongs to the heavy ones."""
        return size > self._above


def object_name(command: list[str], folder: str) -> bytes:
    """Return an object's path below the folder in which it is compiled; nothing where no object is made."""
    places = [number for number, word in enumerate(command[:-1]) if word == "-o"]
    if "-c" not in command or "-E" in command or not places or "/CMakeFiles/CMake" in folder:
        return b""  # of the last: CMake tries what the compiler can do, under a new name each time
    path = os.path.normpath(os.path.join(folder, command[places[-1] + 1]))
    parts = (os.path.relpath(path, folder) if path.startswith(folder + "/") else path).split("/")
    # setuptools' folder names the platform and Python, and lies beside the sources or anywhere
    after = [number for number, part in enumerate(parts) if part.startswith("temp.")]
    name = "/".join(parts[after[-1] + 1 :] if after else parts)
    usable = name.isascii() and name.isprintable() and " " not in name and len(name) <= _LONGEST_NAME
    return name.encode() if usable else b""


class Gate:
    """The locks of one process."""

    def __init__(self, path: str, settings: Settings) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        self._settings = settings
        light = _UNITS + settings.light
        self._parts = {False: range(_UNITS, light), True: range(light, light + settings.heavy)}
        self._held: set[int] = set()

    def wait(self, size: int, *, heavy: bool) -> None:
        """Wait until so many bytes are this process's."""
        most = self._settings.light + (self._settings.heavy if heavy else 0)
        wanted = min(-(-size // UNIT), most)
        # it needs of the others' part as well, and they stand back
        alone = heavy and wanted > self._settings.heavy
        lines = [_LINE[True], _LINE[False]] if alone else [_LINE[heavy]]
        for line in lines:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, line)
        while not self._memory(wanted, heavy=heavy, alone=alone):
            time.sleep(_POLL_SECONDS)
        for line in lines:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, line)

    def _memory(self, wanted: int, *, heavy: bool, alone: bool) -> bool:
        """Take what is free of the own part, and then of the other one if that makes it enough; True if it is."""
        before = set(self._held)
        if self._take(self._parts[heavy], wanted):
            return True
        own = set(self._held)
        if alone:
            return self._take(self._parts[False], wanted)
        other = _LINE[not heavy]
        if self._try(other):  # nobody waits there, nor begins to for the moment
            try:
                if self._take(self._parts[not heavy], wanted):
                    return True
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, other)
        self._keep(own if heavy else before)
        return False

    def _take(self, units: range, wanted: int) -> bool:
        for unit in units:
            if len(self._held) >= wanted:
                return True
            if unit not in self._held and self._try(unit):
                self._held.add(unit)
        return len(self._held) >= wanted

    def _keep(self, units: set[int]) -> None:
        for unit in self._held - units:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, unit)
        self._held = units

    def _try(self, byte: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True


def run(command: list[str]) -> tuple[int, int, float]:
    """Run a compiler; return its wait status, and of it and its children the bytes of the largest and CPU seconds."""
    try:
        # Python ignores these two, and what is ignored is so in children
        child = os.posix_spawnp(command[0], command, os.environ, setsigdef=[_SIGPIPE, _SIGXFSZ])
    except OSError as error:
        print(f"{command[0]}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 127 << 8, 0, 0.0
    _, status, used = os.wait4(child, 0)
    return status, used.ru_maxrss * _KIB, used.ru_utime + used.ru_stime


def note(path: str, sign: bytes, name: bytes, size: int = 0, seconds: float = 0.0) -> None:
    """Add a line on an object to the notes; where that cannot be, the object is made all the same.

    At its end are the CPU seconds, in thousandths.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        os.write(file, b"%s %d %s %d\n" % (sign, size, name, 1000 * seconds))
        os.close(file)
    except OSError:
        return


def main(settings_file: str, folder: str, command: list[str]) -> int:
    """Wait, run, note; return the exit code."""
    unnoted = command[0] == UNNOTED
    command = command[unnoted:]
    name = object_name(command, os.getcwd())
    with open(settings_file, "rb") as file:
        settings = Settings(file.read())
    if name and (settings.light or settings.heavy):
        size = settings.size(name, cuda="nvcc" in os.path.basename(command[0]))
        try:
            gate = Gate(os.path.join(folder, _LOCKS), settings)  # holds until this process ends
            gate.wait(size, heavy=settings.is_heavy(size))
        except OSError:
            pass  # the build's folder has no locks: it is compiled all the same
    notes = os.path.join(folder, NOTES)
    if name:
        note(notes, BEGUN, name)
    status, peak, seconds = run(command)
    if name:
        known = peak and not unnoted
        note(notes, ENDED if not known else FAILED if status else DONE, name, peak, seconds)
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    ended_by = os.WTERMSIG(status)
    if ended_by in (_SIGKILL, _SIGTERM, _SIGINT, _SIGHUP):
        os.kill(os.getpid(), ended_by)  # as if it had been the compiler
    return 128 + ended_by


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
    except KeyboardInterrupt:
        sys.exit(128 + _SIGINT)  # the compiler has got it as well
