"""git processes: no prompt, nothing run from a repository, bounded in time, gone afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_random

from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.wording import plain

_SECONDS = 60.0
_PATIENCE = 2  # times that a host may stay silent before it is left alone
_NO_NETWORK = "check the network, its proxy settings and git's own configuration"
_MAY_PASS = re.compile(
    r"early EOF|RPC failed|hung up|unexpected disconnect|reset by peer|requested URL returned error: (5\d\d|429)"
    r"|unexpected EOF|timed out",
    re.IGNORECASE,
)
_SILENT = re.compile(
    r"Could not resolve|unable to look up|unable to connect|Connection refused|Failed to connect|timed out"
    r"|Couldn't connect|No route|unreachable|resolve hostname|took longer",
    re.IGNORECASE,
)
#: Of git's variables those that hold settings (insteadOf), proxies, certificates and ways to connect; the others are
#: what a caller's repository sets for its hooks, and tracing.
_KEPT = re.compile(r"(?!GIT_).*|GIT_(CONFIG_|SSH|SSL_|PROXY_|HTTP_).*")
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
    "LANGUAGE": "C",
}
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=true",
    "core.abbrev=7",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.ext.allow=never",
    "credential.interactive=never",
    "fetch.unpackLimit=1",
    "fetch.recurseSubmodules=false",
    "transfer.bundleURI=false",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=30",
)
_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True, kw_only=True)
class Said:
    """How a git process ended: its exit status (negative for a signal), and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """What it wrote, without blanks around it."""
        return self.out.decode(errors="replace").strip()

    @property
    def problem(self) -> str:
        """One line for a person: what git or the server complained of."""
        lines = [shown(line) for line in re.split(r"[\r\n]+", self.err) if line.strip()]
        serious = [line for line in lines if line.startswith(("fatal:", "error:", "remote: fatal:", "ssh:"))]
        return (serious or lines or [f"git ended with status {self.code}"])[0][:300]


def shown(text: str) -> str:
    """Return text from outside as it may go to a terminal: no control characters, no secrets in addresses."""
    return redact.text(plain(text)).strip()


def git(
    *arguments: str,
    seconds: float = _SECONDS,
    folder: Path | None = None,
    protocols: str = "none",
    settings: Sequence[str] = (),
    stdin: bytes = b"",
) -> Said:
    """Run git, without prompts and without what a repository names; its exit status is for the caller to judge.

    Parameters
    ----------
    arguments:
        Nothing in them that came from outside may start with a dash.
    seconds:
        After which it is killed, with all its children.
    folder:
        A bare repository; None where none is needed.
    protocols:
        Those that may be spoken, with colons between them; by default none, so that git cannot fetch behind our back.
    settings:
        Further configuration, as for ``git -c``.

    Raises
    ------
    AuditError
        git is not installed, or took too long.
    """
    if shutil.which("git") is None:
        raise AuditError("git is not installed", "install it (Debian: git; conda: git)")
    if seconds <= 0:
        raise AuditError("the time was over first", "allow more: --timeout SECONDS")
    words = ["git", *(word for text in (*_SETTINGS, *settings) for word in ("-c", text)), *arguments]
    environment = {key: value for key, value in os.environ.items() if _KEPT.fullmatch(key)}
    # without a repository of its own, git must not find one around the current folder
    environment |= _QUIET | {"GIT_ALLOW_PROTOCOL": protocols, "GIT_DIR": str(folder or os.devnull)}
    pipe = subprocess.PIPE
    # a session of its own: no terminal to ask at, and a group to kill
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd="/", start_new_session=True
    ) as process:
        _running.add(process)
        try:
            out, err = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AuditError(
                f"git took longer than {seconds:.0f} s",
                "the server is slow or does not answer: try later, or allow more with --timeout SECONDS",
            ) from None
        finally:
            # git's helpers for a protocol outlive git itself when only that is killed
            _kill(process)
            _running.discard(process)
    return Said(code=process.returncode, out=out, err=err.decode(errors="replace"))


class Hosts:
    """The hosts of a run: what may pass is tried three times, who stays silent is left alone. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._silent: dict[str, int] = {}

    def ask(self, host: str, question: Callable[[], Said]) -> Said:
        """Run git where it talks to a host; raises AuditError where that does not answer."""
        retrying = Retrying(
            stop=stop_after_attempt(3),
            wait=wait_random(0.2, 1.0),
            retry=retry_if_result(lambda said: said.code != 0 and _MAY_PASS.search(said.err) is not None),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        return retrying(self._once, host, question)

    def _once(self, host: str, question: Callable[[], Said]) -> Said:
        if self._silent.get(host, 0) >= _PATIENCE:
            raise AuditError(f"{host} did not answer before: not asked again", _NO_NETWORK)
        try:
            said = question()
            if said.code != 0 and _SILENT.search(said.err):
                raise AuditError(said.problem, _NO_NETWORK)
        except AuditError as error:
            with self._lock:
                self._silent[host] = self._silent.get(host, 0) + 1
            raise AuditError(f"{host}: {error.message}", error.remedy) from error
        self._silent[host] = 0
        return said


def stop() -> None:
    """Kill what threads still have running when the audit is over or interrupted: a git that waits for its server."""
    for process in tuple(_running):
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
