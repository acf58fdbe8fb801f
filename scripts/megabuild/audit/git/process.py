"""One git process: no prompt, nothing run from a repository, bounded in time, output and bytes written."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from megabuild.errors import AuditError
from megabuild.network import redact

_OUTPUT = 64 << 20  # bytes; the longest real list of refs has about 10 MB
_WRITTEN = 4 << 30  # bytes in one file; no real history without files comes near
_TOO_LONG = "the server is slow or does not answer: try later, or allow more with --timeout SECONDS"
#: What a caller's repository sets for its hooks (`git rev-parse --local-env-vars`), and other people's tracing. The
#: variables that hold settings (proxies, certificates, insteadOf) stay.
_FOREIGN = re.compile(
    r"GIT_(DIR|WORK_TREE|COMMON_DIR|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|NAMESPACE|PREFIX"
    r"|SHALLOW_FILE|GRAFT_FILE|REPLACE_REF_BASE|INTERNAL_SUPER_PREFIX|IMPLICIT_WORK_TREE|CONFIG|TEMPLATE_DIR"
    r"|EXEC_PATH|TRACE.*|CURL_VERBOSE|REFLOG_ACTION|QUARANTINE_PATH|PROTOCOL|LITERAL_PATHSPECS|DEFAULT_.*)"
)
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",  # since git 2.45; before, GIT_ALLOW_PROTOCOL does it
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_DEFAULT_REF_FORMAT": "files",
    "LC_ALL": "C",
    "LANGUAGE": "C",
}
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=true",
    "core.logAllRefUpdates=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.ext.allow=never",
    "credential.interactive=never",
    "fetch.unpackLimit=1",  # packs, so that what came can be measured
    "fetch.writeCommitGraph=false",
    "fetch.recurseSubmodules=false",
    "fetch.prune=false",
    "fetch.pruneTags=false",
    "fetch.showForcedUpdates=false",
    "transfer.bundleURI=false",
    "transfer.advertiseSID=false",
    "log.showSignature=false",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=30",
)
_PACKET = re.compile(rb"packet:\s+(\S+?)< (.*)")
# Control characters, those that turn the writing direction, and bytes that were no text.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a git process ended.

    Parameters
    ----------
    code:
        Exit status; negative for a signal.
    out, err:
        What it wrote.
    received:
        Bytes of git's protocol that came from the other side, packs left out.
    abilities:
        What the other side can do: words of protocol version 0's first line or of version 2's ``fetch=``.
    """

    code: int
    out: bytes
    err: str
    received: int = 0
    abilities: frozenset[str] = frozenset()

    @property
    def problem(self) -> str:
        """One line for a person: what git or the server complained of."""
        lines = [shown(line) for line in re.split(r"[\r\n]+", self.err) if line.strip()]
        serious = [line for line in lines if line.startswith(("fatal:", "error:", "remote: fatal:", "ssh:"))]
        return (serious or lines or [f"git ended with status {self.code}"])[0][:300]


def shown(text: str) -> str:
    """Return text from outside as it may go to a terminal: no control characters, no secrets in addresses."""
    return redact.text(_CONTROL.sub("?", text)).strip()


def run(
    arguments: Sequence[str],
    *,
    seconds: float,
    folder: Path | None = None,
    protocols: Collection[str] = (),
    settings: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    output: int = _OUTPUT,
    written: int = _WRITTEN,
    until: re.Pattern[bytes] | None = None,
    traced: bool = False,
) -> Answer:
    """Run git; its exit status is for the caller to judge.

    Parameters
    ----------
    arguments:
        After ``git``. Nothing in them that came from outside may start with a dash.
    seconds:
        After which it is killed, with all its children.
    folder:
        A bare repository, for ``--git-dir``; None where none is needed.
    protocols:
        Those that may be spoken; by default none, so that git cannot fetch behind our back.
    settings:
        Further configuration, as for ``git -c``.
    output:
        Bytes of standard output, and of standard error, after which it is killed.
    written:
        Bytes after which the system stops a process that writes a larger file.
    until:
        It is ended as soon as standard error matches.
    traced:
        Show on standard error which programs git starts.

    Raises
    ------
    AuditError
        git is not installed, took too long, or said too much.
    """
    if shutil.which("git") is None:
        raise AuditError("git is not installed", "install it (Debian: git; conda: git)")
    if seconds <= 0:
        raise AuditError("the time was over first", "allow more: --timeout SECONDS")
    words = ["git", *(word for text in _SETTINGS for word in ("-c", text))]
    words += [word for key, value in (settings or {}).items() for word in ("-c", f"{key}={value}")]
    words += [f"--git-dir={folder}"] if folder is not None else []
    words += arguments
    # A shell, since no function may run between fork and exec where there are threads. ulimit counts 512 or 1024 bytes.
    limited = ["sh", "-c", 'ulimit -c 0; ulimit -f "$1"; shift; exec "$@"', "sh", str(written // 512), *words]
    with tempfile.TemporaryDirectory(prefix="megabuild-git-") as temporary:
        trace = Path(temporary) / "packets"
        environment = {key: value for key, value in os.environ.items() if not _FOREIGN.fullmatch(key)}
        # Without a repository of its own, git must not find one around the current folder.
        environment |= _QUIET | {
            "GIT_ALLOW_PROTOCOL": ":".join(sorted(protocols)) or "none",
            "GIT_TRACE": "2" if traced else "0",
        }
        if until is None:  # else the trace itself could be the file that grows too large
            environment["GIT_TRACE_PACKET"] = str(trace)
        if folder is None:
            environment["GIT_DIR"] = str(Path(temporary) / "none")
        with tempfile.TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            process = subprocess.Popen(
                limited,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd=temporary,
                start_new_session=True,  # no terminal to ask at, and a group of its own to kill
            )
            last = functools.partial(_kill, process)  # should this thread not live to the program's end
            atexit.register(last)
            try:
                out, err = _read(process, time.monotonic() + seconds, seconds, output, until)
                code = process.wait()
            finally:
                _kill(process)
                atexit.unregister(last)
        received, abilities = _packets(trace, arguments[0])
    return Answer(
        code=code, out=out, err=err.decode(errors="replace"), received=received, abilities=abilities
    )


def _read(
    process: subprocess.Popen[bytes], end: float, seconds: float, limit: int, until: re.Pattern[bytes] | None
) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = bytearray(), bytearray()
    streams: dict[IO[bytes], bytearray] = {process.stdout: out, process.stderr: err}
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                raise AuditError(f"git took longer than {seconds:.0f} s", _TOO_LONG)
            for key, _ in selector.select(left):
                stream = next(stream for stream in streams if stream is key.fileobj)
                block = os.read(stream.fileno(), 1 << 16)
                streams[stream] += block
                if not block:
                    selector.unregister(stream)
                if len(streams[stream]) > limit:
                    raise AuditError(f"git said more than {limit >> 20} MB", "the server does not behave")
            if until is not None and until.search(err):
                _kill(process)
                break
    left = end - time.monotonic()
    try:  # it may have closed its output and linger
        process.wait(max(left, 0.1))
    except subprocess.TimeoutExpired:
        raise AuditError(f"git took longer than {seconds:.0f} s", _TOO_LONG) from None
    return bytes(out), bytes(err)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the whole group: git's helpers for a protocol outlive git itself when only that is killed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _packets(trace: Path, command: str) -> tuple[int, frozenset[str]]:
    """Add up what came. Over http the helper ("git") and the command itself may both tell of the same packets."""
    sums: dict[str, int] = {}
    abilities: set[str] = set()
    if not trace.is_file():
        return 0, frozenset()
    with trace.open("rb") as stream:
        for line in stream:
            found = _PACKET.search(line)
            if found is None:
                continue
            speaker, payload = found[1].decode(errors="replace"), found[2]
            sums[speaker] = sums.get(speaker, 0) + 4 + len(payload)
            if payload == b"version 2":
                abilities.add("version2")
            elif payload.startswith(b"fetch="):
                abilities.update(payload[len("fetch=") :].decode(errors="replace").split())
            elif b"\\0" in payload and not abilities:
                abilities.update(payload.partition(b"\\0")[2].decode(errors="replace").split())
    came = max(sums.get(command, 0), sums.get("git", 0)) + sums.get("sideband", 0)
    return came, frozenset(abilities)
