"""Compiles on other machines, through icecream: how many answer, and what this machine needs for it.

icecream, since it sends the compiler along: a worker's own one is never used, where distcc asks for the same one
everywhere; and it goes behind ccache, in whose place sccache's distribution comes (docs/distributed-compiles.md).
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from groundwork.errors import PreflightError, UsageError
from groundwork.wording import counted

#: Of the scheduler, and one above it where people ask (icecc-scheduler's manual page, icecream 1.4).
PORT = 8765
#: What is needed on this machine: the client, and what packs a compiler for it.
CLIENT, PACKER = "icecc", "icecc-create-env"
#: Where the daemon listens for clients of its machine.
SOCKET = Path("/run/icecc/iceccd.socket")
_ADDRESS = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
#: A machine in the scheduler's list; the port is 0 where it takes no work of others.
_MACHINE = re.compile(r"^ (\S+) \(\S+:(\d+)\) \[(\S+)\] .*?jobs=\d+/(\d+)", re.MULTILINE)
_END = "200 done"
_SECONDS, _MOST_BYTES = 3.0, 1 << 20
_REMEDY = "install icecream (Debian: apt-get install icecc), or leave out --distribute"


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The machines that take compiles."""

    scheduler: str = ""  #: its address; empty where nothing is distributed
    machines: int = 0
    cores: int = 0  #: compiles that they take at once, all together

    def __str__(self) -> str:
        return f"{counted(self.machines, 'machine')} with {counted(self.cores, 'core')}"


def find_workers(address: str) -> Workers:
    """Ask icecream's scheduler which machines of this one's kind take compiles.

    Raises UsageError: That is no address.
    Raises PreflightError: No scheduler answers there, or no machine would take anything.
    """
    match = _ADDRESS.fullmatch(address)
    port = int(match[2] or PORT) if match else 0
    if match is None or not 0 < port < 65535:
        raise UsageError(
            f"{address!r} is not the address of a scheduler",
            "name it as HOST or HOST:PORT: --distribute build1",
        )
    try:
        answer = _ask(match[1].strip("[]"), port + 1)
    except OSError as error:
        raise PreflightError(
            f"no icecream scheduler answers at {address}: {error.strerror or error}",
            f"start icecc-scheduler there, open its ports {port} and {port + 1}, or leave out --distribute",
        ) from error
    kind = platform.machine()
    cores = [
        int(jobs) for _, at, of, jobs in _MACHINE.findall(answer) if int(at) and of == kind and int(jobs)
    ]
    if not cores:
        raise PreflightError(
            f"the icecream scheduler at {address} knows no {kind} machine that takes compiles",
            f"start iceccd on some (iceccd -d -s {match[1]}), or leave out --distribute",
        )
    return Workers(scheduler=address, machines=len(cores), cores=sum(cores))


def require_client() -> None:
    """Make sure that this machine can send compiles away.

    Raises PreflightError: A program is missing, or the daemon does not run.
    """
    if lacking := [program for program in (CLIENT, PACKER) if shutil.which(program) is None]:
        raise PreflightError(f"not installed, and needed by --distribute: {', '.join(lacking)}", _REMEDY)
    with suppress(OSError), socket.socket(socket.AF_UNIX) as own:
        own.connect(os.fspath(SOCKET))
        return
    raise PreflightError(
        f"icecream's daemon, by which this machine sends compiles away, does not listen at {SOCKET}",
        "start it as root (iceccd -d -s SCHEDULER; with --no-remote it takes no compiles of others), or leave out "
        "--distribute",
    )


def _ask(host: str, port: int) -> str:
    """Return the scheduler's list of machines; raises OSError, also where somebody else answers."""
    with socket.create_connection((host, port), _SECONDS) as link:
        link.settimeout(_SECONDS)
        link.sendall(b"listcs\nquit\n")
        data = b""
        while len(data) < _MOST_BYTES and (part := link.recv(65536)):
            data += part
            if not data.startswith(b"200-ICECC"[: len(data)]):
                break
            if _END.encode() in data:
                return data.decode(errors="replace")
    raise OSError("what answers is no icecream scheduler")
