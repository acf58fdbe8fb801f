"""Real servers that keep what machines share: redis, and nginx as a server of files that takes ``PUT``."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny import wait_for

_NGINX = """\
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port};
    root {folder}/objects; client_max_body_size 1g;
    location / {{ dav_methods PUT DELETE; create_full_put_path on; }}
  }}
}}
"""


@dataclass
class Server:
    """A server that runs, and what it keeps."""

    address: str
    process: subprocess.Popen[bytes]
    tamper: Callable[[], int]  #: changes one byte in the middle of everything it keeps; returns of how many


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _redis(folder: Path, port: int) -> tuple[list[str], Callable[[], int]]:
    def ask(*words: bytes) -> bytes:
        done = subprocess.run(["redis-cli", "-p", str(port), *words], stdout=subprocess.PIPE, check=True)
        return done.stdout

    def tamper() -> int:
        names = ask(b"KEYS", b"*").split()
        for name in names:
            middle = int(ask(b"STRLEN", name)) // 2
            old = ask(b"GETRANGE", name, b"%d" % middle, b"%d" % middle)[:1]
            ask(b"SETRANGE", name, b"%d" % middle, b"y" if old == b"x" else b"x")
        return len(names)

    return ["redis-server", "--port", str(port), "--dir", str(folder), "--save", ""], tamper


def _nginx(folder: Path, port: int) -> tuple[list[str], Callable[[], int]]:
    (folder / "objects").mkdir()
    folder.chmod(0o755)
    (folder / "nginx.conf").write_text(
        "user root;\n" * (os.getuid() == 0) + _NGINX.format(folder=folder, port=port)
    )

    def tamper() -> int:
        kept = [path for path in (folder / "objects").rglob("*") if path.is_file()]
        for path in kept:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        return len(kept)

    return ["nginx", "-c", str(folder / "nginx.conf")], tamper


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Server]:
    """Run a server, ``redis`` or ``http``, that keeps what it has below ``folder``; a test that has none is skipped."""
    needed = ["redis-server", "redis-cli"] if kind == "redis" else ["nginx"]
    if lacking := [name for name in needed if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    port = _free_port()
    folder.mkdir()
    command, tamper = (_redis if kind == "redis" else _nginx)(folder, port)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(lambda: _answers(port), 10)
        yield Server(f"{kind}://127.0.0.1:{port}", process, tamper)
    finally:
        end(process)


def end(process: subprocess.Popen[bytes], how: int = signal.SIGKILL) -> None:
    """Send a server, and what it has started, a signal."""
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        return
    if how == signal.SIGKILL:
        process.wait(10)
