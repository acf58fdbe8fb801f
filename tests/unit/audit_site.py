"""A web server for the audit's tests that serves what a test says, and misbehaves as it says."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from groundwork.network.client import Timeouts
from megabuild.configs.config import Config
from megabuild.configs.provider_name import ProviderName
from pin_audit.facts import AuditTarget, SourceOutcome
from pin_audit.repositories import Repositories
from pin_audit.request import AuditRequest
from pin_audit.run_sources import outcome_of
from pin_audit.services import Services

#: For servers that answer, however busy the machine is.
PATIENT = Timeouts(connect=30.0, read=30.0, total=120.0, pause=0.02)
#: For servers that do not.
IMPATIENT = Timeouts(connect=1.0, read=0.3, total=1.0, pause=0.02)

Answer = Callable[["Handler"], None]


class Site(ThreadingHTTPServer):
    """Answers by path: bytes, a local folder below ``folder``, or a function that does as it likes."""

    daemon_threads = True
    # connections that a test leaves hanging are not waited for
    block_on_close = False

    def __init__(self, answers: dict[str, bytes | Answer], folder: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.folder = answers, folder
        self.asked: list[tuple[str, str]] = []  # path, Range or HEAD
        self.headers: list[dict[str, str]] = []
        self.ranges = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """A client that goes away is part of these tests."""


class Handler(BaseHTTPRequestHandler):
    server: Site
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        part = "HEAD" if self.command == "HEAD" else self.headers.get("Range", "")
        self.server.asked.append((path, part))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        answer = self.server.answers.get(path)
        if answer is None and self.server.folder is not None:
            file = self.server.folder / path.lstrip("/")
            answer = file.read_bytes() if file.is_file() else None
        if callable(answer):
            answer(self)
        elif answer is None:
            self.reply(404, b"")
        else:
            # pip takes nothing else for a page
            kind = {"Content_Type": "text/html"} if path.endswith("/") else {}
            self.reply(200, answer, **kind, **({"Accept_Ranges": "bytes"} if self.server.ranges else {}))

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted and status == 200 and self.server.ranges:
            first, last = wanted[1], wanted[2]
            start = int(first) if first else max(0, len(body) - int(last))
            stop = min(len(body), int(last) + 1) if first and last else len(body)
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            status, body = 206, body[start:stop]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing of this belongs into the tests' output."""


def hang(handler: Handler) -> None:
    """Say nothing."""
    time.sleep(8)
    handler.close_connection = True


def die(handler: Handler) -> None:
    """Promise more than comes."""
    handler.send_response(206 if handler.headers.get("Range") else 200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.wfile.write(b"x" * 1000)
    handler.close_connection = True


def endless(handler: Handler) -> None:
    """Send without an end, as fast as it goes."""
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    block = b"<a href='x'>" * 5000
    while True:
        handler.wfile.write(block)


def trickle(handler: Handler) -> None:
    """Send a byte now and then: no silence is long enough for a read's time limit."""
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    for _ in range(200):
        handler.wfile.write(b"<")
        time.sleep(0.05)


def redirect(target: str) -> Answer:
    return lambda handler: handler.reply(302, b"", Location=target)


@contextmanager
def serving(answers: dict[str, bytes | Answer], folder: Path | None = None) -> Iterator[Site]:
    site = Site(answers, folder)
    thread = threading.Thread(target=site.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.shutdown()
        site.server_close()
        thread.join()


def services(
    folder: Path,
    told: list[str] | None = None,
    *,
    offline: bool = False,
    seconds: float = 30.0,
    timeouts: Timeouts = PATIENT,
) -> Services:
    said = [] if told is None else told
    return Services(folder, offline=offline, seconds=seconds, progress=said.append, timeouts=timeouts)


def config(platform: str, **variant: str) -> Config:
    return Config(
        name=platform.replace("-", "_"),
        platform=platform,
        build_platform=platform,
        accelerator="cpu",
        cuda_version=None,
        blas="generic",
        provider=ProviderName.CONDA_FORGE,
        torch_version="2.13.0",
        path=Path("none.yaml"),
        variant={key: (value,) for key, value in variant.items()},
        zip_keys=(),
        pythons=("3.12",),
        docker_image="",
    )


def request(
    given: Services,
    *,
    version: str = "1.2",
    wheel: str = "thing",
    pinning: Path | None = None,
    configs: tuple[Config, ...] = (),
    names: tuple[str, ...] = (),
    index: str = "pip",
) -> AuditRequest:
    target = AuditTarget(
        package="thing", version=version, repository="", tag="", wheel=wheel, builds=(), index=index
    )

    return AuditRequest(
        target=target,
        services=given,
        repositories=Repositories(given),
        configs=configs,
        root=Path("."),
        local_pinning=pinning,
        names=names,
    )


def heard(read: Callable[[AuditRequest], SourceOutcome], asked: AuditRequest) -> SourceOutcome:
    """Ask a source as the audit does: what it raises is the trouble of its outcome."""
    return outcome_of(asked, "it", read)
