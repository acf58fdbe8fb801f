"""One limit on compilers over several builds at once: a GNU make jobserver whose books are kept per client.

The protocol (GNU make's manual, "POSIX Jobserver Interaction"): whoever wants to run another command reads a byte from
a FIFO and writes it back when the command has ended; every client may run one command without a byte. ninja >= 1.13 is
a client when ``MAKEFLAGS`` says ``--jobserver-auth=fifo:PATH``; it tries to read when it starts and whenever one of its
commands ends (measured with 1.13.2), and does not wait at the FIFO meanwhile.

A byte that a killed client had read is lost to a FIFO that all share, and nothing tells whose it was. So every client
has a FIFO of its own, and this end moves bytes between them: what a client holds is what it was given less what lies
unread in its FIFO, which is known to the byte, and is free again when the client is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_TOKEN = b"+"
#: A byte unread for so long goes to another client that has none to read.
_PATIENCE_SECONDS = 1.0


def makeflags(path: str, jobs: int) -> str:
    """Return the value of ``MAKEFLAGS`` that makes a build a client.

    Parameters
    ----------
    path:
        The client's FIFO as the build sees it.
    jobs:
        The limit, for clients that show it.
    """
    return f"-j{jobs} --jobserver-auth=fifo:{path}"


@dataclass
class _Client:
    path: Path
    descriptor: int
    given: int = 0
    unread_since: float = 0.0

    def unread(self) -> int:
        """Bytes in the FIFO: on offer, not in use."""
        return int(struct.unpack("i", fcntl.ioctl(self.descriptor, termios.FIONREAD, b"\0" * 4))[0])

    def give(self, count: int) -> None:
        os.write(self.descriptor, _TOKEN * count)
        self.given += count

    def take(self, count: int) -> int:
        """Take back what is unread, at most ``count`` bytes; a client may be quicker."""
        try:
            taken = len(os.read(self.descriptor, count)) if count > 0 else 0
        except BlockingIOError:
            taken = 0
        self.given -= taken
        return taken


class Jobserver:
    """Shares a number of jobs among clients; to be used from one thread.

    Parameters
    ----------
    limit:
        Jobs at once, at least one.
    clock:
        Seconds that only grow.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = max(1, limit)
        self._clock = clock
        self._clients: dict[str, _Client] = {}

    @property
    def limit(self) -> int:
        """Jobs at once."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = max(1, limit)
        self.balance()

    @property
    def clients(self) -> int:
        """Number of clients, each of which may run one job without a byte."""
        return len(self._clients)

    @property
    def given(self) -> int:
        """Bytes that clients hold or are offered."""
        return sum(client.given for client in self._clients.values())

    def room(self) -> bool:
        """Say whether another client's own job fits; takes back bytes on offer to make it so."""
        if self._spare() < 1:
            self._reclaim(1 - self._spare())
        return self._spare() >= 1

    def open(self, name: str, path: Path) -> None:
        """Take up a client; ask :meth:`room` first.

        Parameters
        ----------
        name:
            A name of its own.
        path:
            Where its FIFO is made; what lies there goes.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        # Open for both ends, so that the FIFO keeps its bytes while no build has it open; a build inherits none of it.
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._clients[name] = _Client(path=path, descriptor=descriptor)
        self.balance()

    def close(self, name: str) -> None:
        """Let a client go that has ended with everything below it: its own job and all its bytes are free."""
        client = self._clients.pop(name)
        os.close(client.descriptor)
        with contextlib.suppress(OSError):
            client.path.unlink()
        self.balance()

    def balance(self) -> None:
        """Offer what is free, evenly; take back what is too much, or what one client leaves and another may want."""
        now = self._clock()
        spare = self._spare()
        if spare < 0:
            self._reclaim(-spare)
            return
        unread = {name: client.unread() for name, client in self._clients.items()}
        hungry = [name for name, count in unread.items() if count == 0]
        for name, count in unread.items():
            client = self._clients[name]
            if count == 0:
                client.unread_since = now
            elif hungry and now - client.unread_since >= _PATIENCE_SECONDS:
                spare += client.take(count)
                client.unread_since = now
        # Those that have read everything they were offered come first, then those that hold least.
        order = sorted(self._clients, key=lambda name: (unread[name] > 0, self._clients[name].given))
        for turn in range(spare if order else 0):
            client = self._clients[order[turn % len(order)]]
            client.give(1)
            client.unread_since = now

    def _spare(self) -> int:
        return self._limit - self.clients - self.given

    def _reclaim(self, count: int) -> None:
        for client in sorted(self._clients.values(), key=lambda client: -client.given):
            if count > 0:
                count -= client.take(min(count, client.given))
