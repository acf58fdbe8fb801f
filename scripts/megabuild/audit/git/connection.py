"""Conversations with one remote repository: allowed protocols, places per host, retries, bytes counted."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from megabuild.audit.git.addresses import Address, parse
from megabuild.audit.git.process import Answer, run, shown
from megabuild.errors import AuditError
from megabuild.network.services import Services

_LOCAL_SECONDS = 20.0
_PAUSES = (0.3, 1.2)  # before the second and third attempt
_PATIENCE = 2  # times that a host may stay silent before it is left alone
_OFFLINE = "run it once with the network, without --offline"
_NO_NETWORK = "check the network, its proxy settings and git's own configuration"
_MAY_PASS = re.compile(
    r"early EOF|RPC failed|hung up|unexpected disconnect|reset by peer|requested URL returned error: (5\d\d|429)"
    r"|unexpected EOF|timed out",
    re.IGNORECASE,
)
_SILENT = re.compile(
    r"Could not resolve|unable to look up|unable to connect|Connection refused|Failed to connect|timed out"
    r"|Couldn't connect|No route|unreachable|resolve hostname",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(
    r"Authentication failed|could not read (Username|Password)|returned error: 40[134]", re.IGNORECASE
)
_MOVED = re.compile(r"^warning: redirecting to (\S+)", re.MULTILINE)


def failure(address: Address, answer: Answer) -> AuditError:
    """Return what to tell of an answer that is none."""
    # Hosts do not tell strangers which private repositories there are.
    hint = " (there is no such repository, or it is private)" if _UNKNOWN.search(answer.err) else ""
    return AuditError(f"{address.host or 'git'}: {answer.problem}{hint}")


class Hosts:
    """Which hosts have stayed silent: once is bad luck, after that asking again would only cost time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._silent: dict[str, int] = {}

    def check(self, host: str) -> None:
        """Raise AuditError if a host is known to stay silent."""
        with self._lock:
            silent = self._silent.get(host, 0) >= _PATIENCE
        if silent:
            raise AuditError(f"{host} did not answer before: not asked again", _NO_NETWORK)

    def spoke(self, host: str, *, answered: bool) -> None:
        """Remember whether a host answered."""
        with self._lock:
            self._silent[host] = 0 if answered else self._silent.get(host, 0) + 1


class Connection:
    """Asks one remote repository. Safe for threads.

    Parameters
    ----------
    address:
        As .gitmodules or the user has it; git's own ``url.<base>.insteadOf`` may lead elsewhere.
    services:
        Time limit, places per host, offline or not.
    hosts:
        Shared by all connections of a run.
    """

    def __init__(self, address: Address, services: Services, hosts: Hosts) -> None:
        self.address = address
        self.services = services
        self.received = 0
        self.moved = ""  #: where the server redirects to, if it does
        self._hosts = hosts
        self._lock = threading.Lock()
        self._real: Address | None = None

    @property
    def folder(self) -> Path:
        """Where git's part of the cache lies."""
        return self.services.cache.folder.absolute() / "git"

    def ask(
        self,
        arguments: Sequence[str],
        *,
        seconds: float,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        written: int | None = None,
        until: re.Pattern[bytes] | None = None,
    ) -> Answer:
        """Run a git command that talks to the repository; what may pass is tried three times.

        Parameters
        ----------
        arguments, folder, settings, stdin, written, until:
            As for :func:`megabuild.audit.git.process.run`.
        seconds:
            Per attempt.

        Raises
        ------
        AuditError
            No answer in time, or there must be none (offline).
        """
        real = self._resolved()
        name = real.host or "local files"
        if self.services.offline and not real.local:
            raise AuditError("not in the cache, and --offline forbids to fetch it", _OFFLINE)
        protocols = {real.protocol} | ({"https"} if real.protocol == "http" else set())
        limits = {} if written is None else {"written": written}
        pauses = [*_PAUSES]
        while True:
            self._hosts.check(name)
            with self.services.host(name):
                try:
                    answer = run(
                        arguments,
                        seconds=min(seconds, self.services.remaining()),
                        folder=folder,
                        protocols=protocols,
                        settings=settings,
                        stdin=stdin,
                        until=until,
                        traced=until is not None,
                        **limits,
                    )
                except AuditError as error:
                    self._hosts.spoke(name, answered=False)
                    raise AuditError(f"{name}: {error.message}", error.remedy) from error
            self._note(answer)
            failed = answer.code != 0 and until is None
            silent = failed and _SILENT.search(answer.err) is not None
            self._hosts.spoke(name, answered=not silent)
            if silent:
                raise AuditError(f"{name}: {answer.problem}", _NO_NETWORK)
            if not failed or not _MAY_PASS.search(answer.err) or not pauses:
                return answer
            time.sleep(min(pauses.pop(0) * random.uniform(0.8, 1.2), self.services.remaining()))

    def add(self, received: int) -> None:
        """Count bytes that came in a pack."""
        with self._lock:
            self.received += received

    def _note(self, answer: Answer) -> None:
        moved = _MOVED.search(answer.err)
        with self._lock:
            self.received += answer.received
            self.moved = shown(moved[1]).rstrip("/") if moved is not None else self.moved

    def _resolved(self) -> Address:
        """Return the address after the user's own rewriting, which may lead to a mirror on this machine."""
        with self._lock:
            if self._real is None:
                answer = run(["ls-remote", "--get-url", "--", self.address.text], seconds=_LOCAL_SECONDS)
                text = answer.out.decode(errors="replace").removesuffix("\n")
                if answer.code != 0 or text == self.address.text:
                    self._real = self.address
                else:
                    self._real = replace(parse(text), text=text)
            return self._real
